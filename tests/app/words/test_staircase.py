"""Tests of the plan chart's words: the first change with its factor, all changes, the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding, RunResult
from sawtooth.analysis.staircase import Staircase, StairStep
from sawtooth.app.reports.html import run_html
from sawtooth.app.theme import CAUSES
from sawtooth.app.words import staircase
from sawtooth.app.words.answer import change_code, headline_length, title
from tests.support.run_results import run_of
from tests.support.stairs import stairs_of


def lines(stairs: Staircase, choice: int, result: RunResult) -> list[str]:
    """Return the headline, the line about all changes, and the line with the cause."""
    shown = title.title(stairs, choice, result)
    return [text.replace("\xa0", " ") for text in (shown.text, shown.whole, shown.under)]


def test_the_headline_has_the_first_change_with_its_own_factor_and_the_line_below_all_changes() -> None:
    result, stairs = stairs_of((50.0, 45.0, 55.0), (25.0, 22.0, 30.0))
    first, complete, under = lines(stairs, 3, result)
    assert first == "Use the fused optimizer: 100 → ≈ 50.0 ms 2.0 × (1.8 to 2.2)"
    assert (
        complete == "Both changes: ≈ 25.0 ms per step, 4.0 × (3.3 to 4.5). The first takes two lines of code."
    )  # b = 3, c = 4
    assert under == "Cause: rule-0 costs time."  # The bar shows how long the GPU works.
    assert lines(stairs, 2, result)[:2] == [
        "Use the fused optimizer: 100 → ≈ 25.0 ms 4.0 × (3.3 to 4.5)",
        "",
    ]


def test_the_cause_names_every_wait_that_the_first_change_shortens_longest_first() -> None:
    result, stairs = stairs_of((50.0, 45.0, 55.0))
    waits = {"launch_bound": (24.0, 4.0), "python_host": (34.0, 6.0), "launch_latency": (2.0, 0.0)}  # ms now and after
    ledger = [
        ("other_compute", None, 40_000_000, 40.0),
        *(("idle", cause, int(1e6 * ms), ms) for cause, (ms, _) in waits.items()),
    ]
    result = replace(run_of(ledger=ledger), findings=result.findings)
    now, after = (tuple(("idle", cause, ms[column]) for cause, ms in waits.items()) for column in (0, 1))
    choices = {choice: replace(step, parts=after if choice else now) for choice, step in stairs.choices.items()}
    under = lines(replace(stairs, choices=choices), 1, result)[2]
    assert under.startswith(
        "Cause: Of each step, the GPU waits 34.0 ms for Python on the host and 24.0 ms for kernel launches."
    )
    late = replace(result.findings[0], explains=Explains(topics=frozenset({"late_rank"})))
    under = lines(replace(stairs, choices=choices), 1, replace(result, findings=[late]))[2]
    assert under == "Cause: rule-0 costs time.", "waits of the shown rank do not explain why the others wait for it"


def test_a_change_that_only_prepares_another_one_is_not_the_headline() -> None:
    result, stairs = stairs_of((100.0, 95.0, 105.0), (25.0, 22.0, 30.0))
    first, complete, _ = lines(stairs, 3, result)
    assert first.endswith("100 → ≈ 25.0 ms 4.0 × (3.3 to 4.5)") and complete.startswith("First: Use the fused optimizer.")


def test_a_wide_interval_does_not_look_certain() -> None:
    result, stairs = stairs_of((50.0, 20.0, 80.0), (25.0, 10.0, 40.0))
    assert ("badge", "2.0\xa0× (1.2 to 5.0)") in title.title(stairs, 3, result).pieces
    facts = dict(staircase.facts(result, stairs, 3, staircase.CostFacts()))
    assert facts["A training that takes a day now"].replace("\xa0", " ") == "24 → 2.40 to 9.60 h"


def test_gpu_work_removed_by_the_first_change_is_drawn_as_lost() -> None:
    result, stairs = stairs_of((30.0, 28.0, 32.0), (25.0, 22.0, 30.0))
    now, after = (
        (("other_compute", None, 90.0), ("idle", "data_wait", 10.0)),
        (("other_compute", None, 25.0), ("idle", None, 5.0)),
    )
    choices = {choice: replace(step, parts=after if choice & 1 else now) for choice, step in stairs.choices.items()}
    drawn = staircase.picture(result, replace(stairs, choices=choices), staircase.CostFacts())
    avoidable = next(at for at, kind in enumerate(drawn["kinds"]) if kind["label"] == "avoidable compute")
    assert [ms for kind, ms, _ in drawn["states"]["0"]["parts"] if kind == avoidable] == [65.0]
    assert avoidable not in [kind for kind, *_ in drawn["states"]["1"]["parts"]]
    assert "avoidable compute" in run_html(result, replace(stairs, choices=choices))  # The page shows the same.
    assert staircase.with_avoidable(stairs, result) is stairs  # The change removes only waits.
    unknown = replace(choices[1], parts=((staircase.AFTER, None, 30.0),))
    unknown_after = replace(stairs, choices={0: choices[0], 1: unknown, 3: choices[3]})
    assert staircase.with_avoidable(unknown_after, result) is unknown_after  # It is unknown which compute the change removes.


def test_the_cause_states_the_avoided_compute_of_the_bar() -> None:
    """The cause names the work that the bar shows (1.63 ms, not 2.18 ms), and not the short waits."""
    result, stairs = stairs_of((40.0, 38.0, 42.0))
    waits = ("launch_bound", "python_host")
    ledger = [("other_compute", None, 90_000_000, 90.0), *(("idle", cause, 5_000_000, 5.0) for cause in waits)]
    result = replace(run_of(ledger=ledger), findings=[replace(result.findings[0], title="The loss takes 70.0 ms of each step")])
    now, after = (
        (("other_compute", None, ms), *(("idle", cause, wait) for cause in waits)) for ms, wait in ((90.0, 5.0), (38.0, 1.0))
    )
    choices = {choice: replace(step, parts=after if choice else now) for choice, step in stairs.choices.items()}
    drawn = staircase.picture(result, replace(stairs, choices=choices), staircase.CostFacts())
    avoidable = next(at for at, kind in enumerate(drawn["kinds"]) if kind["label"] == "avoidable compute")
    (bar,) = (text for kind, _, text in drawn["states"]["0"]["parts"] if kind == avoidable)
    under = drawn["states"]["1"]["under"]
    assert under == f"Cause: The loss takes 70.0\xa0ms of each step. The change avoids {bar} of compute."


def test_a_number_without_a_bar_is_named_between_the_bars() -> None:
    """The bars of a run are numbered without gaps (not 1, 2 and 4)."""
    result, stairs = stairs_of((50.0, 45.0, 55.0), (25.0, 22.0, 30.0))
    first, second = result.findings
    unpredicted = Finding("other", "info", "It waits", Action("Overlap", "the copies"), "medium", ceiling_ms_per_step=3.0)
    drawn = staircase.picture(replace(result, findings=[first, unpredicted, second]), stairs, staircase.CostFacts())
    assert [change["number"] for change in drawn["changes"]] == [1, 3]
    assert [(number, name) for number, name, _ in drawn["between"]] == [(2, "Overlap the copies")]
    assert (
        staircase.picture(replace(result, findings=[first, second, unpredicted]), stairs, staircase.CostFacts())["between"]
        == []
    )


def test_a_change_with_a_known_limit_is_a_bar_without_a_range_and_names_the_other_way() -> None:
    result, stairs = stairs_of()
    action = Action("Keep", "shapes the same", ", or turn the search off: a = 1.")
    code = (CodeChange("PyTorch", "a = 0", "a = 1  # off"),)
    found = Finding("search", "warning", "It searches", action, "high", 55.0, changes=code, explains=Explains(("data_wait",)))
    result = replace(result, findings=[found])
    limited = staircase.of_run(result, stairs)
    assert limited is not None
    state = staircase.picture(result, limited, staircase.CostFacts())["states"]["1"]
    assert (state["text"], state["span"], state["factor"], state["limit"]) == ("≥\xa045.0\xa0ms", "", "≤\xa02.2\xa0×", True)
    assert lines(limited, 1, result)[:2] == [
        "Keep shapes the same: 100 → ≥ 45.0 ms up to 2.2 ×",
        "Or turn the search off: `a = 1`.",
    ]
    assert change_code.cost(found) == "one line to turn the search off"
    named = replace(found, ceiling_ms_per_step=60.0, explains=Explains(("data_wait",), called="its search"))
    limited = staircase.of_run(replace(result, findings=[named]), stairs)
    assert limited and "It searches; the GPU waits 60.0 ms for it." in lines(limited, 1, replace(result, findings=[named]))[2]


def test_waits_with_one_name_have_one_colour() -> None:
    waits = (("idle", "python_host", 6.0), ("idle", "host_sync", 54.0))  # ms. With 40 ms of compute, a step takes 100 ms.
    computing = ("other_compute", None, 40.0)
    run = run_of(ledger=[(owner, cause, int(ms * 1e6), ms) for owner, cause, ms in (computing, *waits)])
    _, typical = stairs_of((40.0, 38.0, 50.0))
    finding = replace(
        stairs_of((40.0, 38.0, 50.0))[0].findings[0], explains=Explains(("python_host", "host_sync"), called="checkpoints")
    )
    steps = {0: replace(typical.choices[0], parts=(computing, *waits)), 1: replace(typical.choices[1], parts=(computing,))}
    drawn = staircase.picture(replace(run, findings=[finding]), replace(typical, choices=steps), staircase.CostFacts())
    named = [(at, kind["light"]) for at, kind in enumerate(drawn["kinds"]) if kind["label"] == "checkpoints"]
    assert [colour for _, colour in named] == [CAUSES["host_sync"].light]  # The colour is of the longest wait.
    assert [ms for kind, ms, _ in drawn["states"]["0"]["parts"] if kind == named[0][0]] == [60.0]


def test_a_larger_change_that_comes_later_has_a_reason() -> None:
    result, stairs = stairs_of((60.0, 55.0, 70.0))
    larger = replace(result.findings[0], rule="graph", predicted_step_ms=40.0, predicted_speedup=2.5, predicted_high_ms=85.0)
    lead = replace(result.findings[0], explains=Explains((), topics=frozenset({"late_rank"})))
    of_rank = replace(result, findings=[lead, larger])
    why = "Change 2 (use the fused optimizer) could reach ≈ 40.0 ms, but works around the rank's delay instead of removing its cause."
    assert lines(stairs, 1, of_rank)[1] == why
    unsure = replace(result, findings=[result.findings[0], larger])
    assert lines(stairs, 1, unsure)[1].endswith("but is less sure to gain as much.")
    assert lines(stairs, 0, unsure)[1] == ""


def test_a_headline_has_one_readable_unit() -> None:
    result, stairs = stairs_of((0.8, 0.6, 2.0))
    assert lines(stairs, 1, result)[0] == "Use the fused optimizer: 100 → ≈ 0.80 ms 120 × (50 to 170)"
    result, stairs = stairs_of((0.004, 0.003, 0.005))
    assert lines(stairs, 1, result)[0].startswith("Use the fused optimizer: 100 ms → ≈ 4.00 µs")


def test_an_interval_that_includes_the_current_step_is_an_upper_limit() -> None:
    result, stairs = stairs_of((80.0, 50.0, 101.0))
    assert lines(stairs, 1, result)[0].endswith("up to 2.0 ×")


@pytest.mark.parametrize(
    ("sentence", "head", "rest"),
    [
        ("The trace holds no step.", "The trace holds no step.", ""),
        ("One two three four five six: seven eight nine ten eleven twelve thirteen", "One two three four five six.", "Seven eight nine ten eleven twelve thirteen."),
        ("a b c d e f g h i j k l m n", "a b c d e f g h i j k l …", "a b c d e f g h i j k l m n."),
        ("B is 5.9\u00a0× as fast as A, which is long to say (95\u00a0%: 5 to 6\u00a0×): 9\u00a0ms", "B is 5.9\u00a0× as fast as A.", "Which is long to say (95\u00a0%: 5 to 6\u00a0×): 9\u00a0ms."),
        ("B now is about 5.95\u00a0× as fast as A was (95\u00a0%: 5.86 to 6.21\u00a0×): 158\u00a0ms to 27\u00a0ms", "B now is about 5.95\u00a0× as fast as A was.", "95\u00a0%: 5.86 to 6.21\u00a0×. 158\u00a0ms to 27\u00a0ms."),
    ],
)  # fmt: skip
def test_a_long_headline_continues_in_the_line_below(sentence: str, head: str, rest: str) -> None:
    assert headline_length.split(sentence) == (head, rest)


def test_a_number_and_its_unit_do_not_break() -> None:
    assert headline_length.words("Pad it: 65.7 → ≈\u00a035.1\u00a0ms") == 4


def test_a_first_change_with_only_an_upper_limit_is_the_headline() -> None:
    result, stairs = stairs_of((80.0, 70.0, 90.0), (75.0, 65.0, 88.0))
    acting = Finding("acting", "critical", "Acting costs time", Action("Act", "in more at once"), "medium", ceiling_ms_per_step=50.0)  # fmt: skip
    result = replace(result, findings=[acting, *result.findings])
    assert title.first_without_bar(stairs, result) is acting
    assert lines(stairs, 3, result) == [
        "Act in more at once: up to 2.0 ×",
        "It saves up to 50.0 ms of each 100 ms step. With both changes below instead: ≈ 75.0 ms, 1.3 × (1.1 to 1.5).",
        "Cause: Acting costs time.",
    ]
    assert lines(stairs, 1, result)[0].startswith("Use the fused optimizer: 100 → ≈ 80.0 ms"), "what the viewer selects"
    assert [change["number"] for change in staircase.picture(result, stairs, staircase.CostFacts())["changes"]] == [2, 3]


def test_a_measured_step_without_parts_is_not_called_predicted() -> None:
    result, _ = stairs_of((50.0, 45.0, 55.0))
    stairs = staircase.of_run(replace(result, lead=None, ranks=[]), None)
    assert stairs is not None
    labels = {choice: staircase.colour_of_part(*step.parts[0][:2]).label for choice, step in stairs.choices.items()}
    assert labels == {0: "measured, not divided", 1: "predicted"}


def test_the_picture_has_the_remaining_parts_of_every_choice() -> None:
    result, stairs = stairs_of((50.0, 45.0, 55.0), (25.0, 22.0, 30.0))
    drawn = staircase.picture(
        result,
        stairs,
        staircase.CostFacts(),
        [staircase.MeasuredChoice("after", "compare?a=1&b=2", StairStep(26.0, None, None, (("idle", "host_sync", 26.0),)), 2)],
    )
    labels = [kind["label"] for kind in drawn["kinds"]]
    assert set(drawn["states"]) == {"0", "1", "2", "3"} and drawn["first"] == 3
    assert [(labels[kind], ms) for kind, ms, _ in drawn["states"]["1"]["parts"]] == [
        ("other compute", 40.0),
        ("data loader", 10.0),
    ]
    assert [kind["lost"] for kind in drawn["kinds"]] == [False, True, True]  # Parts that only the measured run has.
    assert [part.replace("\xa0", " ") for part in drawn["busy"]] == ["40.0 ms", "60.0 ms", ""]
    for state in drawn["states"].values():
        assert (
            headline_length.words("".join(piece for kind, piece in state["title"] if kind != "badge"))
            <= headline_length.MAX_WORDS
        )


def test_a_choice_with_a_change_outside_the_plan_is_some_of_all_changes() -> None:
    result, stairs = stairs_of((80.0, 70.0, 90.0), (75.0, 65.0, 88.0), (70.0, 60.0, 85.0))
    planned = replace(stairs, planned=2)
    assert lines(planned, 0b011, result)[1].startswith("Both changes: ")
    assert lines(planned, 0b101, result)[1].startswith("Two of three changes: "), "two are planned, but not these two"
    assert lines(planned, 0b111, result)[1].startswith("All three changes: ")

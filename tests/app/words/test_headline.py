"""Tests of the headline: the change and its gain, or the largest share of the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sawtooth.analysis.knowledge.causes import CAUSES, NOT_RANKED_FIRST
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.metrics.mfu import LOWER_BOUND
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.reading_order import in_reading_order, prepared_by
from sawtooth.analysis.run.model import Explains, Finding, RunResult
from sawtooth.app.reports import text as report_text
from sawtooth.app.reports.html import run_html
from sawtooth.app.words import advice, causes
from sawtooth.app.words.headline import CUT_OFF_EARLY, below, forecast, headline, on_poster, tab_title
from sawtooth.app.words.run import first_line
from tests.support.actions import act
from tests.support.findings_of import result_of
from tests.support.run_results import run_of

PAD = Finding(
    "misaligned-dimensions",
    "critical",
    "Products with dimensions of 50257 take 40 ms of each step",
    act("Pad 774 and 50257 to multiples of 64."),
    "medium",
    predicted_step_ms=35.12,
    predicted_speedup=65.7 / 35.12,
)
SLOW = [("other_compute", None, 65_700_000, 65.7)]


def run_with(*findings: Finding, **more: Any) -> RunResult:
    return replace(run_of(ledger=SLOW), findings=list(findings), **more)


def plain(sentence: str) -> str:
    return sentence.replace("\xa0", " ")


REASON = "Products with dimensions of 50257 take 40 ms of each step. The GPU is busy 100 % of each 65.7 ms step."


def test_the_line_below_the_headline_gives_its_reason() -> None:
    waits = [("other_compute", None, 20_000_000, 20.0), ("idle", "data_wait", 45_700_000, 45.7)]
    of_other = replace(run_of(ledger=waits), findings=[PAD])
    assert plain(below(of_other) or "").startswith(
        "Products with dimensions of 50257 take 40 ms of each step. The GPU is busy 30 %"
    )
    of_it = replace(of_other, findings=[replace(PAD, explains=Explains(("data_wait",)))])
    assert below(of_it) == first_line(of_it)


def test_every_output_has_the_change_with_its_gain_as_headline() -> None:
    result = run_with(PAD)
    expected = "Pad 774 and 50257 to multiples of 64: 65.7 → ≈ 35.1 ms"
    assert plain(headline(result)) == expected
    assert plain(below(result) or "") == REASON
    assert plain(tab_title(result)) == f"{expected} · run aaaa"
    for report in (report_text.text(result), report_text.markdown(result), run_html(result)):
        assert expected in plain(report) and all(sentence in plain(report) for sentence in REASON.split(". "))
    assert plain(report_text.text(result)).count(PAD.title) == 1, "the line below the headline does not repeat the first change"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"confidence": "low"}, "Pad 774 and 50257 to multiples of 64: 65.7 → ≈ 35.1 ms (low confidence)"),
        ({"predicted_high_ms": 60.0}, "Pad 774 and 50257 to multiples of 64: 65.7 → ≈ 35.1 ms"),
        ({"predicted_step_ms": None, "ceiling_ms_per_step": 30.0}, "Pad 774 and 50257 to multiples of 64: up to 30.0 ms of each 65.7 ms step"),
        ({"ends_the_run": True}, "Products with dimensions of 50257 take 40 ms of each step"),
    ],
)  # fmt: skip
def test_an_uncertain_gain_is_marked_in_the_headline(changed: dict[str, Any], expected: str) -> None:
    assert plain(headline(run_with(replace(PAD, **changed)))) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"predicted_step_ms": 65.0, "predicted_speedup": 65.7 / 65.0},  # within noise
        {"predicted_step_ms": None, "ceiling_ms_per_step": None},
        {"predicted_step_ms": None, "ceiling_ms_per_step": 30.0, "severity": "info"},  # Information, not advice.
    ],
)
def test_without_a_useful_change_the_headline_names_the_largest_share(changed: dict[str, Any]) -> None:
    result = run_with(replace(PAD, **changed))
    assert headline(result) == on_poster(result) == first_line(result)
    assert below(result) is None


def without_steps(*ledger: tuple[str, str | None, int, float], findings: tuple[Finding, ...] = ()) -> RunResult:
    """Return a run whose recording of 1 s has no step marks."""
    result = run_of(ledger=ledger, metrics={"gpu_busy_share": 0.3})
    none = missing("There are no steps.")
    metrics = {**result.metrics, "best_step_time_ms": none}
    rank = replace(result.lead, steps=result.lead.steps.iloc[:0], metrics=metrics, best=replace(result.lead.best, reading=none))
    return replace(result, lead=rank, ranks=[rank], metrics=metrics, findings=list(findings))


MARK = Finding(
    "steps-not-marked",
    "warning",
    "The trace marks no steps",
    act("Mark each step with an NVTX range."),
    "high",
    explains=Explains(topics=frozenset({"marks_steps"})),
)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        (("exposed_memcpy", None), "Copy less: 97 % of the recorded time goes to copies not overlapped by compute"),
        (
            ("idle", "host_sync"),
            "Read fewer GPU values in the loop: 97 % of the recorded time goes to the host waiting for a result (sync)",
        ),
        (("idle", "unattributed"), "Mark each step with an NVTX range: the GPU is busy 30 % of the recorded time"),
    ],
)
def test_without_steps_the_headline_is_advice_on_the_largest_share(lost: tuple[str, str | None], expected: str) -> None:
    result = without_steps(("other_compute", None, 30_000_000, 0.0), (*lost, 970_000_000, 0.0), findings=(MARK,))
    assert plain(headline(result)) == expected
    assert plain(on_poster(result)) == expected.partition(":")[0]  # The line below it has the share.
    assert below(result) == first_line(result)  # The line below it names the largest share.


def test_every_cause_in_a_headline_has_an_action() -> None:
    lost = [("idle", cause.key) for cause in CAUSES if cause.key not in NOT_RANKED_FIRST] + [
        (owner, None) for owner in LOST_OWNERS if owner != "idle"
    ]
    assert [one for one in lost if causes.action(*one) is None] == []
    assert causes.action("idle", None) is None and causes.action("idle", "unattributed") is None


def test_a_graph_is_named_with_the_reads_that_it_cannot_contain() -> None:
    reads = replace(PAD, rule="host-waits-for-gpu", severity="warning", action=act("Take the reads out of the step: keep tensors."),
                    predicted_step_ms=None, predicted_speedup=None, explains=Explains(("host_sync",)))  # fmt: skip
    graph = replace(
        PAD,
        rule="launch-bound",
        action=act("Launch the step as one CUDA graph, by hand."),
        needs_first=("host-waits-for-gpu",),
    )
    expected = "Take the reads out of the step, then launch the step as one CUDA graph"
    assert plain(headline(run_with(reads, graph))) == f"{expected}: 65.7 → ≈ 35.1 ms"
    assert on_poster(run_with(reads, graph)) == expected
    assert on_poster(run_with(graph, reads)) == "Launch the step as one CUDA graph"
    assert advice.gain_text(run_with(reads, graph), reads) == "little gain alone: makes change 2 possible"
    assert prepared_by(graph, run_with(reads, graph)) is reads and prepared_by(reads, run_with(reads, graph)) is None
    assert (
        on_poster(run_with(replace(reads, predicted_step_ms=60.0, predicted_speedup=1.1), graph))
        == "Take the reads out of the step"
    )


def test_the_line_below_a_hidden_loader_has_its_measured_time() -> None:
    loss = [
        ("other_compute", None, 32_600_000, 32.6),
        ("idle", "launch_bound", 9_000_000, 9.0),
        ("idle", "python_host", 8_600_000, 8.6),
    ]
    timed = replace(
        PAD, title="3 loader workers need 50.4 ms for a batch", explains=Explains(("data_wait",), topics=frozenset({"hidden"}))
    )
    answer = plain(below(replace(run_of(ledger=loss), findings=[timed])) or "")
    assert answer == "3 loader workers need 50.4 ms for a batch. The GPU is busy 65 % of each 50.2 ms step."


def test_mfu_is_not_shown_if_few_flops_are_known() -> None:
    result = run_with(PAD)
    assert result.lead is not None
    # the last one has FLOPs entered by the user
    for known, notes, shown in (
        (0.02, (LOWER_BOUND,), None),
        (0.96, (LOWER_BOUND,), 0.3),
        (0.02, (), 0.3),
    ):
        flops = {"flop_coverage": Reading(known), "flops_per_step": Reading(1e12, notes=notes)}
        lead = replace(result.lead, metrics={**result.lead.metrics, **flops, "mfu": Reading(0.3)})
        combined_prediction = forecast(replace(result, ranks=[lead], lead=lead))
        assert combined_prediction is not None and combined_prediction.mfu_before == shown, known


@pytest.mark.parametrize(
    ("changed", "leads"),
    [
        ({}, "Compile the model"),
        ({"confidence": "low"}, "Compile the model"),  # A guess that gains in its complete interval.
        ({"predicted_high_ms": 65.6}, None),  # The change may also gain nothing.
        ({"predicted_step_ms": 64.7, "predicted_speedup": 65.7 / 64.7}, None),  # The gain is below the noise.
    ],
)
def test_a_change_that_may_gain_nothing_is_not_the_headline(changed: dict[str, Any], leads: str | None) -> None:
    unsure = replace(PAD, rule="fused", action=act("Use the fused optimizer."), predicted_step_ms=63.0, predicted_speedup=65.7 / 63.0,
                     predicted_high_ms=66.0, confidence="medium")  # fmt: skip
    surer = replace(PAD, rule="chains", action=act("Compile the model."), predicted_high_ms=50.0, confidence="medium")
    result = run_with(unsure, replace(surer, **changed))
    assert headline(result).startswith(leads or first_line(result))
    assert leads is None or in_reading_order(result, None).findings[0].fix.startswith(leads)
    assert leads is not None or "What to try first: " in (advice.below(result) or "")


@pytest.mark.parametrize(
    ("high_ms", "topics", "leads"),
    [
        (25.0, (), "Launch the step"),  # The second change gains at least 40.7 ms, 3.4 times the 12 ms of the first.
        (45.0, (), "Use the fused optimizer"),  # The second change gains at least 20.7 ms, 1.7 times as much.
        (25.0, ("choice",), "Use the fused optimizer"),  # Compiling has its own costs.
    ],
)
def test_a_change_with_twice_the_certain_gain_comes_first(high_ms: float, topics: tuple[str, ...], leads: str) -> None:
    # The first change gains at least 65.7 - 53.7 = 12 ms.
    first = replace(PAD, rule="fused", action=act("Use the fused optimizer."), predicted_step_ms=45.0, predicted_speedup=65.7 / 45.0,
                    predicted_high_ms=53.7, confidence="medium")  # fmt: skip
    more = replace(PAD, rule="graph", action=act("Launch the step as one CUDA graph."), predicted_step_ms=20.0, predicted_speedup=65.7 / 20.0,
                   predicted_high_ms=high_ms, confidence="medium", explains=Explains((), topics=frozenset(topics)))  # fmt: skip
    assert headline(run_with(first, more)).startswith(leads)


def test_the_line_below_explains_an_included_change() -> None:
    fuse = replace(PAD, rule="fuse", action=act("Use a fused optimizer."))
    result = run_with(PAD, fuse)
    assert on_poster(result) == "Pad 774 and 50257 to multiples of 64"
    assert plain(below(result, [fuse]) or "") == f"{fuse.title}. The GPU is busy 100 % of each 65.7 ms step."
    assert below(result, [PAD, fuse]) == first_line(result)
    ends = replace(PAD, ends_the_run=True)
    assert below(run_with(ends, fuse), [fuse]) == headline(run_with(ends, fuse))  # A finding that ends the run stays visible.


def test_a_truncated_trace_is_named_in_the_headline() -> None:
    result = run_with(PAD, diagnostics=[Diagnostic("truncated", "data_loss", "The file ends early.", 1)])
    assert headline(result).endswith("ms. The trace file is cut off.")
    assert on_poster(result) == "Pad 774 and 50257 to multiples of 64. The trace file is cut off."
    assert below(run_with(diagnostics=[Diagnostic("truncated", "data_loss", "The file ends early.", 1)])) == CUT_OFF_EARLY[2]


def test_the_line_below_a_late_rank_has_its_delay() -> None:
    late = replace(PAD, rule="straggling-rank", title="Rank 1 takes 33.2 ms longer per step than the others, because of more kernel work",
                   action=act("Give rank 1 as much work as the others: check the length of its batches first."), explains=Explains(topics=frozenset({"late_rank"})))  # fmt: skip
    assert below(run_with(late)) == f"{late.title}."


def test_a_forecast_from_one_rank_covers_the_complete_job() -> None:
    result = run_of(ledger=SLOW, best_ms=65.7, source="estimate", world_size=8)
    change = forecast(replace(result, findings=[PAD]))
    assert change is not None and change.gpus == 8


def test_a_change_that_removes_flops_has_no_predicted_mfu() -> None:
    # Without the backward pass through a frozen trunk the step is shorter, and so is the model's work in it.
    result = result_of("trained_above")
    assert result.metrics["mfu"].value is not None
    change = forecast(result)
    assert change is not None and change.speedup > 1.5 and change.mfu is None

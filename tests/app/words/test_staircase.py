"""The staircase's words: at most twelve in a headline, a range where the middle says little, and the first change with its cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.staircase import Staircase, StairStep
from sawtooth.app.words import staircase
from tests.support.stairs import stairs_of


def text(stairs: Staircase, choice: int, result: RunResult) -> tuple[str, str]:
    pieces, under = staircase.title(stairs, choice, result)
    return "".join(piece for _, piece in pieces).replace("\xa0", " "), under.replace("\xa0", " ")


def test_several_changes_are_counted_and_the_first_stands_below_with_its_cost() -> None:
    result, stairs = stairs_of((50.0, 45.0, 55.0), (25.0, 22.0, 30.0))
    head, under = text(stairs, 3, result)
    assert head == "100 → ≈ 25.0 ms a step 4.0 × with two changes"
    assert under.startswith("First: use the fused optimizer (two lines).")  # b = 3 and c = 4 are new
    assert text(stairs, 2, result)[0] == "Use the fused optimizer: 100 → ≈ 25.0 ms 4.0 ×"


def test_a_wide_interval_is_shown_instead_of_its_middle() -> None:
    result, stairs = stairs_of((50.0, 20.0, 80.0), (25.0, 10.0, 40.0))
    pieces, _ = staircase.title(stairs, 3, result)
    assert text(stairs, 3, result)[0] == "100 → 10.0 to 40.0 ms 2.5–10 × with two changes"
    assert ("wide", "2.5–10\xa0×") in pieces
    facts = dict(staircase.facts(result, stairs, 3, staircase.Asked()))
    assert facts["for what takes a day now"].replace("\xa0", " ") == "24.0 h → 2.40 to 9.60 h"


def test_a_range_of_two_units_names_the_unit_of_the_step_before_it() -> None:
    result, stairs = stairs_of((0.8, 0.6, 2.0))
    assert text(stairs, 1, result)[0] == "Use the fused optimizer: 100 ms → 600 µs to 2.00 ms 50–170 ×"


def test_an_interval_that_reaches_today_promises_no_more_than_its_best() -> None:
    result, stairs = stairs_of((80.0, 50.0, 101.0))
    assert "up to 2.0 ×" in text(stairs, 1, result)[0]


@pytest.mark.parametrize(
    ("sentence", "head", "rest"),
    [
        ("The trace holds no step.", "The trace holds no step.", ""),
        ("One two three four five six: seven eight nine ten eleven twelve thirteen", "One two three four five six.", "Seven eight nine ten eleven twelve thirteen."),
        ("a b c d e f g h i j k l m n", "a b c d e f g h i j k l …", "a b c d e f g h i j k l m n."),
    ],
)  # fmt: skip
def test_a_longer_headline_goes_on_in_the_line_below(sentence: str, head: str, rest: str) -> None:
    assert staircase.split(sentence) == (head, rest)


def test_a_measured_step_whose_parts_are_not_known_is_not_called_predicted() -> None:
    result, _ = stairs_of((50.0, 45.0, 55.0))
    stairs = staircase.of_run(replace(result, lead=None, ranks=[]), None)
    assert stairs is not None
    labels = {choice: staircase.colour_of_part(*step.parts[0][:2]).label for choice, step in stairs.choices.items()}
    assert labels == {0: "measured, not divided", 1: "predicted"}


def test_the_picture_has_every_choice_in_the_colours_of_what_remains() -> None:
    result, stairs = stairs_of((50.0, 45.0, 55.0), (25.0, 22.0, 30.0))
    drawn = staircase.picture(
        result,
        stairs,
        staircase.Asked(),
        [("after", "compare?a=1&b=2", StairStep(26.0, None, None, (("idle", "host_sync", 26.0),)))],
    )
    labels = [kind["label"] for kind in drawn["kinds"]]
    assert set(drawn["states"]) == {"0", "1", "2", "3"} and drawn["first"] == 3
    assert [(labels[kind], ms) for kind, ms, _ in drawn["states"]["1"]["parts"]] == [
        ("other compute", 40.0),
        ("data loader", 10.0),
    ]
    assert [kind["lost"] for kind in drawn["kinds"]] == [False, True, True]  # what the measured run alone has too
    assert [part.replace("\xa0", " ") for part in drawn["busy"]] == ["40.0 ms", "60.0 ms"]
    for state in drawn["states"].values():
        assert staircase.words("".join(piece for _, piece in state["title"])) <= staircase.MOST_WORDS

"""Tests of the words for a step time's source, and for its difference from the profiled steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, source_in_words
from sawtooth.analysis.run.model import RankResult
from sawtooth.app.page.timeline.overview import scale
from sawtooth.app.words.run import step_range
from tests.support.run_results import run_of

BY_LAW = StepTimeEvidence("telemetry", 752.0, 679.0, 858.0)
BY_PERIOD = replace(BY_LAW, steps_per_period=1)
STARVED = (("other_compute", None, 160_000_000, 160.0), ("idle", "data_wait", 610_000_000, 590.0))


def rank(evidence: StepTimeEvidence) -> RankResult:
    """Return a rank with a profiled step of 770 ms and a step time by ``evidence``."""
    lead = run_of(ledger=STARVED).lead
    assert lead is not None
    reading = Reading(evidence.ms, trust="caution", low=evidence.low_ms, high=evidence.high_ms)
    best = replace(lead.best, source=evidence.source, reading=reading, evidence=(evidence,), mean_ms=770.0)
    return replace(lead, best=best)


def test_source_of_telemetry_says_how_the_step_was_found() -> None:
    assert source_in_words("telemetry", [BY_PERIOD]) == "the period of GPU activity"
    assert source_in_words("telemetry", [BY_LAW]) == "kernel time ÷ mean utilization"
    assert source_in_words("marks", [BY_PERIOD]) == "the run's own step marks"


def test_step_time_names_its_source_and_the_profiled_steps() -> None:
    text = (step_range(rank(BY_PERIOD)) or "").replace("\u00a0", " ")
    assert text == "by the period of GPU activity; profiled: 770 ms, 1 step"
    profiled = replace(rank(BY_PERIOD), best=replace(rank(BY_PERIOD).best, source="profile"))
    assert (step_range(profiled) or "").replace("\u00a0", " ") == "770 ms, 1 step"


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        # 770 is 18 ms more than 752, and lies between 679 and 858.
        (BY_PERIOD, "That is within the error of the run's step (679 to 858 ms), by the period of GPU activity."),
        (replace(BY_PERIOD, low_ms=745.0, high_ms=760.0), "The profiler adds ≈ 18.0 ms to each step here."),
        (
            replace(BY_PERIOD, ms=768.0),
            "The run's step by the period of GPU activity (679 to 858 ms) is as long as the profiled steps",
        ),
    ],
)
def test_timeline_does_not_explain_a_difference_within_the_error(evidence: StepTimeEvidence, words: str) -> None:
    drawn = scale(rank(evidence))
    assert drawn is not None and words in drawn["sentence"].replace("\u00a0", " ")

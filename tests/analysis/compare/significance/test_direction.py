"""Tests of the six verdicts of a comparison, and of the direction if an interval leaves it open.

Times are in milliseconds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.direction import direction
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps

MIRRORED = {
    "faster": "slower",
    "slower": "faster",
    "faster_size_unknown": "slower_size_unknown",
    "slower_size_unknown": "faster_size_unknown",
}


def side(best, low=None, high=None, *, profiled=None, kernels=None, source="estimate", steps=5, name=None):
    low = 0.5 * best if low is None else low
    return [
        MeasuredSteps(
            (profiled or best,) * steps,
            best,
            source,
            (name or f"{best} {low} {high}",),
            low_ms=low,
            high_ms=high,
            profiled_ms=profiled,
            kernels_ms=kernels,
        )
    ]


CASES = {
    # A 95 to 105, B 38 to 42: between 2.3 and 2.8 times.
    "clear": (side(100, 95, 105), side(40, 38, 42), "faster"),
    # Both intervals are closed, but the ratio's high end is more than three times its low end.
    "clear but wide": (side(1000, 600, 1900), side(100, 60, 190), "faster_size_unknown"),
    # B's loader is hidden, so B's step has no upper bound. B's best step and its profiled steps are 4.9 times as short as A's.
    "unbounded": (side(769, 500, 1000, profiled=769), side(157, 150, None, profiled=157), "faster_size_unknown"),
    "agree below twice": (side(100, 50, 300, profiled=100), side(55, 20, 200, profiled=55), "cannot_tell"),
    "agree at twice": (side(100, 50, 300, profiled=110), side(50, 20, 200, profiled=55), "faster_size_unknown"),
    "telemetry at 1.3": (
        side(100, 50, 300, profiled=130, source="telemetry"),
        side(70, 20, 200, profiled=100, source="telemetry"),
        "faster_size_unknown",
    ),
    "kernels alone": (side(100, 50, 300, profiled=100, kernels=90), side(70, 20, 200, profiled=75), "faster_size_unknown"),
    "kernels below 1.15": (side(100, 50, 300, profiled=100, kernels=85), side(70, 20, 200, profiled=75), "cannot_tell"),
    "contradiction": (side(100, 50, 300, profiled=100), side(40, 20, 200, profiled=105), "cannot_tell"),
    "none": (side(100, 98, 102), side(100.5, 98.5, 102.5), "no_change"),
    "wide": (side(100, 50, 200), side(100.5, 50, 200), "cannot_tell"),
    "unbounded and alike": (side(100, 98, None), side(100, 98, 102), "cannot_tell"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_same_in_both_directions(name):
    a, b, answer = CASES[name]
    there, back = verdict(a, b), verdict(b, a)
    assert there.answer == answer
    assert back.answer == MIRRORED.get(answer, answer)
    assert there.confidence == back.confidence
    if there.ratio is not None and None not in there.ratio:
        assert back.ratio == pytest.approx([1 / end for end in reversed(there.ratio)])


def test_no_change_states_the_largest_change_that_the_interval_leaves_open():
    found = verdict(*CASES["none"][:2])
    low, high = found.ratio
    assert found.largest_change == pytest.approx(max(high, 1 / low) - 1)
    assert 0.02 < found.largest_change < 0.06


def test_many_equal_steps_do_not_make_no_change_of_an_unbounded_step_time():
    a, b = side(100, 98, None, steps=40), side(100, 98, 102, steps=40)
    assert verdict(a, b).word == verdict(b, a).word == "inconclusive"


def test_kernels_of_multi_gpu_jobs_do_not_decide():
    a, b, _ = CASES["kernels alone"]
    assert direction(a, b) is not None
    assert direction([replace(a[0], kernels_ms=None)], b) is None  # A side whose ranks wait has no kernel time.


def test_a_contradiction_is_named():
    assert "opposite directions" in verdict(*CASES["contradiction"][:2]).why


def test_two_marked_runs_have_a_verdict_despite_host_variation():
    # There are 889 and 1,489 marked steps. The interval gives the size of the change; the host's variation limits only
    # the statement about its cause.
    a = [replace(run, host_bound=True, on_host=True) for run in side(186, 181, 191, source="marks", steps=0)]
    b = [replace(run, host_bound=True, on_host=True) for run in side(100, 98, 102, source="marks", steps=0)]
    found = verdict(a, b)
    assert (found.answer, found.confidence) == ("faster", "low")
    assert "may not be the cause" in found.why

"""Tests of the rows of the table of certainty, with the arithmetic beside each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.compare.significance.certainty import (
    HOW_MUCH,
    ComparisonEvidence,
    Verdict,
    of_other_work,
    verdict_by_intervals,
    with_ratio_limit,
)
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps

FEW = Verdict("inconclusive", "low", "Too few steps.")
APART = Verdict("faster", "low", "No step reaches the other's range.")
NONE = Verdict("no_difference_shown", "medium", "The interval includes 0.", smallest_visible_share=0.3)

# B takes 100 ms, and A takes 100 ms plus the change. Shares are shares of 100 ms.
TABLE = [
    # steps, change, interval, floor, same_source → word, confidence
    (FEW, -100.0, (-110.0, -90.0), 0.10, True, "faster", "high"),  # The nearer end, 90 %, is at least 20 %.
    (FEW, -100.0, (-110.0, -90.0), 0.10, False, "faster", "high"),  # The same for every source.
    (FEW, -30.0, (-41.0, -19.0), 0.10, True, "faster", "medium"),  # 19 % < 20 %
    (FEW, -30.0, (-41.0, -19.0), 0.0, True, "faster", "high"),  # 19 % ≥ 5 %
    (FEW, -8.0, (-12.0, -4.0), 0.0, True, "faster", "medium"),  # 4 % < 5 %
    (APART, -8.0, (-15.0, -1.0), 0.1, True, "faster", "low"),  # 8 % is below the floor of 10 %.
    (FEW, -8.0, (-20.0, -1.0), 0.1, True, "inconclusive", "low"),  # Only a change of 12 % would have been visible.
    (FEW, -8.0, (-12.0, -4.0), 0.10, False, "no_difference_shown", "medium"),  # 8 % is less than the 10 % by which two sources differ.
    (APART, -30.0, (-70.0, 10.0), 0.10, True, "inconclusive", "low"),  # The errors of two recordings of one source are independent.
    (APART, -30.0, (-70.0, 10.0), 0.10, False, "inconclusive", "low"),
    (APART, -30.0, (-70.0, None), 0.0, True, "inconclusive", "low"),  # Nothing bounds it.
    (FEW, -1.0, (-5.0, 3.0), 0.0, True, "no_difference_shown", "high"),  # A change of 4 % would have been visible.
    (FEW, -1.0, (-10.0, 8.0), 0.0, True, "no_difference_shown", "medium"),  # 9 %
    (FEW, -1.0, (-30.0, 28.0), 0.0, True, "inconclusive", "low"),  # 29 %
    (NONE, -1.0, (-30.0, 28.0), 0.0, True, "no_difference_shown", "medium"),  # Based on many steps.
]  # fmt: skip


def of_marks(ms, *, host_bound):
    return MeasuredSteps((), ms, "marks", (f"{ms} {host_bound}",), low_ms=0.99 * ms, high_ms=1.01 * ms, host_bound=host_bound)


@pytest.mark.parametrize(
    ("b_ms", "by_gpu", "by_host"),
    [
        (270.0, "high", "high"),
        (200.0, "high", "medium"),
        (173.0, "high", "low"),
        (150.0, "high", "low"),
        (134.0, "medium", "low"),
    ],
)
def test_single_host_bound_runs_are_never_more_certain_than_hosts_vary(b_ms, by_gpu, by_host):
    """One command ran twice on a shared host.

    The pairs of step times are 125 and 173 ms, 125 and 113 ms, and 118 and 113 ms, by stopwatch.
    """
    both = [verdict([of_marks(125.0, host_bound=host)], [of_marks(b_ms, host_bound=host)]) for host in (False, True)]
    assert [text.word for text in both] == ["slower", "slower"]
    assert [text.confidence for text in both] == [by_gpu, by_host]
    assert both[1].confidence == both[0].confidence or "record both sides again" in both[1].why
    several = [[of_marks(ms + i, host_bound=True) for i in range(4)] for ms in (125.0, 173.0)]
    assert verdict(*several).confidence == "high"  # Several runs show their own variation.


@pytest.mark.parametrize(
    ("b_ms", "machine", "runs", "confidence"),
    [
        (200.0, "first", 1, "medium"),
        (200.0, "other", 1, "low"),  # 60 % more. Two machines with the same GPU can differ by as much.
        (270.0, "other", 1, "medium"),  # 116 % more
        (400.0, "other", 1, "high"),  # 220 % more
        (200.0, "first", 4, "high"),
        (200.0, "other", 4, "low"),  # Repeating each side on its own machine does not help.
        (200.0, None, 1, "medium"),
    ],
)
def test_host_bound_runs_on_two_machines_are_less_certain(b_ms, machine, runs, confidence):
    a, b = (
        [replace(of_marks(ms + i, host_bound=True), machine=name) for i in range(runs)]
        for ms, name in ((125.0, "first"), (b_ms, machine))
    )
    for judged in (verdict(a, b), verdict(b, a)):
        assert judged.shown and judged.confidence == confidence
        assert ("on one machine" in judged.why) == (machine == "other" and confidence != "high")
    by_gpu = verdict(*([replace(run, host_bound=False) for run in side] for side in (a, b)))
    assert by_gpu.confidence == "high"  # A host that does not limit the step does not matter.


@pytest.mark.parametrize(("steps", "change", "interval", "floor", "same_source", "word", "confidence"), TABLE)
def test_the_table(steps, change, interval, floor, same_source, word, confidence):
    found = verdict_by_intervals(steps, ComparisonEvidence(change, 100.0, interval, floor, same_source), "By their intervals.")
    assert (found.word, found.confidence) == (word, confidence)
    mirrored = Verdict("slower", "low", APART.why) if steps is APART else steps
    low, high = (None if end is None else -end for end in reversed(interval))
    back = verdict_by_intervals(
        mirrored, ComparisonEvidence(-change, 100.0, (low, high), floor, same_source), "By their intervals."
    )
    assert (back.word, back.confidence) == ({"faster": "slower"}.get(word, word), confidence)


def test_two_sources_are_named():
    found = verdict_by_intervals(
        FEW, ComparisonEvidence(-100.0, 100.0, (-110.0, -90.0), 0.1, same_source=False), "By their intervals."
    )
    assert "different sources" in found.why and "Too few" not in found.why


def test_no_verdict_for_two_models():
    found = of_other_work(Verdict("faster", "high", "It excludes 0.", (-3.0, -1.0)))
    assert (found.word, found.confidence, found.ci95_ms) == ("inconclusive", "low", (-3.0, -1.0))
    assert "different shapes" in found.why


def step(best, half, source="telemetry", steps=3):
    return MeasuredSteps((best,) * steps, best, source, (f"{best}{source}",), low_ms=best - half, high_ms=best + half)


def test_a_change_much_larger_than_both_intervals_is_shown_by_three_steps():
    # 37.7 ± 8 → 9 ± 3 ms at 90 %: half of √(64 + 9) · 1.96 ÷ 1.645 = 5.1 ms, so at least 23.6 ms of 9 are saved: 262 %.
    found = verdict([step(37.7, 8.0)], [step(9.0, 3.0)])
    # 3.3 to 5.3 × as fast: the direction is certain, the size is not
    assert (found.word, found.confidence) == ("faster", "medium")
    assert found.ci95_ms == pytest.approx((-28.7 - 5.09, -28.7 + 5.09), abs=0.01)
    assert verdict([step(37.7, 4.0, "estimate")], [step(9.0, 3.0)]).confidence == "medium"


def test_stopwatch_against_telemetry_lowers_confidence():
    steps = 40
    a, b = step(120.0, 1.0, "user", steps), step(100.0, 1.0, "user", steps)
    assert verdict([a], [b]).confidence == "high"
    # The change is 20 %, ±1.7 ms by the intervals. Its nearer end, 18.3 %, is less than twice the 10 % by which two sources
    # differ.
    assert verdict([a], [step(100.0, 1.0, "marks", steps)]).confidence == "medium"


def test_profiled_steps_decide_if_they_differ_greatly():
    def profiled(level):
        return MeasuredSteps((level, level * 1.02, level * 0.98, level), level, "profile", (str(level),))

    assert verdict([profiled(494.0)], [profiled(100.0)]).confidence == "high"  # 4.94 ×
    assert (
        verdict([profiled(130.0)], [profiled(100.0)]).confidence == "low"
    )  # The profiler's cost may be as large as the difference.


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "sure"), [(360.0, 376.0, "high"), (260.0, 400.0, "medium"), (135.0, 444.0, "low")]
)
def test_a_change_of_unknown_size_does_not_have_high_confidence(low_ms, high_ms, sure):
    # One step takes 368 ms, with an interval of 135 to 444, the other 34.6 ms: 2.6 to 14 × as fast (the stopwatches gave
    # 6.8).
    a = MeasuredSteps((), 368.0, "estimate", ("a",), low_ms=low_ms, high_ms=high_ms)
    b = MeasuredSteps((), 34.6, "telemetry", ("b",), low_ms=33.6, high_ms=35.6)
    for found, word in ((verdict([a], [b]), "faster"), (verdict([b], [a]), "slower")):
        assert (found.word, found.confidence) == (word, sure)
        assert (HOW_MUCH in found.why) == (sure == "low")


def test_an_interval_that_allows_only_small_changes_shows_no_change_with_few_steps():
    """One loop in two processes, with three profiled steps each, takes 7.70 and 7.39 ms.

    The GPU works for most of both.
    """
    unknown = Verdict("inconclusive", "low", "3 recorded steps are too few.", (-0.39, 0.4))
    assert with_ratio_limit(unknown, (0.95, 1.05)).answer == "no_change"
    assert with_ratio_limit(unknown, (0.95, 1.05)).confidence == "medium"  # 1 ÷ 0.95 − 1 = 5.3 %
    assert with_ratio_limit(unknown, (0.96, 1.04)).confidence == "high"
    assert with_ratio_limit(unknown, (0.92, 1.14)).answer == with_ratio_limit(unknown, (0.95, None)).answer == "cannot_tell"
    assert with_ratio_limit(unknown, (0.95, 1.05), bounded=False).answer == "cannot_tell"  # Profiled steps alone.

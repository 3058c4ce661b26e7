"""Tests of a trial's verdict, from its difference to the base runs and their own drift."""

import pytest

from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.compare.significance.trial import judge


def marked(ms: float, half_share: float = 0.01) -> MeasuredSteps:
    return MeasuredSteps((ms,) * 8, ms, "marks", (f"run of {ms}",), low_ms=ms * (1 - half_share), high_ms=ms * (1 + half_share))


@pytest.mark.parametrize(
    ("bases", "trial", "within", "word", "change"),
    [
        ((100.0, 100.0), 60.0, 0.0, "kept", -40.0),
        ((100.0, 100.0), 150.0, 0.0, "slower", 50.0),
        ((100.0, 100.0), 99.0, 0.0, "not_shown", -1.0),  # Two runs of one program differ by 2 %.
        ((100.0, 100.0), 90.0, 0.0, "kept", -10.0),
        ((100.0, 100.0), 90.0, 11.0, "not_shown", -10.0),  # The base run drifts by 11 ms.
        ((100.0, 130.0), 90.0, 0.0, "not_shown", -25.0),  # Base runs differ by 30 ms.
        # 75 ms less than the mean of both, but 55 ms less than the faster one, and base runs differ by 40 ms.
        ((100.0, 140.0), 45.0, 0.0, "kept", -75.0),
        # 50 ms less than the mean of both, but only 30 ms less than the faster one.
        ((100.0, 140.0), 70.0, 0.0, "not_shown", -50.0),
    ],
)
def test_a_change_is_kept_if_it_is_shown_and_larger_than_the_drift(
    bases: tuple[float, ...], trial: float, within: float, word: str, change: float
) -> None:
    runs = [marked(ms) for ms in bases]
    made = judge(runs, marked(trial), runs, within)
    assert (made.word, made.change_ms) == (word, pytest.approx(change))
    assert made.drift_ms == max(within, max(bases) - min(bases))


def test_base_run_not_next_to_the_trial_counts_as_drift() -> None:
    beside = [marked(100.0), marked(101.0)]
    assert judge(beside, marked(80.0), beside).word == "kept"
    assert judge(beside, marked(80.0), [*beside, marked(140.0)]).word == "not_shown"


def test_a_trial_without_a_step_time_is_not_shown() -> None:
    base = [marked(100.0)]
    made = judge(base, MeasuredSteps((), None), base)
    assert (made.word, made.change_ms) == ("not_shown", None)

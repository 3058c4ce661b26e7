"""Tests of the sentence that joins a rank's delay and the step's gain without it."""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.job import Straggler
from sawtooth.app.words.predicted_gain import delay_and_gain


def late(own_ms: float, reason: str | None, *, at_most: bool = False) -> Straggler:
    return Straggler("rank", (1,), (1,), None, reason, None, own_ms, own_ms, at_most)


@pytest.mark.parametrize(
    ("reason", "gain_ms", "why"),
    [
        ("python_host", 20.2, "The job gains ≈ 20.2 ms of these 30.5 ms per step. During the rest, the other ranks work and do not wait."),
        ("work", 15.0, "The job gains ≈ 15.0 ms of these 30.5 ms per step, because the other ranks get a part of the work if it is spread evenly."),
        ("python_host", 30.0, ""),  # Equal within the detection limit.
    ],
)  # fmt: skip
def test_a_gain_below_the_delay_has_a_reason(reason: str, gain_ms: float, why: str) -> None:
    assert delay_and_gain(late(30.5, reason), gain_ms).replace("\xa0", " ") == why


def test_an_upper_limit_of_a_delay_predicts_no_gain() -> None:
    assert delay_and_gain(late(30.5, None, at_most=True), 10.0) == ""

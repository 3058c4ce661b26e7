"""Tests of which late ranks are reported: those whose delay must end for the job to gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from sawtooth.analysis.ranks.stragglers.reasons import needed_for_gain, stragglers_of


@dataclass(frozen=True)
class Late:
    """A rank with its excess, and the time by which it delays the job."""

    position: int
    own_ms: float
    delays_ms: float
    reason: str | None = "python_host"
    kernel_ratio: float | None = None


def gain_ms(all_late: Sequence[Late]) -> Callable[[Sequence[Late]], float]:
    """Return a function with the gain of a job that waits for the slowest of its ranks."""

    def gain_ms(faster: Sequence[Late]) -> float:
        slow = [rank.delays_ms for rank in all_late]
        return max(slow) - max((rank.delays_ms for rank in all_late if rank not in faster), default=0.0)

    return gain_ms


@pytest.mark.parametrize(
    ("delays_ms", "positions"),
    [
        ((9.0, 0.0, 7.0, 0.0), [0, 2]),  # No recorded call shows that ranks 1 and 3 wait for the others.
        ((9.0, 0.0), [0]),
        ((9.0, 8.9), [0, 1]),  # The job gains only if both are as fast as the others.
    ],
)
def test_ranks_without_effect_on_the_gain_are_not_late(delays_ms: tuple[float, ...], positions: list[int]) -> None:
    late = [Late(position, 10.0 - position, delay_ms) for position, delay_ms in enumerate(delays_ms)]
    assert [rank.position for rank in needed_for_gain(late, gain_ms(late), 1.0)] == positions


def test_all_ranks_of_a_job_are_not_late_together() -> None:
    """Two ranks that pause in different steps are each named, with their own gain."""
    late = [Late(0, 3.0, 3.0), Late(1, 2.0, 2.0)]
    found = stragglers_of(late, [0, 1], [None, None], lambda some: sum(rank.delays_ms for rank in some))
    assert [(item.ranks, item.gain_ms) for item in found] == [((0,), 3.0), ((1,), 2.0)]
    found = stragglers_of(late, [0, 1, 2], [None, None, None], lambda some: sum(rank.delays_ms for rank in some))
    assert [item.kind for item in found] == ["set", "rank", "rank"]

"""Tests of rare stalls of one rank, by its own GPU's samples and those of the other ranks."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.metrics.step_time_evidence import LongSteps
from sawtooth.analysis.ranks.stragglers.rare_stalls import Samples, stalls_alone

S = 1_000_000_000
# Three long steps of 0.5 s, one each 2 s. The last 0.1 s of each is a usual step.
STEPS = LongSteps((40, 80, 120), (400.0,) * 3, tuple((2 * k * S, 2 * k * S + S // 2) for k in (1, 2, 3)), 120)


def samples(in_stall_pct: float, otherwise_pct: float = 30.0) -> Samples:
    """Return ten samples per second; the first four of each long step are ``in_stall_pct``."""
    times = np.arange(1, 80, dtype=np.int64) * (S // 10)
    values = np.full(len(times), otherwise_pct)
    for start_ns, _ in STEPS.spans_ns:
        values[(times > start_ns) & (times <= start_ns + 4 * S // 10)] = in_stall_pct
    return times, values


@pytest.mark.parametrize(
    ("own_pct", "other_pct", "alone"),
    [
        (0.0, 17.0, True),  # The other GPU waits in a collective, whose kernel keeps some SMs active.
        (17.0, 0.0, False),  # This rank waits for the other.
        (0.0, 0.0, False),  # All ranks pause, as for an evaluation on the CPU.
        (17.0, 17.0, False),  # All GPUs work.
    ],
)
def test_the_rank_with_the_idle_gpu_stalls(own_pct: float, other_pct: float, *, alone: bool) -> None:
    assert stalls_alone(STEPS, samples(own_pct), [samples(other_pct)]) == alone


def test_every_other_gpu_must_be_active() -> None:
    assert stalls_alone(STEPS, samples(0.0), [samples(17.0), samples(17.0)])
    assert not stalls_alone(STEPS, samples(0.0), [samples(17.0), samples(0.0)])


def test_few_samples_show_nothing() -> None:
    times, values = samples(0.0)
    assert not stalls_alone(STEPS, (times[::5], values[::5]), [samples(17.0)])

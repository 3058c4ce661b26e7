"""Tests of kernels that run while collectives do.

Their slowdown by a waiting collective is removed, their slowdown by the transfer stays, and time slices of another
process are detected.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.ranks.contention import Kernels, interrupted_ms, shortest_quiet_ns, slowed_by_waits

MATMUL, ADD, UNSEEN = ("matmul", "8"), ("add", "1"), ("scan", "2")


def kernels(quiet: dict[tuple[str, str], float], *ops: tuple[tuple[str, str], int, int]) -> Kernels:
    """Return the kernels of step 1; ``ops`` are (shape, start, duration in ns)."""
    frame = pd.DataFrame(
        [
            {"gpu_op_id": i, "start_ns": at, "end_ns": at + ns, "dur_ns": ns, "step": 1, "name": n, "shape": s}
            for i, ((n, s), at, ns) in enumerate(ops)
        ]
    )
    return Kernels(frame, np.zeros(0, np.int64), {shape: (ns, 1) for shape, ns in quiet.items()})


def collective(position: int, start: int, wait: int) -> dict[str, int]:
    return {"position": position, "start_ns": start, "wait_ns": wait}


def test_only_slowdown_by_waiting_collectives_is_removed() -> None:
    """The collective waits from 0 to 1,000 ns and then transfers. The product alone takes 100 ns."""
    early = kernels(
        {MATMUL: 100.0},
        (MATMUL, 0, 130),  # The product runs completely during the wait: 30 ns are removed.
        (MATMUL, 935, 130),  # Half of the product, 65 of 130 ns, runs during the wait.
        (MATMUL, 1_100, 130),  # The product runs during the transfer: nothing is removed.
        (MATMUL, 200, 90),  # Faster than usual, so nothing is removed.
        (MATMUL, 300, 500),  # Five times as long is not caused by shared SMs, so nothing is removed.
    )
    (off,) = slowed_by_waits([early], pd.DataFrame([collective(0, 0, 1_000)]))
    assert off.to_dict() == {0: 30, 1: 15, 3: 0, 4: 0}


def test_overlapped_kernel_counts_as_on_the_quickest_rank() -> None:
    early = kernels({}, (ADD, 0, 30), (UNSEEN, 50, 30))
    late = kernels({ADD: 20.0}, (ADD, 5_000, 20))
    off, none = slowed_by_waits([early, late], pd.DataFrame([collective(0, 0, 1_000), collective(1, 900, 0)]))
    assert off.to_dict() == {0: 10, 1: 0}  # The time of the scan alone is unknown.
    assert none.empty


@pytest.mark.parametrize(
    ("took_ns", "expected"),
    [
        ([2_100_000, 100_000], 1.0),  # One kernel in two steps was interrupted for 2 ms: 1 ms per step.
        ([350_000, 350_000], 0.0),  # This kernel takes longer, but by less than a time slice.
        ([100_000, 100_000], 0.0),
    ],
)
def test_single_kernels_that_take_milliseconds_longer_were_delayed(took_ns: list[int], expected: float) -> None:
    shared = kernels({MATMUL: 100_000.0}, *[(MATMUL, i * 10**7, ns) for i, ns in enumerate(took_ns)])
    own = kernels({MATMUL: 100_000.0}, (MATMUL, 0, 100_000))
    shared.ops.loc[1, "step"] = 2
    assert interrupted_ms(shared, np.array([1, 2], np.int32), shortest_quiet_ns([shared, own])) == pytest.approx(expected)


def test_gpu_with_longer_kernels_is_slow_and_not_interrupted() -> None:
    slow = kernels({MATMUL: 1_400_000.0}, (MATMUL, 0, 1_400_000))
    own = kernels({MATMUL: 1_000_000.0}, (MATMUL, 0, 1_000_000))
    assert interrupted_ms(slow, np.array([1], np.int32), shortest_quiet_ns([slow, own])) == 0.0

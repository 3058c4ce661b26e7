"""Tests of kernel work without the slowdown by waiting communication."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.ranks.contention import Shape
from sawtooth.analysis.ranks.stragglers.communication_slowdown import without_communication_slowdown
from sawtooth.analysis.ranks.stragglers.own_time import WORK, OwnTime, OwnTimePart


def rank(work_ns: float, quiet: dict[Shape, tuple[float, int]], loud_ns: dict[Shape, float] | None = None) -> OwnTime:
    """Return a rank with two steps of ``work_ns``; its loud kernels take ``loud_ns`` per step."""
    loud = {shape: (np.full(2, ns), np.full(2, 20.0)) for shape, ns in (loud_ns or {}).items()}
    ns = np.full(2, work_ns)
    return OwnTime((1, 2), (OwnTimePart(WORK, ns, 0.08 * ns),), quiet, loud, (), (), (), {}, 0.0)


def work_of(ranks: list[OwnTime]) -> list[float]:
    return [float(part.ns.mean()) for item in without_communication_slowdown(ranks) for part in item.parts]


LARGE = rank(2_700, {("gemm", "96"): (150, 10), ("add", "96"): (60, 20)})


@pytest.mark.parametrize(
    ("loud_ns", "expected"),
    [
        (1_600, 1_800),  # The products take two thirds of the other rank's time, so all kernels do.
        (900, 1_800),
        (800, 1_800),  # Exactly the usual time.
        (700, 1_700),  # Work is only removed.
        (3_000, 2_500),  # Waiting communication slows kernels at most to twice their time.
    ],
)
def test_loud_kernels_of_another_batch_size_count_as_the_quiet_ones(loud_ns: float, expected: float) -> None:
    small = rank(1_000 + loud_ns, {("gemm", "64"): (100, 10)}, {("add", "64"): loud_ns})
    assert work_of([small, LARGE]) == pytest.approx([expected, 2_700])


def test_a_loud_kernel_counts_as_the_same_kernel_of_another_rank() -> None:
    same = rank(3_500, {("gemm", "96"): (150, 10)}, {("add", "96"): 2_000})
    assert work_of([same, LARGE]) == pytest.approx([2_700, 2_700])


def test_other_numbers_of_kernels_show_no_ratio() -> None:
    small = rank(2_600, {("gemm", "64"): (100, 9)}, {("add", "64"): 1_600})
    assert work_of([small, LARGE]) == pytest.approx([2_600, 2_700])

"""Tests of throughput for runs whose steps do different work, computed by hand."""

from __future__ import annotations

import pytest

from sawtooth.analysis.compare.throughput import Throughput, throughput
from sawtooth.ingest.manifest import UserFacts
from tests.support.run_results import run_of, side

MS = 1_000_000


def between(samples_a: float | None, samples_b: float | None, **metrics: float) -> Throughput | None:
    """Return the throughput of a 100 ms step with ``samples_a`` against a 160 ms step with ``samples_b``.

    Each side has 30 steps.
    """
    a, b = (
        run_of(
            sign * 16,
            ledger=(("other_compute", None, ms * 30 * MS, None),),
            counted=30,
            facts=UserFacts(samples_per_step=samples),
            metrics=metrics,
        )
        for sign, ms, samples in (("a", 100, samples_a), ("b", 160, samples_b))
    )
    return throughput([a], [b], side(a).measured, side(b).measured)


def test_twice_the_work_in_1_6_times_the_time_is_25_percent_more_per_second() -> None:
    found = between(64, 128)
    assert found is not None and (found.unit, found.a, found.b) == ("samples", pytest.approx(640), pytest.approx(800))
    assert found.ratio == pytest.approx(1.25)
    # A's 64 samples take B 80 ms instead of 100.
    assert found.verdict.word == "faster"


def test_equal_work_is_compared_by_step_time() -> None:
    assert between(64, 64) is None and between(64, 64.5) is None  # 0.8 % apart
    assert between(64, None) is None and between(None, None) is None


def test_without_samples_on_both_sides_flops_count() -> None:
    assert between(64, None, flops_per_step=1e12) is None  # the same on both

"""Tests of throughput for runs whose steps do different work, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sawtooth.analysis.compare.throughput import Throughput, throughput
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.host import HostOperator, HostWork
from sawtooth.analysis.run.model import RunResult
from sawtooth.ingest.manifest import Manifest, UserFacts
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
    assert between(64, None, flops_per_step=1e12) is None  # The same on both.


def on_the_cpu(batches: tuple[int, int], calls: tuple[int, int]) -> Throughput | None:
    """Return the throughput of a 100 ms step against a 160 ms step on a CPU, by the loader's batches.

    A step calls the product ``calls`` times.
    """
    runs = []
    for sign, ms, batch, called in zip("ab", (100, 160), batches, calls, strict=True):
        run = run_of(sign * 16, ledger=(("other_compute", None, ms * 30 * MS, None),), counted=30)
        operators = (HostOperator("aten::addmm", 1.0, called), HostOperator("aten::select", 1.0, batch))
        host = HostWork(30, Reading(float(ms)), 0.0, 2.0, ms - 2.0, operators, ())
        runs.append((replace(run, host=host, manifest=_with_batch(run, batch)), side(run).measured))
    (a, measured_a), (b, measured_b) = runs
    return throughput([replace(a, lead=None)], [replace(b, lead=None)], measured_a, measured_b)


def _with_batch(run: RunResult, batch: int) -> Manifest:
    return msgspec.structs.replace(run.manifest, facts=UserFacts(loader_batch=float(batch)))


def test_runs_on_a_cpu_are_compared_by_the_samples_of_their_loaders() -> None:
    found = on_the_cpu((64, 512), (2, 2))
    assert found is not None and (found.unit, found.a, found.b) == ("samples", pytest.approx(640), pytest.approx(3200))
    assert found.verdict.word == "faster"
    assert on_the_cpu((64, 64), (2, 2)) is None


def test_batches_are_not_compared_if_one_step_has_more_micro_batches() -> None:
    assert on_the_cpu((64, 512), (16, 2)) is None

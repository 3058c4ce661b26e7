"""Tests of the ledger of ranks that wait for each other's hosts or GPUs, in generated jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import LAUNCHES, Planted, job
from tests.support.without_findings import analyse_without_findings

# The recorded host of rank 0 needs 9 ms for its 20 launches, that of rank 1 needs 7 ms. Each launched kernel takes 2 µs.
UNEVEN_HOSTS = {0: 450.0, 1: 350.0}
EVEN_HOSTS = {0: 10.0, 1: 10.0}
IN_TURN_US = {0: 1_000.0, 1: 1_000.0}  # In each step, one of the two GPUs computes 1 ms longer than the other.
LAUNCHED_MS = LAUNCHES * 0.002
SMALL_MS = 0.05  # The latencies of a step: its end, and the delays before its kernels.


def ranks_of(folder: Path, planted: Planted) -> list[RankResult]:
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(job(2, 2, planted, steps=9))]
    library = Library(DataFolder(folder / "data").create())
    (run,) = ingest_into_runs(library.folder, [(path, path.name) for path in paths]).runs
    result = analyse_without_findings(run, library)
    assert result.communication is not None and result.communication.stragglers == ()
    return sorted(result.ranks, key=lambda rank: rank.rank or 0)


def waits_of(rank: RankResult) -> tuple[float, float]:
    """Return the time that a rank's GPU waits for its own host and for other ranks, in ms per step."""
    own = sum(row.ms_per_step_unprofiled_est or 0.0 for row in rank.ledger if row.owner == "idle")
    others = sum(row.ms_per_step_unprofiled_est or 0.0 for row in rank.ledger if row.cause == "comm_wait")
    return own, others


def test_ranks_that_wait_for_each_others_gpu_do_not_wait_for_launches(tmp_path: Path) -> None:
    """Each rank waits 1 ms in every second step, and each host launches for 0.2 ms."""
    for rank in ranks_of(tmp_path, Planted(launch_us=EVEN_HOSTS, own_kernel_us=IN_TURN_US, in_turn=2)):
        own_ms, others_ms = waits_of(rank)
        assert others_ms == pytest.approx(0.5, abs=SMALL_MS)
        assert own_ms == pytest.approx(0.2 - LAUNCHED_MS, abs=SMALL_MS)


def test_hosts_that_launch_while_the_gpus_compute_do_not_limit_the_step(tmp_path: Path) -> None:
    """Each rank waits 1 ms in every second step.

    The hosts launch for 0.7 or 0.6 ms while their GPU computes for 1 ms or more. If hosts were three times as slow, their
    launches would fill a rank's whole wait, and the step would not become longer.
    """
    planted = Planted(launch_us={0: 35.0, 1: 30.0}, runs_ahead=True, own_kernel_us=IN_TURN_US, in_turn=2)
    for rank in ranks_of(tmp_path, planted):
        own_ms, others_ms = waits_of(rank)
        assert others_ms == pytest.approx(0.5, abs=SMALL_MS)
        assert own_ms == pytest.approx(0.0, abs=SMALL_MS)


def test_a_wait_for_an_equally_slow_host_is_time_of_launches(tmp_path: Path) -> None:
    """Recording slows rank 0's host by 2 ms per step. In the run, both hosts limit the step."""
    slowed, other = (waits_of(rank) for rank in ranks_of(tmp_path, Planted(launch_us=UNEVEN_HOSTS)))
    assert slowed == pytest.approx((9.0 - LAUNCHED_MS, 0.0), abs=SMALL_MS)
    assert other == pytest.approx((9.0 - LAUNCHED_MS, 0.0), abs=SMALL_MS)


def test_a_wait_for_a_host_and_a_gpu_is_divided(tmp_path: Path) -> None:
    """A step takes 9 + 2 ms if rank 0 computes longer, and otherwise 9 + 1 ms: 10.5 ms on average.

    With equal hosts, a step of 10.5 ms has 8.5 ms of launches, and each rank waits 1 ms in every second step.
    """
    slowed, other = (
        waits_of(rank) for rank in ranks_of(tmp_path, Planted(launch_us=UNEVEN_HOSTS, own_kernel_us=IN_TURN_US, in_turn=2))
    )
    assert slowed == pytest.approx((9.0 - LAUNCHED_MS, 0.0), abs=SMALL_MS)
    assert other == pytest.approx((8.5 - LAUNCHED_MS, 0.5), abs=SMALL_MS)

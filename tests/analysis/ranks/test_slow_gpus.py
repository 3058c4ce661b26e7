"""Tests of ranks whose GPU is slow, or that have more work or longer waits for data than the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.analysis.ranks import job as one_job
from sawtooth.analysis.ranks.communication import split_communication
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import BASE_NS
from tests.support.job_communication import communication_of, communication_of_job
from tests.support.without_findings import analyse_without_findings


def test_the_same_kernels_with_other_shapes_are_more_work(tmp_path: Path) -> None:
    # Rank 1 computes 1.4 times as long, and its kernel after the collective has a larger grid.
    traces = job(2, 2, Planted(slow_gpu={1: 1.4}))
    for event in traces[1].events:
        if event.get("args", {}).get("grid") == [99, 1, 1]:
            event["args"]["grid"] = [139, 1, 1]
    (late,) = communication_of(tmp_path, traces).stragglers
    assert (late.ranks, late.reason, late.kernel_ratio) == ((1,), "work", None)
    assert late.own_ms == pytest.approx(0.4, abs=0.02)
    assert late.gain_ms == pytest.approx(0.2, abs=0.02)  # Divided equally, each rank has half of it.


@pytest.mark.sweep(1)
@pytest.mark.parametrize("ranks", [2, 8])
def test_kernels_of_only_one_rank_are_removable_work(tmp_path: Path, ranks: int) -> None:
    (late,) = communication_of_job(
        tmp_path, Planted(own_kernel_us={1: 400.0}), ranks=ranks, per_host=ranks, mesh=False
    ).stragglers
    assert (late.ranks, late.reason) == ((1,), "work")
    assert late.own_ms == pytest.approx(0.4, abs=0.02)
    assert late.gain_ms == pytest.approx(0.4, abs=0.02)


@pytest.mark.slow
def test_each_of_many_ranks_takes_its_share_of_common_work(tmp_path: Path) -> None:
    # Of eight ranks, rank 1 computes 0.4 ms longer than the others, with other shapes. Divided equally, each rank has
    # 0.05 ms more.
    traces = job(8, 8, Planted(slow_gpu={1: 1.4}))
    for event in traces[1].events:
        if event.get("args", {}).get("grid") == [99, 1, 1]:
            event["args"]["grid"] = [139, 1, 1]
    (late,) = communication_of(tmp_path, traces).stragglers
    assert (late.ranks, late.reason) == ((1,), "work")
    assert late.gain_ms == pytest.approx(0.35, abs=0.02)


# Rank 1 has 0.45 ms more kernel time. Rank 0's host takes 0.5 ms longer and hides it. Hosts of one job differ by more under the profiler.
HIDDEN = Planted(host_us={0: 2_000.0, 1: 1_500.0}, slow_gpu={1: 1.45})


def test_kernel_work_hidden_by_replayed_hosts_is_an_upper_bound(tmp_path: Path) -> None:
    (late,) = communication_of_job(tmp_path, HIDDEN, ranks=2, per_host=2, mesh=False).stragglers
    assert (late.ranks, late.at_most) == ((1,), True)
    assert late.own_ms == pytest.approx(0.45, abs=0.02)
    assert 0.05 < late.gain_ms < 0.45


def test_a_measured_step_gives_the_speed_of_the_hosts(tmp_path: Path) -> None:
    # At 65 % of the replayed hosts' time, rank 1 is the late one, by 0.12 ms and more.
    traces = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(job(2, 2, HIDDEN))]
    data = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(data, [(path, path.name) for path in traces]).runs
    library = Library(data)
    ranks, communication = split_communication(library, analyse_without_findings(run, library).ranks)
    assert communication is not None
    replayed = one_job.replay_job(library, ranks, communication, sampled=True)
    assert replayed is not None
    unmeasured = replayed.with_stragglers(None)
    assert unmeasured.step_ms is not None
    assert unmeasured.run_speed_step_ms == unmeasured.step_ms
    measured_ms = 0.8 * unmeasured.step_ms
    found = replayed.with_stragglers(measured_ms)
    assert found.step_ms == unmeasured.step_ms
    assert found.run_speed_step_ms == pytest.approx(measured_ms, rel=0.03)
    (late,) = found.stragglers
    assert (late.ranks, late.at_most) == ((1,), False)


def test_a_slow_gpu_runs_equal_kernels_longer(tmp_path: Path) -> None:
    (late,) = communication_of_job(tmp_path, Planted(slow_gpu={2: 1.4})).stragglers
    assert (late.ranks, late.reason) == ((2,), None)
    # The kernels after the collectives take as long as those of the other ranks.
    assert late.kernel_ratio == pytest.approx(1.4, rel=0.35)
    assert late.gain_ms == pytest.approx(0.4, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("throttle", "reason"), [(0, "clock"), (4, "power")])
def test_clock_or_power_limit_in_telemetry_is_the_reason_of_a_slow_gpu(tmp_path: Path, throttle: int, reason: str) -> None:
    """GPU 2 runs at 1,410 MHz instead of 1,980, 1.4 times slower. UUIDs match telemetry to GPUs."""
    traces = job(4, 4, Planted(slow_gpu={2: 1.4}))
    lines = [{"meta": True, "gpus": [{"gpu": g, "name": "NVIDIA H200", "uuid": f"GPU-{g}"} for g in range(4)]}]
    for i in range(60):
        at = {"t_ns": BASE_NS - (i + 1) * 10**8}
        for g in range(4):
            slow = g == 2
            lines.append(
                {**at, "gpu": g, "gpu_util": 99, "sm_mhz": 1410 if slow else 1980, "throttle": throttle if slow else 0}
            )
    (tmp_path / "nvml.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    paths = [tmp_path / "nvml.jsonl"]
    for rank, trace in enumerate(traces):
        trace.top["gpu_uuids"] = {"0": f"GPU-{rank}"}
        paths.append(trace.write(tmp_path / f"{rank}.json"))
    data = DataFolder(tmp_path / "data").create()
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    result = analyse(run, Library(data))
    assert result.communication is not None
    (late,) = result.communication.stragglers
    assert (late.ranks, late.reason) == ((2,), reason)
    found = next(f for f in result.findings if f.rule == "straggling-rank")
    assert found.title.endswith({"clock": "a lower GPU clock", "power": "its GPU's power limit"}[reason])


@pytest.mark.parametrize(("rows", "reason"), [(4096, None), (5734, "work")])
def test_products_with_other_inputs_are_more_work_in_an_equal_grid(tmp_path: Path, rows: int, reason: str | None) -> None:
    # Persistent kernels have one grid for all sizes. Rank 1 computes 1.4 times as long: with equal inputs, its GPU is slow.
    traces = job(2, 2, Planted(slow_gpu={1: 1.4}))
    for rank, trace in enumerate(traces):
        products = {e["args"]["correlation"] for e in trace.events if e["args"].get("grid") == [500, 1, 1]}
        for call in [e for e in trace.events if e["name"] == "cudaLaunchKernel" and e["args"]["correlation"] in products]:
            inputs = [[rows if rank == 1 else 4096, 4096], [4096, 4096]]
            trace.op("aten::mm", call["ts"] - 1, call["ts"] + call["dur"] + 1, inputs, ["c10::BFloat16"] * 2)
    (late,) = communication_of(tmp_path, traces).stragglers
    assert (late.ranks, late.reason, late.kernel_ratio is None) == ((1,), reason, reason == "work")


def test_a_late_loader_is_compared_with_the_short_waits_of_its_peers(tmp_path: Path) -> None:
    # Rank 1 loads for 2 ms, the others for 0.3 ms, which is below the limit of a long gap (0.5 ms).
    (late,) = communication_of(tmp_path, job(2, 2, Planted(loader_us={0: 300.0, 1: 2000.0}))).stragglers
    assert (late.ranks, late.reason) == ((1,), "data_wait")
    assert late.own_ms == pytest.approx(1.7, rel=0.02)

"""Tests of process groups and pipelines of a job's parallelism, on hand-made jobs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.knowledge.hardware import link_of
from sawtooth.analysis.ranks.groups import RankLocation, group_uses, parallelisms
from sawtooth.analysis.ranks.heatmap import waits_between
from sawtooth.analysis.ranks.pipeline import chunks_of, pipeline_of, shortest_ms, stages_of
from sawtooth.analysis.run.job import SEND_RECEIVE, Communication, Pipeline, passes_on
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace
from tests.support.pipelined import pipelined
from tests.support.without_findings import analyse_without_findings


def analysed(folder: Path, traces: list[ChromeTrace]) -> tuple[RunResult, Communication]:
    data = DataFolder(folder / "data").create()
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(traces)]
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    result = analyse_without_findings(run, Library(data))
    assert result.communication is not None
    return result, result.communication


def test_groups_of_one_kind_share_a_row_with_bandwidth_and_link(tmp_path: Path) -> None:
    # Two hosts of two ranks reduce within the host and then between hosts: 4 kB in 100 µs each, 0.04 GB/s on the wire
    # of a ring of two.
    _, found = analysed(tmp_path, job(4, 2, Planted(loader_us={3: 800.0}), mesh=True))
    by_place = {use.within_host: use for use in found.groups}
    assert set(by_place) == {True, False}
    for use in found.groups:
        assert (use.parallelism, use.groups, use.group_size, use.kinds) == ("dp", 2, 2, ("allreduce",))
        assert use.calls_per_step == pytest.approx(1.0)
        assert (use.bytes_per_step, use.smallest_bytes, use.largest_bytes) == (4000, 4000, 4000)
        assert use.bus_gb_s == pytest.approx(0.04, rel=0.01)
        assert use.algorithm_gb_s == pytest.approx(0.04, rel=0.01)
    assert (by_place[True].link, by_place[True].link_gb_s) == ("NVLink 4", 450)
    assert by_place[False].link_gb_s == 50
    # Rank 2 waits 0.8 ms for rank 3 within their host. Then 0 and 1 wait equally long between the hosts. Neither is part of the transfers.
    for use in found.groups:
        assert use.transfer_ms == pytest.approx(use.exposed_ms) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("cut", [0, 4])
def test_cut_trace_counts_fewer_steps_and_keeps_the_means(cut: int) -> None:
    """There are nine steps of one all-reduce of 4 kB in 100 µs. Rank 1 counts ``cut`` of them."""
    counts = (9, cut)
    collectives = pd.DataFrame(
        {
            "collective": step, "position": position, "step": f"ProfilerStep#{step}", "counted": step < counts[position], "name": "allreduce",
            "group": "0 [0, 1]", "group_size": 2, "description": None, "forward": False, "ranks": 2, "bytes": 4000, "dur_ns": 100_000,
            "shortest_ns": 100_000, "wait_ns": 0, "exposed_ns": 100_000, "exposed_wait_ns": 0,
        }
        for step in range(9)
        for position in range(2)
    )  # fmt: skip
    (use,) = group_uses(collectives, [RankLocation("node", rank, None, steps) for rank, steps in enumerate(counts)])
    assert (use.calls_per_step, use.bytes_per_step) == (1.0, 4000)
    assert (use.transfer_ms, use.exposed_ms) == (pytest.approx(0.1), pytest.approx(0.1))


def ranks_of(result: RunResult, schedule: Pipeline) -> list[list[int | None]]:
    return [[result.ranks[position].rank for position in stage] for stage in schedule.stages]


def rows(
    name: str,
    group: str = "3 [0, 1]",
    description: str | None = None,
    *,
    forward: bool = False,
    calls: int = 4,
    **others: object,
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "collective": range(calls), "name": name, "group": group, "description": description, "forward": forward,
            "shortest_ns": 1000, "step": "ProfilerStep#1", "bytes": 8000, "serves": None, "sends": 0, "receives": 0, **others,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("collectives", "kind"),
    [
        (rows("allreduce"), "dp"),
        (rows("allreduce", forward=True), "tp"),
        (rows("allreduce", forward=True, calls=1), "dp"),  # a loss
        (rows("allgather", forward=True), "dp"),  # These are weights, which FSDP also gathers in the forward pass.
        (rows("reducescatter", forward=True), "tp"),
        (rows("alltoall"), None),  # The exchange may be of experts, embeddings or contexts.
        (rows("alltoall", forward=True, serves="ep"), "ep"),
        (rows("alltoall", forward=True, serves="cp"), "cp"),
        # Keys and values are gathered, and their gradients are sent back.
        (pd.concat([rows("allgather", forward=True), rows("alltoall", shortest_ns=2000)], ignore_index=True), "cp"),
        (pd.concat([rows("allgather", forward=True), rows("alltoall", shortest_ns=2000, bytes=9000)], ignore_index=True), None),
        (rows("sendrecv", sends=1), "pp"),
        (rows("sendrecv", sends=1, receives=1), None),  # All ranks exchange, as in a ring.
        (rows("sendrecv", sends=1, receives=1, serves="cp"), "cp"),
        (rows("sendrecv", sends=1, receives=1, description="mesh_cp"), "cp"),
        (rows("broadcast"), None),
        (rows("allreduce", description="mesh_tp"), "tp"),
        (rows("allreduce", description="TENSOR_MODEL_PARALLEL_GROUP"), "tp"),
        (rows("allreduce", description="PIPELINE_MODEL_PARALLEL_GROUP"), "pp"),
        (rows("allgather", description="mesh_shard"), "dp"),
        (rows("alltoall", description="mesh_cp"), "cp"),
        (rows("allgather", description="mesh_dp_shard_cp"), "dp"),  # Weights, divided over data and contexts.
        (rows("allreduce", description="EXPERT_DATA_PARALLEL_GROUP"), "dp"),
        (rows("allreduce", description="DATA_PARALLEL_GROUP_WITH_CP"), "dp"),
        (rows("alltoall", description="EXPERT_MODEL_PARALLEL_GROUP"), "ep"),
        (rows("allreduce", description="default_pg", forward=True), "tp"),
        (rows("allreduce", group="expert_group [0, 1]"), "ep"),
        (rows("allreduce", description="deposit"), "dp"),  # A name without a known word.
    ],
)
def test_parallelism_of_a_group_by_name_or_collectives(collectives: pd.DataFrame, kind: str | None) -> None:
    assert parallelisms(collectives.assign(key=0)).tolist() == [kind]


def test_waits_between_ranks_are_summed_by_host(tmp_path: Path) -> None:
    result, found = analysed(tmp_path, job(4, 2, Planted(loader_us={3: 800.0})))
    level, table = waits_between(result.ranks, found)
    assert level == "host"
    waits = {(row.waiter, row.late): row.wait_ms for row in table.itertuples()}
    assert waits == {
        ("node0000", "node0001"): pytest.approx(0.8, abs=0.01),
        ("node0001", "node0001"): pytest.approx(0.4, abs=0.01),  # One of its two ranks.
    }


def test_three_equal_stages_and_two_microbatches_wait_half_of_the_step(tmp_path: Path) -> None:
    """A stage works 3 x 300 µs for each of two microbatches, 1.8 ms.

    Four turns of 0.9 ms make a step of 3.6 ms and some transfers.
    """
    result, found = analysed(tmp_path, pipelined([300, 300, 300], 2))
    schedule = found.schedule
    assert schedule is not None
    assert (ranks_of(result, schedule), schedule.microbatches, schedule.schedule) == ([[0], [1], [2]], 2, None)
    assert schedule.stage_ms == pytest.approx((1.8, 1.8, 1.8), rel=0.02)
    assert schedule.ideal_share == pytest.approx(0.5)
    assert schedule.bubble_share == pytest.approx(0.5, abs=0.05)
    assert schedule.fill_ms == pytest.approx(1.8, rel=0.03)
    assert schedule.imbalance_ms == pytest.approx(0.0, abs=0.03)
    assert schedule.fill_ms + schedule.imbalance_ms + schedule.rest_ms == pytest.approx(schedule.step_ms - 1.8, rel=0.02)
    assert [(use.parallelism, use.groups, use.group_size) for use in found.groups] == [("pp", 2, 2)]
    assert found.stragglers == ()


def test_a_slow_last_stage_is_imbalance_and_the_first_stage_shows_the_schedule(tmp_path: Path) -> None:
    # With 0.9 and 1.8 ms for each of four microbatches, stages work 3.6 and 7.2 ms: at least (3.6 + 7.2 + 3 · 7.2) / 4
    # = 8.1 ms a step, and 6.75 for equal stages.
    result, found = analysed(tmp_path, pipelined([300, 600], 4))
    schedule = found.schedule
    assert schedule is not None
    assert (ranks_of(result, schedule), schedule.microbatches, schedule.schedule) == ([[0], [1]], 4, "GPipe")
    assert schedule.imbalance_ms == pytest.approx(8.1 - 6.75, rel=0.03)
    assert shortest_ms(schedule.stage_ms, 4) == pytest.approx(8.1, rel=0.02)


def test_interleaved_pipeline_is_recognised_by_its_sends(tmp_path: Path) -> None:
    """With two chunks a stage and 100 + 200 µs for each of 4 microbatches, a stage works 2.4 ms.

    Filling and draining take (3 - 1) / (2 · 4 + 3 - 1) of the step.
    """
    result, found = analysed(tmp_path, pipelined([100, 100, 100], 4, chunks=2))
    schedule = found.schedule
    assert schedule is not None
    assert (ranks_of(result, schedule), schedule.microbatches, schedule.chunks, schedule.schedule) == (
        [[0], [1], [2]],
        4,
        2,
        "interleaved",
    )
    assert schedule.stage_ms == pytest.approx((2.4, 2.4, 2.4), rel=0.05)
    assert schedule.ideal_share == pytest.approx(0.2)
    assert schedule.fill_ms == pytest.approx(2.4 * 2 / 8, rel=0.05)


def test_chunks_of_two_stages_come_from_the_names_of_their_passes(tmp_path: Path) -> None:
    _, found = analysed(tmp_path, pipelined([100, 100], 4, steps=3, chunks=2, named=True))
    schedule = found.schedule
    assert schedule is not None
    assert (schedule.microbatches, schedule.chunks, schedule.schedule) == (4, 2, "interleaved")


@pytest.mark.parametrize(("forward", "chunks"), [(False, 1), (True, None)])
def test_last_of_two_stages_sends_forward_only_with_several_chunks(forward: bool, chunks: int | None) -> None:
    sent = rows(SEND_RECEIVE, sends=1, position=[0, 1, 0, 1]).assign(forward=[True, forward, True, False])
    assert chunks_of(sent, [[0], [1]]) == chunks


def test_a_ring_of_two_ranks_is_not_a_pipeline() -> None:
    """Both ranks of ring attention send keys and values and receive them in each exchange."""
    ring = rows(SEND_RECEIVE, sends=1, receives=1, position=[0, 1, 0, 1], counted=True, start_ns=range(4))
    assert pipeline_of(ring, [0, 0], 10.0, [[0], [1]], [5.0, 5.0]) is None
    assert not passes_on(ring)
    assert passes_on(ring.assign(receives=[0, 1, 1, 1]))


def test_equal_sends_in_a_ring_are_not_a_known_schedule() -> None:
    rows = pd.DataFrame(
        {"position": [0, 1, 2] * 4, "step": "1", "counted": True, "name": SEND_RECEIVE, "sends": 1, "start_ns": range(12)}
    )
    stages = [[0], [1], [2]]
    assert stages_of(rows, [0, 0, 0], stages) == [(0,), (1,), (2,)]
    assert chunks_of(rows, stages) is None


@pytest.mark.slow
def test_peers_of_unnamed_sends_are_known_only_between_two_ranks(tmp_path: Path) -> None:
    _, found = analysed(tmp_path, pipelined([300, 300], 2, peers=False))
    assert found.schedule is not None and found.schedule.microbatches == 2
    (tmp_path / "three").mkdir()
    _, found = analysed(tmp_path / "three", pipelined([300, 300, 300], 2, peers=False))
    assert found.schedule is None
    assert found.rows.empty and found.unmatched > 0


def test_a_link_is_named_for_every_server_gpu_and_one_direction() -> None:
    assert [(name, link.name, link.gb_s) for name in ("H200 SXM", "A100 SXM4 80GB", "A100 PCIe 80GB", "V100 SXM2", "B200") if (link := link_of(name, "gpus"))] == [
        ("H200 SXM", "NVLink 4", 450), ("A100 SXM4 80GB", "NVLink 3", 300), ("A100 PCIe 80GB", "PCIe 4 x16", 31.5),
        ("V100 SXM2", "NVLink 2", 150), ("B200", "NVLink 5", 900),
    ]  # fmt: skip
    assert link_of("GeForce RTX 4090", "hosts") is None

"""Tests of waits between ranks: collectives matched over a run's ranks, with the arithmetic."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.trust import unsure_of_waits
from sawtooth.analysis.ranks.communication import collective_table
from sawtooth.analysis.run.job import Communication
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.view import causes_of, open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.sql import run_query
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.words.run import first_line
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, ChromeTrace
from tests.support.paths import RECORDINGS
from tests.support.prepared import prepared_result
from tests.support.without_findings import analyse_without_findings

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP_US = 1000


def rank_trace(rank: int, world: int, begins: list[float], end: float, clock_us: float = 0, steps: int = 4) -> ChromeTrace:
    """Return a rank's trace with 300 µs of computation from 40 µs on and all-reduces in each step.

    There is one all-reduce per entry of ``begins``. The first ends at ``end``, each further one 50 µs later.
    """
    trace = ChromeTrace(
        distributedInfo={"backend": "nccl", "rank": rank, "world_size": world},
        baseTimeNanoseconds=BASE_NS + round(clock_us * 1000),
    )
    for at in trace.each_step(steps, STEP_US, first=3):
        trace.launch((at + 20, at + 30), (at + 40, at + 340), "void at::native::vectorized_elementwise_kernel<4, Add>(int)")
        for i, begin in enumerate(begins):
            reported = {
                "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000,
                "Group size": world, "Process Group Name": "0", "Process Group Ranks": str(list(range(world))),
            }  # fmt: skip
            trace.launch((at + 35 + 2 * i, at + 36 + 2 * i), (at + begin, at + end + 50 * i), NCCL, stream=17 + i, **reported)
    return trace


def analysed(
    folder: Path, traces: list[ChromeTrace], analysis: Callable[[Manifest, Library], RunResult] = analyse_without_findings
) -> RunResult:
    data = DataFolder(folder / "data").create()
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(traces)]
    run = ingest_into_runs(data, [(path, path.name) for path in paths]).runs[0]
    return analysis(run, Library(data))


def split_of(result: RunResult) -> dict[int | None, dict[str | None, int]]:
    return {r.rank: {row.cause: row.ns for row in r.ledger if row.owner == "exposed_comm"} for r in result.ranks}


def test_communication_outside_the_steps_has_no_backward_pass(tmp_path: Path) -> None:
    trace = rank_trace(0, 2, [], 500)
    nccl = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1, "Out msg nelems": 1, "Group size": 2}
    trace.launch((9000, 9001), (9100, 9200), NCCL, stream=17, **nccl)
    (rank,) = analysed(tmp_path, [trace]).ranks
    assert sum(row.ns for row in rank.ledger if row.owner == "exposed_comm") in (0, 100_000)


def test_two_ranks_by_hand(tmp_path: Path) -> None:
    # Rank 0's kernel runs from 400 to 800 and rank 1's from 700 to 800. The transfer takes 100 µs, and rank 0 waits 300
    # of its 400.
    result = analysed(tmp_path, [rank_trace(0, 2, [400], 800), rank_trace(1, 2, [700], 800)])
    counted = len(result.ranks[0].counted)
    assert split_of(result) == {
        0: {"comm_wait": 300_000 * counted, "comm_transfer": 100_000 * counted},
        1: {"comm_transfer": 100_000 * counted},
    }
    found = result.communication
    assert found is not None
    late = max(found.ranks, key=lambda waits: waits.late_ms)
    assert (late.rank, late.last_share, late.late_ms) == (1, 1.0, pytest.approx(0.3))
    # Its GPU and its host take no longer than those of rank 0, so nothing shows that it loses time.
    assert not found.stragglers
    row = collective_table(found, counted).iloc[0]
    assert (row["bytes"], row["calls_per_step"], row["transfer_ms"]) == (4000, 1, pytest.approx(0.1))
    # both ranks' kernels are exposed: 400 and 100 µs; the waits are 300 µs of rank 0
    assert (row["ms_per_step"], row["exposed_ms_per_step"], row["wait_ms_per_step"]) == pytest.approx((0.25, 0.25, 0.15))
    assert row["bus_gb_s"] == pytest.approx(0.04)  # 4 kB in 100 µs; 2 · (2 − 1) / 2 = 1


def test_a_job_without_matched_collectives_has_an_empty_table() -> None:
    """A reduced job with one representative has groups, but no collectives that match."""
    table = collective_table(Communication(pd.DataFrame(), (), 0), steps=3)
    assert table.empty and {"name", "exposed_ms_per_step"} <= set(table.columns)


@pytest.mark.slow
def test_gaps_and_causes_of_a_rank_match_the_ledger(tmp_path: Path) -> None:
    """In a recording by itself exposed communication has no cause.

    In a rank of a run it is divided at the arrival of the last rank.
    """
    result = analysed(tmp_path, [rank_trace(0, 2, [400], 800), rank_trace(1, 2, [700], 800)])
    rank = next(r for r in result.ranks if r.rank == 0)
    counted = len(rank.counted)
    library = Library(DataFolder(tmp_path / "data"))
    with library.open(rank.recording_id) as recording:
        sql = "SELECT cause, sum(end_ns - start_ns)::BIGINT, count(*) FROM gaps WHERE owner = 'exposed_comm' GROUP BY 1 ORDER BY 1"
        assert recording.rows(sql) == [("unattributed", 400_000 * counted, counted)]
        everything = recording.rows("SELECT sum(end_ns - start_ns), count(*) FROM gaps")[0]
    with open_rank(library, rank) as view:
        recording = view.recording
        assert recording.rows(sql) == [("comm_transfer", 100_000 * counted, counted), ("comm_wait", 300_000 * counted, counted)]
        assert recording.rows("SELECT sum(end_ns - start_ns), count(*) FROM gaps")[0] == (
            everything[0],
            everything[1] + counted,
        )
        causes = dict(recording.rows("SELECT cause, ns FROM causes WHERE owner = 'exposed_comm'"))
    assert causes == split_of(result)[0]
    asked = run_query(DataFolder(tmp_path / "data"), rank.recording_id, sql, causes=causes_of([rank])).rows
    # The SQL screen has the same numbers as the other screens.
    assert [tuple(row) for row in asked.to_numpy()] == [
        ("comm_transfer", 100_000 * counted, counted),
        ("comm_wait", 300_000 * counted, counted),
    ]


@pytest.mark.slow
def test_clock_offsets_do_not_change_the_result(tmp_path: Path) -> None:
    result = analysed(tmp_path, [rank_trace(0, 2, [400], 800), rank_trace(1, 2, [700], 800, clock_us=5_000_000)])
    assert split_of(result)[0]["comm_wait"] == 300_000 * len(result.ranks[0].counted)
    assert result.communication is not None
    assert result.communication.ranks[1].clock_offset_ns == 5_000_000_000


def test_single_rank_has_no_communication_split(tmp_path: Path) -> None:
    result = analysed(tmp_path, [rank_trace(0, 2, [400], 800)])
    assert result.communication is None
    assert set(split_of(result)[0]) == {"unattributed"}
    # 400 of 1000 µs are a collective without overlap. The sentence states this share, and that the run may be faster.
    assert result.lead is not None
    assert "40 % (400 µs) goes to communication not overlapped by compute" in first_line(result).replace("\xa0", " ")
    best = result.metrics["best_step_time_ms"]
    assert best.trust == "caution" and "In 400 µs of each step the GPU only communicates" in best.notes[0]


def test_only_possible_waits_are_in_doubt() -> None:
    # 5 % of 10 ms is 0.5 ms, which is not above the limit. A stopwatch's step time does not depend on waits in the profile.
    metrics = {"best_step_time_ms": Reading(10.0), "mfu": Reading(0.4), "gpu_busy_share": Reading(0.9)}
    assert unsure_of_waits(metrics, 0.5, "profile") == metrics
    assert unsure_of_waits(metrics, 5.0, "user") == metrics
    doubted = unsure_of_waits(metrics, 0.51, "profile")
    assert [doubted[key].trust for key in metrics] == ["caution", "caution", "ok"]


def test_finding_describes_the_transfer_of_the_lead_rank(tmp_path: Path) -> None:
    # Rank 0 communicates for 400 µs, of which it waits 300. The finding names the lead rank's transfer, 100 µs.
    result = analysed(tmp_path, [rank_trace(0, 2, [400], 800), rank_trace(1, 2, [700], 800)], analyse)
    assert result.lead is not None
    (found,) = [f for f in result.findings if f.rule == "exposed-communication"]
    rows = {row.cause: row.ms_per_step for row in result.lead.ledger if row.owner == "exposed_comm"}
    assert found.ceiling_ms_per_step == pytest.approx(rows["comm_transfer"]) == pytest.approx(0.1)
    assert found.title == "The GPU only communicates for 100 µs of each step"


def test_unnamed_collectives_that_end_together_are_one_group(tmp_path: Path) -> None:
    """Rank 2 arrives last, 300 µs after the others.

    In two groups, ranks 0 and 1 end half a millisecond before 2 and 3 in every other step, and nothing is matched.
    """

    def bare(rank: int, begin: float, ends: list[float]) -> ChromeTrace:
        trace = rank_trace(rank, 4, [begin], 800)
        kernels = [event for event in trace.events if event["name"] == NCCL]
        for k, event in enumerate(kernels):
            event["args"] = {name: event["args"][name] for name in ("device", "stream", "correlation")}
            event["dur"] += ends[k % 2]
        return trace

    (tmp_path / "one").mkdir()
    result = analysed(tmp_path / "one", [bare(rank, 700 if rank == 2 else 400, [0, 0]) for rank in range(4)])
    assert result.communication is not None
    assert {w.rank: round(w.wait_ms, 3) for w in result.communication.ranks} == {0: 0.3, 1: 0.3, 2: 0.0, 3: 0.3}
    (tmp_path / "two").mkdir()
    result = analysed(tmp_path / "two", [bare(rank, 400, [0, 0] if rank < 2 else [0, 500]) for rank in range(4)])
    assert result.communication is not None
    assert result.communication.rows.empty


def test_collectives_that_other_ranks_lack_stay_unknown(tmp_path: Path) -> None:
    result = analysed(tmp_path, [rank_trace(0, 2, [400, 400], 800), rank_trace(1, 2, [700], 800)])
    assert set(split_of(result)[0]) == {"unattributed"}
    assert result.communication is not None and result.communication.notes


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_order_of_the_ranks_does_not_matter_and_sums_are_exact(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    begins = [[rng.uniform(350, 790), rng.uniform(350, 790)] for _ in range(3)]
    seen = []
    data = DataFolder(tmp_path / "data").create()
    paths = [rank_trace(r, 3, begins[r], 800).write(tmp_path / f"{r}.json") for r in range(3)]
    for order in itertools.islice(itertools.permutations(paths), 0, 6, 2):
        (run,) = ingest_into_runs(data, [(path, path.name) for path in order]).runs
        data.manifest_file(run.id).unlink()  # Otherwise the next order would find it in the cache.
        result = analyse_without_findings(run, Library(data))
        for rank in result.ranks:
            assert sum(row.ns for row in rank.ledger) == rank.window_ns
        found = result.communication
        assert found is not None
        late = [straggler.ranks for straggler in found.stragglers]
        seen.append((split_of(result), late, {w.rank: (round(w.wait_ms, 9), w.last_share) for w in found.ranks}))
    assert seen[0] == seen[1] == seen[2]


def test_the_late_rank_of_a_real_run_is_named() -> None:
    """Rank 1's batch is 25 ms late every step.

    Nearly all of the other rank's exposed communication is waiting.
    """
    result = prepared_result(*sorted((RECORDINGS / "ddp_straggler").glob("*.trace.json.gz")))
    first = next(r for r in result.ranks if r.rank == 0)
    wait = sum(row.ms_per_step or 0 for row in first.ledger if row.owner == "exposed_comm" and row.cause == "comm_wait")
    assert wait == pytest.approx(25, rel=0.1)
    assert result.communication is not None
    (late,) = result.communication.stragglers
    assert (late.kind, late.ranks, late.reason) == ("rank", (1,), "python_host")
    assert late.own_ms == pytest.approx(25, abs=0.5)
    # By stopwatch, a step takes 31.7 ms, and 11.3 ms if no rank is late (tests/recordings/ddp_balanced).
    assert result.communication.step_ms == pytest.approx(31.7, rel=0.15)
    assert late.gain_ms == pytest.approx(31.7 - 11.3, rel=0.15)
    for rank in result.ranks:
        assert sum(row.ns for row in rank.ledger) == rank.window_ns


def test_balanced_ranks_have_no_straggler() -> None:
    result = prepared_result(*sorted((RECORDINGS / "ddp_balanced").glob("*.trace.json.gz")))
    assert result.communication is not None
    assert result.communication.stragglers == ()
    assert result.communication.step_ms == pytest.approx(11.26, rel=0.15)  # The stopwatch measured 11.26 ms.
    assert all(w.wait_ms < 0.5 for w in result.communication.ranks)

"""Tests of a job's step time: it is the same for every rank, whatever its own trace shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.ranks.job_step import ledger_at_job_step, marks_of_job
from sawtooth.analysis.run.job import EqualHostsStep
from sawtooth.analysis.run.model import LedgerRow, RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import BASE_NS
from tests.support.paths import RECORDINGS, SHARED
from tests.support.prepared import prepared_result

REAL_JOBS = ("ddp_buckets", "ddp_uneven", "fsdp_2gpu", "pp_2micro")


def read(folder: Path, paths: list[Path]) -> RunResult:
    data = DataFolder(folder / "data").create()
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    return analyse(run, Library(data))


def row(owner: str, cause: str | None, estimate_ms: float) -> LedgerRow:
    return LedgerRow(0, owner, cause, int(estimate_ms * 1e6), estimate_ms, estimate_ms, 0.1)


def estimated(ms: float) -> BestStepTime:
    return BestStepTime("estimate", Reading(ms), Reading(40.0), Reading(ms), 40.0)


@pytest.mark.parametrize(
    ("job_ms", "expected"),
    [
        # The rank needs 8 + 4 + 2 ms itself, so it waits 6 ms, however long it waits under the profiler.
        (20.0, [8.0, 4.0, 2.0, 6.0]),
        (14.0, [8.0, 4.0, 2.0, 0.0]),
        (
            11.0,
            [8.0, 2.0, 1.0, 0.0],
        ),  # The step is shorter than the rank's work and losses: the losses shrink from 4 + 2 to 3 ms, and the work stays.
    ],
)
def test_a_rank_waits_for_the_rest_of_the_job_step(job_ms: float, expected: list[float]) -> None:
    ledger = [
        row("other_compute", None, 8.0),
        row("idle", "launch_bound", 4.0),
        row("exposed_comm", "comm_transfer", 2.0),
        row("exposed_comm", "comm_wait", 25.0),
    ]
    found = ledger_at_job_step(ledger, estimated(job_ms))
    assert [item.ms_per_step_unprofiled_est for item in found] == pytest.approx(expected)
    assert [item.ms_per_step for item in found] == [item.ms_per_step for item in ledger]


def test_waits_for_hosts_that_are_equally_slow_are_launches() -> None:
    """The rank waits 20 ms by its replay, but only 1 ms with equally fast hosts.

    Its GPU is idle for 21 ms instead of 2 ms.
    """
    equal_hosts = EqualHostsStep(step_ms=34.0, wait_ms=1.0, idle_ms=21.0)
    ledger = [row("other_compute", None, 12.0), row("idle", "launch_bound", 2.0), row("exposed_comm", "comm_wait", 40.0)]
    work, launches, waits = ledger_at_job_step(ledger, estimated(34.0), equal_hosts)
    assert (work.ms_per_step_unprofiled_est, launches.ms_per_step_unprofiled_est) == pytest.approx((12.0, 21.0))
    assert waits.ms_per_step_unprofiled_est == pytest.approx(1.0)
    work, waits, launches = ledger_at_job_step([ledger[0], ledger[2]], estimated(34.0), equal_hosts)
    assert (launches.cause, launches.ms_per_step_unprofiled_est) == ("launch_bound", pytest.approx(21.0))


@pytest.mark.parametrize(("idle_ms", "expected"), [(1.0, (2.0, 20.0)), (2.0, (2.0, 20.0)), (12.0, (12.0, 10.0))])
def test_a_wait_is_time_of_launches_only_as_far_as_the_gpu_is_idle_for_longer(
    idle_ms: float, expected: tuple[float, float]
) -> None:
    ledger = [row("other_compute", None, 12.0), row("idle", "launch_bound", 2.0), row("exposed_comm", "comm_wait", 40.0)]
    _, launches, waits = ledger_at_job_step(ledger, estimated(34.0), EqualHostsStep(34.0, 1.0, idle_ms))
    assert (launches.ms_per_step_unprofiled_est, waits.ms_per_step_unprofiled_est) == pytest.approx(expected)


def test_a_rank_that_never_waited_in_the_profile_may_wait_in_the_run() -> None:
    *same, waits = ledger_at_job_step([row("other_compute", None, 8.0)], estimated(10.0))
    assert (waits.owner, waits.cause, waits.ns, waits.ms_per_step_unprofiled_est) == ("exposed_comm", "comm_wait", 0, 2.0)
    assert same == [row("other_compute", None, 8.0)]


def test_all_ranks_report_the_jobs_step_and_the_late_one_leads(tmp_path: Path) -> None:
    traces = job(4, 4, Planted(loader_us={2: 500.0}))
    result = read(tmp_path, [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)])
    assert result.lead is not None
    assert result.lead.rank == 2
    assert result.communication is not None
    waits = [item.unprofiled_wait_ms for item in result.communication.ranks]
    assert waits == pytest.approx([0.5, 0.5, 0.0, 0.5], abs=0.03)
    report = report_json(result)
    step = report["metrics"]["best_step_time_ms"]["value"]
    assert step == result.communication.step_ms or report["step_time_source"] == "profile"
    for rank in report["ranks"]:
        assert rank["metrics"]["best_step_time_ms"]["value"] == step
        estimates = [line["ms_per_step_unprofiled_est"] or 0.0 for line in rank["ledger"]]
        assert sum(estimates) == pytest.approx(result.communication.step_ms)


def test_step_of_a_job_with_a_late_rank_matches_the_stopwatch() -> None:
    result = prepared_result(*sorted((RECORDINGS / "ddp_straggler").glob("*.trace.json.gz")))
    assert result.lead is not None
    assert result.lead.rank == 1
    step = result.metrics["best_step_time_ms"]
    assert step.value == pytest.approx(31.7, rel=0.15)  # the stopwatch's
    assert step.low is not None and step.high is not None
    assert step.low <= 31.7 <= step.high


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", REAL_JOBS)
@pytest.mark.skipif(not (SHARED / "ranks").exists(), reason="these recordings are not part of the repository")
def test_steps_of_two_rank_jobs_match_the_stopwatch(tmp_path: Path, name: str) -> None:
    folder = SHARED / "ranks" / name
    truth_ms = json.loads((folder / "truth_0.json").read_text())["step_s_pipelined"] * 1e3
    result = read(tmp_path, sorted(folder.glob("*.trace.json.gz")))
    step = result.metrics["best_step_time_ms"]
    assert step.value == pytest.approx(truth_ms, rel=0.15)
    assert step.low is not None and step.high is not None
    assert step.low <= truth_ms <= step.high
    assert result.communication is not None
    assert [late.ranks for late in result.communication.stragglers] == ([(1,)] if name == "ddp_uneven" else [])


def test_rounding_errors_are_no_wait_for_other_ranks() -> None:
    ledger = [row("other_compute", None, 0.1), row("idle", "launch_bound", 0.1), row("idle", "data_wait", 0.1)]
    assert len(ledger_at_job_step(ledger, estimated(0.1 + 0.1 + 0.1))) == 3  # 5.6e−17 above the exact sum
    assert len(ledger_at_job_step(ledger, estimated(0.301))) == 4


def marked(ms: float, *pauses: Pauses) -> StepTimeEvidence:
    return StepTimeEvidence("marks", ms, ms, ms, pauses=pauses)


def test_marks_of_the_rank_that_evaluates_name_it_while_the_others_wait() -> None:
    evaluation = Pauses("evaluation", (15, 30), (90.0, 90.0), 30, in_step=True)
    chosen = marks_of_job([(0, marked(36.0, evaluation)), (1, marked(36.1)), (2, marked(36.2))])
    assert chosen is not None and (chosen.ms, chosen.pauses[0].ranks) == (36.0, (0,))
    all_ranks = marks_of_job([(0, marked(36.0, evaluation)), (1, marked(36.1, evaluation))])
    assert all_ranks is not None and (all_ranks.ms, all_ranks.pauses[0].ranks) == (36.1, ())
    alone = marks_of_job([(0, marked(36.0, evaluation)), (1, marked(30.0))])
    assert alone is not None and alone.pauses[0].ranks == (), "rank 1 does not wait"


@pytest.mark.parametrize(("phase", "ranks"), [("eval", (0,)), ("eval", (0, 1)), ("checkpoint", (0,))])
def test_work_between_steps_of_one_rank_is_the_cause_and_explains_a_slow_profiled_step(
    tmp_path: Path, phase: str, ranks: tuple[int, ...]
) -> None:
    """Each tenth step takes 12 ms longer, the third of eight profiled ones too. Other steps take 1.4 ms."""
    traces = job(2, 2, Planted(host_us={0: 12_000.0}, late_in=frozenset({3})), mesh=False, steps=9)
    paths = [trace.write(tmp_path / f"{rank}.json") for rank, trace in enumerate(traces)]
    for rank in (0, 1):
        lines, now_ns = [json.dumps({"k": "marks", "v": 1, "rank": rank})], BASE_NS + 10**9
        for step in range(201):
            rests = step > 0 and step % 10 == 0
            now_ns += 1_400_000 + 12_000_000 * rests
            lines.append(json.dumps({"k": "mark", "i": step, "w": now_ns, "p": phase if rests and rank in ranks else "train"}))
        paths.append(tmp_path / f"marks{rank}.jsonl")
        paths[-1].write_text("\n".join(lines) + "\n")
    result = read(tmp_path, paths)
    stalls = [item for item in result.findings if item.rule == "periodic-stalls"]
    if ranks == (0, 1):
        assert not stalls, "the step time shows what the evaluation of all ranks costs"
        return
    (found,) = stalls
    what = "Evaluation" if phase == "eval" else "Writing a checkpoint"
    assert found.title.replace("\xa0", " ") == (
        f"{what} takes rank 0 12 ms, every 10 steps, while the other ranks wait: 1.2 ms per step on average"
    )
    assert result.findings[0] is found
    assert found.action.verb == ("Evaluate" if phase == "eval" else "Save")
    assert found.gain_ms == pytest.approx(0.6 if phase == "eval" else 1.2, rel=0.05)


def test_stalls_of_one_rank_are_stated_once_with_their_size_in_the_run(tmp_path: Path) -> None:
    """Rank 1 stalls for 12 ms in three of eight profiled steps, and in every fourth step of the run.

    A pause of up to 0.5 ms is usual, so the stalls cost (12 − 0.5) / 4 = 2.9 ms per step.
    """
    planted = Planted(launch_us={0: 40.0, 1: 40.0}, host_us={1: 12_000.0}, late_in=frozenset({1, 4, 7}))
    traces = job(2, 2, planted, steps=9)
    paths = [trace.write(tmp_path / f"{rank}.json") for rank, trace in enumerate(traces)]
    for rank in (0, 1):
        lines, now_ns = [json.dumps({"k": "marks", "v": 1, "rank": rank})], BASE_NS + 10**9
        for step in range(201):
            now_ns += 2_200_000 + 12_000_000 * (step % 4 == 0)
            lines.append(json.dumps({"k": "mark", "i": step, "w": now_ns, "p": "train"}))
        paths.append(tmp_path / f"marks{rank}.jsonl")
        paths[-1].write_text("\n".join(lines) + "\n")
    found = {item.rule: item for item in read(tmp_path, paths).findings}
    late = found["straggling-rank"]
    assert late.title.replace("\xa0", " ").startswith("Rank 1 takes 11.5 ms longer than the others in 1 of 4 steps")
    assert late.gain_ms == pytest.approx(11.5 / 4, rel=0.1)
    assert not found.keys() & {"python-between-operators", "periodic-stalls"}

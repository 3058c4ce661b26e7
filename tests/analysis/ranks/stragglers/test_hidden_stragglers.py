"""Tests of late ranks that the profiler hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.ranks.communication import split_communication
from sawtooth.analysis.ranks.job import ReplayedJob, replay_job
from sawtooth.analysis.ranks.stragglers.run_speed import replay_at_run_speed
from sawtooth.analysis.run.job import Straggler
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job, slow_steps
from tests.support.chrome_trace import ChromeTrace
from tests.support.pipelined import pipelined
from tests.support.without_findings import analyse_without_findings

# Recording slows rank 0's host: its 20 launches take 2 ms longer. Hosts of one job differ by more.
SLOWED_HOST = {0: 450.0, 1: 350.0}
FLOOR_MS = 0.5  # Pauses up to this length are usual, so only the rest of a pause is excess.


def replayed(folder: Path, traces: Sequence[ChromeTrace], slow: Sequence[float] = (0.0, 0.0)) -> ReplayedJob:
    """Return the replayed job of ``traces``.

    ``slow`` are the slow steps that its marks show: their share, their excess and a usual step in ms.
    """
    folder.mkdir(exist_ok=True)
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(traces)]
    library = Library(DataFolder(folder / "data").create())
    (run,) = ingest_into_runs(library.folder, [(path, path.name) for path in paths]).runs
    ranks, communication = split_communication(library, analyse_without_findings(run, library).ranks)
    assert communication is not None
    marks = StepTimeEvidence("marks", 5.0, 4.9, 5.1, quantiles_ms=slow_steps(*slow))
    found = replay_job(
        library, [replace(r, best=replace(r.best, evidence=(marks,))) for r in ranks], communication, sampled=True
    )
    assert found is not None
    return found


def late(folder: Path, traces: Sequence[ChromeTrace], slow: Sequence[float] = (0.0, 0.0)) -> tuple[Straggler, ...]:
    return replayed(folder, traces, slow).with_stragglers(None).stragglers


def test_a_pause_is_not_hidden_by_the_slower_launches_of_another_host(tmp_path: Path) -> None:
    (found,) = late(tmp_path, job(2, 2, Planted(launch_us=SLOWED_HOST, host_us={1: 2_000.0})))
    assert (found.ranks, found.reason) == ((1,), "python_host")
    assert found.own_ms == pytest.approx(2.0 - FLOOR_MS, rel=0.1)
    assert found.gain_ms == pytest.approx(found.own_ms, rel=0.2)
    assert found.in_most_steps


def test_a_single_long_stall_is_chance(tmp_path: Path) -> None:
    """Rank 1 pauses once for 20 ms, and its marks show no other such step."""
    traces = job(2, 2, Planted(launch_us=SLOWED_HOST, host_us={1: 20_000.0}, late_in=frozenset({3})), steps=9)
    assert late(tmp_path, traces) == ()


def test_slower_launches_of_a_host_alone_are_not_late(tmp_path: Path) -> None:
    assert late(tmp_path, job(2, 2, Planted(launch_us=SLOWED_HOST))) == ()


def test_a_somewhat_longer_pause_with_an_uncertain_gain_is_not_late(tmp_path: Path) -> None:
    """Rank 1's host pauses 1.4 ms in each step, and that of rank 0 pauses 1 ms.

    The gain's interval contains no gain, because the hosts' speed varies by as much.
    """
    assert late(tmp_path, job(2, 2, Planted(host_us={0: 1_000.0, 1: 1_400.0}))) == ()


def test_a_stall_that_the_marks_repeat_costs_the_job_what_they_show(tmp_path: Path) -> None:
    """Rank 1 pauses 4 ms in one of eight profiled steps.

    By the marks, every fourth step is 4 ms longer.
    """
    planted = Planted(launch_us=SLOWED_HOST, host_us={1: 4_000.0}, late_in=frozenset({3}))
    (found,) = late(tmp_path, job(2, 2, planted, steps=9), slow=(0.25, 4.0))
    assert (found.ranks, found.reason) == ((1,), "python_host")
    assert found.gain_ms == pytest.approx((4.0 - FLOOR_MS) / 4, rel=0.1)
    assert not found.in_most_steps


def test_stalls_that_the_profile_has_too_often_cost_what_the_marks_show(tmp_path: Path) -> None:
    """Rank 1 pauses 4 ms in three of eight profiled steps.

    By the marks, every fourth step is 4 ms longer, which is less than half of a usual step.
    """
    planted = Planted(launch_us=SLOWED_HOST, host_us={1: 4_000.0}, late_in=frozenset({1, 4, 7}))
    (found,) = late(tmp_path, job(2, 2, planted, steps=9), slow=(0.25, 4.0, 9.0))
    assert (found.ranks, found.reason, found.stall_share) == ((1,), "python_host", 0.25)
    assert found.own_ms == pytest.approx((4.0 - FLOOR_MS) / 4, rel=0.05)
    assert found.gain_ms == pytest.approx(found.own_ms, rel=0.15)


def test_a_wait_on_the_cpu_for_another_rank_is_no_lateness(tmp_path: Path) -> None:
    """Rank 1's host pauses for 2 ms in each step, while gloo's thread waits for the broadcast of rank 0."""
    traces = job(2, 2, Planted(host_us={1: 2_000.0}))
    (found,) = late(tmp_path / "pauses", traces)
    assert found.ranks == (1,)
    for trace, wait_us in zip(traces, (20.0, 2_000.0), strict=True):
        begins = [event["ts"] for event in trace.events if event["name"].startswith("ProfilerStep")]
        trace.thread = 9
        for begin in begins:
            trace.host("user_annotation", "gloo:broadcast", begin + 5, begin + 5 + wait_us)
    assert late(tmp_path / "waits", traces) == ()


def test_workers_that_a_rank_waits_for_determine_a_longer_measured_step(tmp_path: Path) -> None:
    replay = replayed(tmp_path, job(2, 2, Planted(loader_us={1: 2_000.0}))).joint
    assert replay is not None
    step_ms = replay.step_ms()
    assert step_ms is not None
    assert replay_at_run_speed(replay, 1.5 * step_ms, [False, False]) is replay
    assert replay_at_run_speed(replay, 1.5 * step_ms, [False, True]).step_ms() == pytest.approx(1.5 * step_ms, rel=0.03)


def test_a_stage_that_pauses_before_its_step_is_late(tmp_path: Path) -> None:
    assert late(tmp_path / "even", pipelined([300, 300], 4)) == ()
    assert late(tmp_path / "uneven", pipelined([300, 500], 4)) == ()
    (found,) = late(tmp_path / "late", pipelined([300, 300], 4, pause_us={0: 1_000.0}))
    assert (found.ranks, found.reason) == ((0,), "python_host")
    assert found.own_ms == pytest.approx(1.0, rel=0.1)
    assert 0.4 < found.gain_ms <= found.own_ms

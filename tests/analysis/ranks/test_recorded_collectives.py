"""Tests of the straggler by recorded collectives, in jobs that cannot be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.derive.lost import estimate
from sawtooth.analysis.ranks import job as one_job
from tests.support.bulk_synchronous import KERNEL, Planted, job
from tests.support.job_communication import communication_of, communication_of_job


@pytest.mark.sweep(1)
@pytest.mark.parametrize("lacks", [1, 3])
def test_a_rank_without_replay_is_left_out_unless_others_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    real = one_job.replay_of
    monkeypatch.setattr(one_job, "replay_of", lambda recording, rank: None if rank.rank == lacks else real(recording, rank))
    found = communication_of_job(tmp_path, Planted(loader_us={3: 800.0}))
    if lacks == 3:
        assert (found.step_ms, found.stragglers) == (None, ())
        return
    (late,) = found.stragglers
    assert (late.ranks, late.reason) == ((3,), "data_wait")
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)
    assert any("1 of the ranks" in note for note in found.notes)
    waits = {item.rank: item.unprofiled_wait_ms for item in found.ranks}
    assert waits[1] is None
    assert waits[3] == pytest.approx(0.0, abs=0.02)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("planted", "named"),
    [
        (Planted(loader_us={1: 800.0}), ("data_wait", 0.8)),
        (Planted(host_us={0: 1_000.0, 1: 1_600.0}), ("python_host", 0.6)),
        (Planted(host_us={0: 1_000.0, 1: 1_300.0}), None),  # Hosts of one job differ by this much under the profiler.
        (Planted(host_us={0: 1_000.0, 1: 1_600.0}, launch_us={0: 20.0, 1: 32.0}), None),  # This host is slower everywhere.
        (Planted(host_us={0: 1_000.0, 1: 1_000.0}, launch_us={0: 20.0, 1: 32.0}), None),
        (Planted(), None),
    ],
)
def test_recorded_collectives_show_the_late_rank_without_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted, named: tuple[str, float] | None
) -> None:
    monkeypatch.setattr(estimate, "MAX_REPLAY_ERROR", -1.0)
    found = communication_of_job(tmp_path, planted, ranks=2, per_host=2, mesh=False)
    assert found.step_ms is None
    if named is None:
        assert (found.stragglers, found.notes[-1]) == ((), one_job.NO_STRAGGLER_CHECK)
        return
    (late,) = found.stragglers
    assert (late.ranks, late.reason, late.as_recorded) == ((1,), named[0], True)
    assert late.own_ms == pytest.approx(named[1], abs=0.03)
    assert late.gain_ms == pytest.approx(named[1], abs=0.03)
    assert found.notes[-1] == one_job.NO_JOINT_REPLAY


@pytest.mark.parametrize("replayed", [False, True])
def test_a_pause_at_the_start_of_a_step_is_not_a_wait_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replayed: bool
) -> None:
    # Rank 1's host pauses 1.6 ms as each step begins. Rank 0's host waits longer at its end, between the same two
    # launches, and no call shows it.
    #
    # In the replay rank 0's host takes as long without rank 1's pause, so the recorded collectives give the gain.
    if not replayed:
        monkeypatch.setattr(estimate, "MAX_REPLAY_ERROR", -1.0)
    traces = job(2, 2, Planted(host_us={1: 1_600.0}))
    traces[0].events = [event for event in traces[0].events if event["name"] != "cudaDeviceSynchronize"]
    communication = communication_of(tmp_path, traces)
    assert (communication.step_ms is not None) == replayed
    (late,) = communication.stragglers
    assert (late.ranks, late.reason, late.as_recorded) == ((1,), "python_host", True)
    assert 0.8 < late.gain_ms < 1.6  # This is a lower bound, because 0.5 ms of any long gap do not count.


@pytest.mark.parametrize("replayed", [False, True])
def test_idle_gpu_waits_for_its_host_even_with_queued_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replayed: bool
) -> None:
    # Before rank 1's loader takes 0.8 ms, its host launches a kernel, which starts after the loader, as the trace
    # shows.
    if not replayed:
        monkeypatch.setattr(estimate, "MAX_REPLAY_ERROR", -1.0)
    traces = job(2, 2, Planted(loader_us={1: 800.0}))
    for trace, after in zip(traces, (4.0, 812.0), strict=True):
        for begin in [event["ts"] for event in trace.events if event["name"].startswith("ProfilerStep")]:
            trace.launch((begin + 1, begin + 3), (begin + after, begin + after + 2), KERNEL)
    (late,) = communication_of(tmp_path, traces).stragglers
    assert (late.ranks, late.reason) == ((1,), "data_wait")
    assert late.own_ms == pytest.approx(0.8, abs=0.02)
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)


def test_rank_that_is_never_late_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Both hosts pause 1 ms a step. Rank 0's host waits for rank 1's loader before that, between the same launches, and no
    # call shows it.
    monkeypatch.setattr(estimate, "MAX_REPLAY_ERROR", -1.0)
    traces = job(2, 2, Planted(loader_us={1: 1_600.0}, host_us={0: 1_000.0, 1: 1_000.0}))
    traces[0].events = [event for event in traces[0].events if event["name"] != "cudaDeviceSynchronize"]
    (late,) = communication_of(tmp_path, traces).stragglers
    assert (late.ranks, late.reason) == ((1,), "data_wait")


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("planted", "who", "reason"),
    [
        (Planted(loader_us={5: 800.0}), ("rank", [5]), "data_wait"),
        (Planted(host_us={5: 800.0}), ("rank", [5]), "python_host"),
        (Planted(slow_gpu={5: 1.8}), ("rank", [5]), None),
        (Planted(host_us=dict.fromkeys((4, 5), 800.0)), ("host", [4, 5]), "python_host"),
    ],
)
def test_collectives_of_many_equal_ranks_show_the_late_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted, who: tuple[str, list[int]], reason: str | None
) -> None:
    """Each late rank loses 0.8 ms a step.

    The slow GPU's loss is in the 1,000 µs before the collectives.
    """
    monkeypatch.setattr(one_job, "replay_of", lambda recording, rank: None)
    found = communication_of_job(tmp_path, planted, ranks=8, per_host=2)
    (late,) = found.stragglers
    assert (late.kind, list(late.ranks), late.reason) == (*who, reason)
    assert late.own_ms == pytest.approx(0.8, abs=0.02)
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)
    assert (late.kernel_ratio is not None) == (reason is None)
    assert found.step_ms is None


@pytest.mark.slow
def test_delay_that_recording_may_cause_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host takes 0.4 ms between two launches. This is not more than recording costs a slow host."""
    monkeypatch.setattr(one_job, "replay_of", lambda recording, rank: None)
    assert communication_of_job(tmp_path, Planted(host_us={5: 400.0}), ranks=8, per_host=4).stragglers == ()

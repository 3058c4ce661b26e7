"""Tests of the straggler in generated jobs: the rank or host, its reason, and the gain without it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.derive.lost import estimate
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.ranks import job as one_job
from sawtooth.analysis.ranks.communication import split_communication
from sawtooth.analysis.run.job import Communication, Straggler
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import KERNEL, Planted, job
from tests.support.chrome_trace import BASE_NS, ChromeTrace
from tests.support.without_findings import numbers


def job_of(
    folder: Path,
    planted: Planted,
    *,
    ranks: int = 4,
    per_host: int = 2,
    mesh: bool = True,
    steps: int = 5,
    cut: int | None = None,
) -> Communication:
    """Return the job's communication, with half of the trace of rank ``cut``."""
    data = DataFolder(folder / "data").create()
    paths = [trace.write(folder / f"{i}.json") for i, trace in enumerate(job(ranks, per_host, planted, mesh=mesh, steps=steps))]
    if cut is not None:
        paths[cut].write_bytes(paths[cut].read_bytes()[: paths[cut].stat().st_size // 2])
    (run,) = bring_in(data, [(path, path.name) for path in paths]).runs
    result = numbers(run, Library(data))
    assert result.communication is not None
    late = report_json(result)["stragglers"]
    assert [(each["ranks"], each["gain_ms"]) for each in late] == [
        (list(s.ranks), s.gain_ms) for s in result.communication.stragglers
    ]
    return result.communication


def of_traces(folder: Path, traces: Sequence[ChromeTrace]) -> Communication:
    """Return the communication of the job with these traces, by rank."""
    data = DataFolder(folder / "data").create()
    (run,) = bring_in(data, [(trace.write(folder / f"{i}.json"), f"{i}.json") for i, trace in enumerate(traces)]).runs
    communication = numbers(run, Library(data)).communication
    assert communication is not None
    return communication


def test_no_rank_is_reported_if_none_is_late(tmp_path: Path) -> None:
    assert job_of(tmp_path, Planted(clock_us={1: 4000.0})).stragglers == ()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("mesh", [False, True])
def test_loader_of_one_rank_is_reported_with_its_cost(tmp_path: Path, mesh: bool) -> None:
    (late,) = job_of(tmp_path, Planted(loader_us={3: 800.0}), mesh=mesh).stragglers
    assert (late.kind, late.ranks, late.host, late.reason) == ("rank", (3,), "node0001", "data_wait")
    assert late.own_ms == pytest.approx(0.8, abs=0.02)
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)


def test_a_loader_late_every_fourth_step_is_named_with_its_cost_over_all_steps(tmp_path: Path) -> None:
    """Of eight counted steps two wait 2 ms: 0.5 ms a step on average."""
    planted = Planted(loader_us={1: 2_000.0}, late_in=frozenset({3, 7}))
    (late,) = job_of(tmp_path, planted, ranks=2, per_host=2, mesh=False, steps=9).stragglers
    assert (late.ranks, late.reason) == ((1,), "data_wait")
    assert late.own_ms == pytest.approx(0.5, abs=0.07)
    assert late.gain_ms == pytest.approx(0.5, abs=0.07)


def test_a_host_that_pauses_in_two_of_eight_steps_is_named(tmp_path: Path) -> None:
    planted = Planted(host_us={2: 6_000.0}, late_in=frozenset({3, 6}))
    (late,) = job_of(tmp_path, planted, ranks=4, per_host=4, mesh=False, steps=9).stragglers
    assert (late.ranks, late.reason) == ((2,), "python_host")
    assert late.own_ms == pytest.approx(1.5, rel=0.2)


@pytest.mark.parametrize("kind", ["loader_us", "host_us"])
def test_a_rank_late_once_is_chance_unless_its_marks_show_other_long_steps(tmp_path: Path, kind: str) -> None:
    planted = Planted(**{kind: {1: 2_000.0}}, late_in=frozenset({3}))
    paths = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(job(2, 2, planted, mesh=False, steps=9))]
    library = Library(DataFolder(tmp_path / "data").create())
    (run,) = bring_in(library.folder, [(path, path.name) for path in paths]).runs
    ranks, communication = split_communication(library, numbers(run, library).ranks)
    assert communication is not None

    def late(*slow: float) -> tuple[Straggler, ...]:
        """Return the stragglers if marks show this share of steps that are so many ms longer."""
        marks = StepTimeEvidence("marks", 5.0, 4.9, 5.1, slow=(slow[0], slow[1]))
        marked = [replace(rank, best=replace(rank.best, evidence=(marks,))) for rank in ranks]
        replayed = one_job.replay_job(library, marked, communication, sampled=True)
        assert replayed is not None
        return replayed.with_stragglers(None).stragglers

    assert late(0.0, 0.0) == late(0.25, 20.0) == late(0.01, 2.0) == ()
    (once,), (twice,) = late(0.125, 2.0), late(0.25, 2.0)
    assert once.ranks == twice.ranks == (1,)
    assert (twice.own_ms, twice.gain_ms) == pytest.approx((2 * once.own_ms, 2 * once.gain_ms))
    assert once.own_ms == pytest.approx(2.0 / 8, rel=0.3)


def test_pause_in_every_step_of_one_rank_belongs_to_it(tmp_path: Path) -> None:
    """Every rank's host pauses 1 ms a step, and rank 1's 1.6 ms.

    The 0.6 ms are more than the 35 % that hosts of one job differ by.
    """
    (late,) = job_of(tmp_path, Planted(host_us={0: 1_000.0, 1: 1_600.0}), ranks=2, per_host=2, mesh=False).stragglers
    assert (late.ranks, late.reason) == ((1,), "python_host")
    assert late.own_ms == pytest.approx(0.6, abs=0.03)


def test_a_host_that_the_profiler_slows_everywhere_is_not_late(tmp_path: Path) -> None:
    """A host that is slower everywhere under the profiler is not late for its longer pauses.

    Rank 1's host takes 1.6 times as long for its launches and for the pause: the pauses differ as the hosts do.
    """
    planted = Planted(host_us={0: 1_000.0, 1: 1_600.0}, launch_us={0: 20.0, 1: 32.0})
    assert job_of(tmp_path, planted, ranks=2, per_host=2, mesh=False).stragglers == ()


def test_balanced_job_with_different_hosts_has_no_late_rank(tmp_path: Path) -> None:
    assert job_of(tmp_path, Planted(host_us={0: 1_000.0, 1: 1_300.0}), ranks=2, per_host=2, mesh=False).stragglers == ()


def test_the_same_kernels_with_other_shapes_are_more_work(tmp_path: Path) -> None:
    # Rank 1 computes 1.4 times as long, and the kernel after the collective runs in a larger grid there.
    traces = job(2, 2, Planted(slow_gpu={1: 1.4}))
    for event in traces[1].events:
        if event.get("args", {}).get("grid") == [99, 1, 1]:
            event["args"]["grid"] = [139, 1, 1]
    data = DataFolder(tmp_path / "data").create()
    paths = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)]
    (run,) = bring_in(data, [(path, path.name) for path in paths]).runs
    communication = numbers(run, Library(data)).communication
    assert communication is not None
    (late,) = communication.stragglers
    assert (late.ranks, late.reason, late.kernel_ratio) == ((1,), "work", None)
    assert late.own_ms == pytest.approx(0.4, abs=0.02)
    assert late.gain_ms == pytest.approx(0.2, abs=0.02)  # shared out, each rank has half of it


@pytest.mark.sweep(1)
@pytest.mark.parametrize("ranks", [2, 8])
def test_kernels_of_only_one_rank_are_removable_work(tmp_path: Path, ranks: int) -> None:
    (late,) = job_of(tmp_path, Planted(own_kernel_us={1: 400.0}), ranks=ranks, per_host=ranks, mesh=False).stragglers
    assert (late.ranks, late.reason) == ((1,), "work")
    assert late.own_ms == pytest.approx(0.4, abs=0.02)
    assert late.gain_ms == pytest.approx(0.4, abs=0.02)


@pytest.mark.slow
def test_each_of_many_ranks_takes_its_share_of_common_work(tmp_path: Path) -> None:
    """Shared work among many ranks is divided equally in the prediction.

    Of eight ranks, rank 1 computes 0.4 ms longer than the others, with other shapes. Divided equally, each rank has
    0.05 ms more.
    """
    traces = job(8, 8, Planted(slow_gpu={1: 1.4}))
    for event in traces[1].events:
        if event.get("args", {}).get("grid") == [99, 1, 1]:
            event["args"]["grid"] = [139, 1, 1]
    paths = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(traces)]
    data = DataFolder(tmp_path / "data").create()
    (run,) = bring_in(data, [(path, path.name) for path in paths]).runs
    communication = numbers(run, Library(data)).communication
    assert communication is not None
    (late,) = communication.stragglers
    assert (late.ranks, late.reason) == ((1,), "work")
    assert late.gain_ms == pytest.approx(0.35, abs=0.02)


# Rank 1 has 0.45 ms more kernel time; rank 0's host takes 0.5 ms longer, less than hosts of one job differ by under the profiler, and hides it.
HIDDEN = Planted(host_us={0: 2_000.0, 1: 1_500.0}, slow_gpu={1: 1.45})


def test_kernel_work_hidden_by_replayed_hosts_is_an_upper_bound(tmp_path: Path) -> None:
    (late,) = job_of(tmp_path, HIDDEN, ranks=2, per_host=2, mesh=False).stragglers
    assert (late.ranks, late.at_most) == ((1,), True)
    assert late.own_ms == pytest.approx(0.45, abs=0.02)
    assert 0.05 < late.gain_ms < 0.45


def test_a_measured_step_gives_the_speed_of_the_hosts(tmp_path: Path) -> None:
    """A measured step shows how fast the hosts are.

    At 65 % of the replayed hosts' time, rank 1 is the late one, by 0.12 ms and more.
    """
    traces = [trace.write(tmp_path / f"{i}.json") for i, trace in enumerate(job(2, 2, HIDDEN))]
    data = DataFolder(tmp_path / "data").create()
    (run,) = bring_in(data, [(path, path.name) for path in traces]).runs
    library = Library(data)
    ranks, communication = split_communication(library, numbers(run, library).ranks)
    assert communication is not None
    replayed = one_job.replay_job(library, ranks, communication, sampled=True)
    assert replayed is not None
    unmeasured = replayed.with_stragglers(None)
    assert unmeasured.step_ms is not None
    assert unmeasured.paced_ms == unmeasured.step_ms
    measured_ms = 0.8 * unmeasured.step_ms
    found = replayed.with_stragglers(measured_ms)
    assert found.step_ms == unmeasured.step_ms
    assert found.paced_ms == pytest.approx(measured_ms, rel=0.03)
    (late,) = found.stragglers
    assert (late.ranks, late.at_most) == ((1,), False)


@pytest.mark.slow
def test_a_slow_host_is_named(tmp_path: Path) -> None:
    (late,) = job_of(tmp_path, Planted(host_us=dict.fromkeys(range(4, 8), 900.0)), ranks=8, per_host=4).stragglers
    assert (late.kind, sorted(r or 0 for r in late.ranks), late.host, late.reason) == (
        "host",
        [4, 5, 6, 7],
        "node0001",
        "python_host",
    )
    assert late.gain_ms == pytest.approx(0.9, abs=0.02)


@pytest.mark.slow
def test_two_late_ranks_gain_only_together(tmp_path: Path) -> None:
    both, first, second = job_of(tmp_path, Planted(loader_us={1: 900.0, 2: 700.0})).stragglers
    assert (both.kind, set(both.ranks), both.reason) == ("set", {1, 2}, "data_wait")
    assert both.gain_ms == pytest.approx(0.9, abs=0.02)
    assert (first.ranks, first.gain_ms) == ((1,), pytest.approx(0.2, abs=0.02))
    assert (second.ranks, second.gain_ms) == ((2,), pytest.approx(0.0, abs=0.02))


def test_a_slow_gpu_runs_equal_kernels_longer(tmp_path: Path) -> None:
    (late,) = job_of(tmp_path, Planted(slow_gpu={2: 1.4})).stragglers
    assert (late.ranks, late.reason) == ((2,), None)
    assert late.kernel_ratio == pytest.approx(
        1.4, rel=0.35
    )  # of its quiet kernels, the tail after the collectives is as quick as the others'
    assert late.gain_ms == pytest.approx(0.4, abs=0.02)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("lacks", [1, 3])
def test_a_rank_without_replay_is_left_out_unless_others_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: int
) -> None:
    real = one_job.replay_of
    monkeypatch.setattr(one_job, "replay_of", lambda recording, rank: None if rank.rank == lacks else real(recording, rank))
    found = job_of(tmp_path, Planted(loader_us={3: 800.0}))
    if lacks == 3:
        assert (found.step_ms, found.stragglers) == (None, ())
        return
    (late,) = found.stragglers
    assert (late.ranks, late.reason) == ((3,), "data_wait")
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)
    assert any("1 of the ranks" in note for note in found.notes)
    waits = {each.rank: each.unprofiled_wait_ms for each in found.ranks}
    assert waits[1] is None
    assert waits[3] == pytest.approx(0.0, abs=0.02)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("planted", "named"),
    [
        (Planted(loader_us={1: 800.0}), ("data_wait", 0.8)),
        (Planted(host_us={0: 1_000.0, 1: 1_600.0}), ("python_host", 0.6)),
        (Planted(host_us={0: 1_000.0, 1: 1_300.0}), None),  # hosts of one job differ by as much under the profiler
        (Planted(host_us={0: 1_000.0, 1: 1_600.0}, launch_us={0: 20.0, 1: 32.0}), None),  # a host that is slower everywhere
        (Planted(host_us={0: 1_000.0, 1: 1_000.0}, launch_us={0: 20.0, 1: 32.0}), None),
        (Planted(), None),
    ],
)
def test_recorded_collectives_show_the_late_rank_without_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted, named: tuple[str, float] | None
) -> None:
    monkeypatch.setattr(estimate, "REPRODUCES_WITHIN", -1.0)
    found = job_of(tmp_path, planted, ranks=2, per_host=2, mesh=False)
    assert found.step_ms is None
    if named is None:
        assert (found.stragglers, found.notes[-1]) == ((), one_job.NOT_REPLAYED)
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
    """A rank's pause at the begin of a step is not another rank's wait at the step's end.

    Rank 1's host pauses 1.6 ms as each step begins. Rank 0's host waits longer at its end, between the same two
    launches, and no call shows it.

    In the replay rank 0's host takes as long without rank 1's pause, so the recorded collectives give the gain.
    """
    if not replayed:
        monkeypatch.setattr(estimate, "REPRODUCES_WITHIN", -1.0)
    traces = job(2, 2, Planted(host_us={1: 1_600.0}))
    traces[0].events = [event for event in traces[0].events if event["name"] != "cudaDeviceSynchronize"]
    data = DataFolder(tmp_path / "data").create()
    (run,) = bring_in(data, [(trace.write(tmp_path / f"{i}.json"), f"{i}.json") for i, trace in enumerate(traces)]).runs
    result = numbers(run, Library(data))
    assert result.communication is not None
    assert (result.communication.step_ms is not None) == replayed
    (late,) = result.communication.stragglers
    assert (late.ranks, late.reason, late.as_recorded) == ((1,), "python_host", True)
    assert 0.8 < late.gain_ms < 1.6  # at least; what any long gap may be, 0.5 ms at its pace, is not counted


@pytest.mark.parametrize("replayed", [False, True])
def test_idle_gpu_waits_for_its_host_even_with_queued_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replayed: bool
) -> None:
    # Before rank 1's loader takes 0.8 ms, its host launches a kernel, which starts after the loader, as the trace
    # shows.
    if not replayed:
        monkeypatch.setattr(estimate, "REPRODUCES_WITHIN", -1.0)
    traces = job(2, 2, Planted(loader_us={1: 800.0}))
    for trace, after in zip(traces, (4.0, 812.0), strict=True):
        for begin in [event["ts"] for event in trace.events if event["name"].startswith("ProfilerStep")]:
            trace.launch((begin + 1, begin + 3), (begin + after, begin + after + 2), KERNEL)
    (late,) = of_traces(tmp_path, traces).stragglers
    assert (late.ranks, late.reason) == ((1,), "data_wait")
    assert late.own_ms == pytest.approx(0.8, abs=0.02)
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)


def test_rank_that_is_never_late_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is never late is not named as the straggler.

    Both hosts pause 1 ms a step. Rank 0's host waits for rank 1's loader before that, between the same launches, and no
    call shows it.
    """
    monkeypatch.setattr(estimate, "REPRODUCES_WITHIN", -1.0)
    traces = job(2, 2, Planted(loader_us={1: 1_600.0}, host_us={0: 1_000.0, 1: 1_000.0}))
    traces[0].events = [event for event in traces[0].events if event["name"] != "cudaDeviceSynchronize"]
    (late,) = of_traces(tmp_path, traces).stragglers
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
    found = job_of(tmp_path, planted, ranks=8, per_host=2)
    (late,) = found.stragglers
    assert (late.kind, list(late.ranks), late.reason) == (*who, reason)
    assert late.own_ms == pytest.approx(0.8, abs=0.02)
    assert late.gain_ms == pytest.approx(0.8, abs=0.02)
    assert (late.kernel_ratio is not None) == (reason is None)
    assert found.step_ms is None


@pytest.mark.slow
def test_two_late_ranks_of_many_gain_only_together(tmp_path: Path) -> None:
    both, first, second = job_of(tmp_path, Planted(loader_us={1: 900.0, 6: 700.0}), ranks=8, per_host=4).stragglers
    assert (both.ranks, both.gain_ms) == ((1, 6), pytest.approx(0.9, abs=0.02))
    assert (first.ranks, first.gain_ms) == ((1,), pytest.approx(0.2, abs=0.02))
    assert (second.ranks, second.gain_ms) == ((6,), pytest.approx(0.0, abs=0.02))


@pytest.mark.slow
def test_short_trace_does_not_hide_the_cost_of_another_rank(tmp_path: Path) -> None:
    """Rank 6 meets only rank 2, whose trace is cut. The time of that collective is not rank 6's own."""
    (late,) = job_of(tmp_path, Planted(loader_us={3: 900.0}), ranks=8, per_host=4, cut=2).stragglers
    assert (late.ranks, late.gain_ms) == ((3,), pytest.approx(0.9, abs=0.01))


@pytest.mark.slow
def test_delay_that_recording_may_cause_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host takes 0.4 ms between two launches. This is not more than recording costs a slow host."""
    monkeypatch.setattr(one_job, "replay_of", lambda recording, rank: None)
    assert job_of(tmp_path, Planted(host_us={5: 400.0}), ranks=8, per_host=4).stragglers == ()


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
    (run,) = bring_in(data, [(path, path.name) for path in paths]).runs
    result = analyse(run, Library(data))
    assert result.communication is not None
    (late,) = result.communication.stragglers
    assert (late.ranks, late.reason) == ((2,), reason)
    found = next(f for f in result.findings if f.rule == "straggling-rank")
    assert found.title.endswith({"clock": "a lower GPU clock", "power": "its GPU's power limit"}[reason])


@pytest.mark.slow
def test_clocks_of_hosts_are_known_through_groups(tmp_path: Path) -> None:
    communication = job_of(tmp_path, Planted(clock_us={1: 4000.0, 2: -2500.0}), ranks=9, per_host=3)
    first = {r.rank: r for r in communication.ranks}[0]
    base = first.clock_offset_ns
    assert base is not None
    offsets = {r.rank: (r.clock_offset_ns or 0) - base for r in communication.ranks}
    assert {rank: round(offset / 1000) for rank, offset in offsets.items()} == {
        0: 0, 1: 0, 2: 0, 3: 4000, 4: 4000, 5: 4000, 6: -2500, 7: -2500, 8: -2500,
    }  # fmt: skip

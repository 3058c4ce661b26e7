"""All ranks of a run as one job: a joint replay for its step time and its stragglers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.ranks.contention import Kernels, interrupted_ms, kernels_of, shortest_quiet_ns, slowed_by_waits
from sawtooth.analysis.ranks.joint_replay import JointReplay, MatchedCollectives, Member
from sawtooth.analysis.ranks.peers import peers
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.communication_slowdown import without_communication_slowdown
from sawtooth.analysis.ranks.stragglers.detection import MIN_GAIN_SHARE, find_stragglers, recorded_stragglers
from sawtooth.analysis.ranks.stragglers.host_waits import cpu_collectives, host_waits, without_host_waits
from sawtooth.analysis.ranks.stragglers.outliers import MIN_EQUAL_RANKS, RankLosses, find_outliers
from sawtooth.analysis.ranks.stragglers.own_time import OwnTime, own_time
from sawtooth.analysis.ranks.stragglers.reasons import with_reason
from sawtooth.analysis.ranks.stragglers.run_speed import (
    RunSpeedReplay,
    equal_hosts_steps,
    replay_at_run_speed,
    stalls_more_often,
)
from sawtooth.analysis.ranks.stragglers.two_groups import split_of
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.simulation import ReplayProblem
from sawtooth.analysis.run.job import Communication, RankWaits, Straggler
from sawtooth.analysis.run.model import RankResult

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library, Recording

UTILIZATION_WINDOW_MS = 1000 / 6  # One NVML utilization sample covers at least this time.
NO_JOINT_REPLAY = "Not every rank's trace can be replayed, so no joint replay of the ranks shows the job's step."
NO_STRAGGLER_CHECK = "Not every rank's trace can be replayed, so no joint replay of the ranks shows the job's step, and no straggler is reported."


@dataclass(frozen=True)
class ReplayedJob:
    """All ranks of a job, replayed together without the profiler.

    ``problems`` and ``kernels`` have one entry per rank of ``ranks``. A problem is None if its rank cannot be replayed.
    ``communication`` has the job's step and each rank's waits in the joint replay. ``joint`` replays the ranks at the positions
    ``included``, with the collectives of ``rows``. It is None if other ranks wait for a rank that cannot be replayed.
    """

    library: Library
    ranks: Sequence[RankResult]
    problems: Sequence[ReplayProblem | None]
    kernels: Sequence[Kernels]
    communication: Communication
    joint: JointReplay | None
    included: Sequence[int]
    rows: pd.DataFrame

    def with_stragglers(self, measured_ms: float | None) -> Communication:
        """Return the communication with the job's stragglers, or with its early and late group of ranks.

        ``measured_ms`` is the job's step from marks or telemetry. If the joint replay takes longer, its hosts are too slow.
        There are three sources of stragglers, in this order:

        * the recorded collectives, if the job has many ranks with the same work (``find_outliers``);
        * the joint replay;
        * the recorded collectives and the host's times between calls, without a joint replay.
        """
        peers_of = peers(self.communication.rows, len(self.ranks))
        enough_equal = max(map(len, peers_of)) >= MIN_EQUAL_RANKS
        recorded = RecordedJob.from_rows(self.communication.rows, len(self.ranks))
        numbers, hosts = [rank.rank for rank in self.ranks], [rank.host for rank in self.ranks]
        recorded_ms = float(np.median([rank.best.mean_ms or 0.0 for rank in self.ranks]))
        late = find_outliers(recorded, self._losses, peers_of, numbers, hosts, recorded_ms) if enough_equal else ()
        communication = self.communication
        if self.joint is not None:
            stalls = stalls_more_often(self.joint, measured_ms, _usual_ms(self.ranks))
            waiting = [_waits_for_workers(self.ranks[p]) for p in self.included]
            job = self.joint if stalls else replay_at_run_speed(self.joint, measured_ms, waiting)
            communication = replace(communication, run_speed_step_ms=measured_ms if stalls else job.step_ms())
            run_speed = RunSpeedReplay(job, self._member_times(job), peers(self.rows, len(self.included)), measured_ms)
            late = late or self._replayed_stragglers(run_speed)
            if not late and not communication.pipeline:
                communication = self._with_equal_hosts(communication, run_speed)
        if not late and None in self.problems and not enough_equal:
            own_times = _own_times(self.library, self.ranks, self.problems, self.kernels)
            late = (
                recorded_stragglers(recorded, own_times, peers_of, numbers, hosts, recorded_ms) if own_times is not None else ()
            )
        if not late:
            notes = tuple(NO_STRAGGLER_CHECK if note == NO_JOINT_REPLAY else note for note in communication.notes)
            communication = replace(communication, notes=notes)
        telemetry = [rank.telemetry for rank in self.ranks]
        late = tuple(with_reason(straggler, telemetry, peers_of) for straggler in late)
        split = None if late else split_of(recorded, peers_of, numbers, hosts, recorded_ms)
        return replace(communication, stragglers=late, split=split)

    def _losses(self, positions: Sequence[int]) -> dict[int, RankLosses]:
        """Return the lost time of the ranks at ``positions``, by position."""
        shortest, losses = shortest_quiet_ns(self.kernels), {}
        for position in positions:
            with self.library.open(self.ranks[position].recording_id) as recording:
                losses[position] = RankLosses.from_recording(recording, self.ranks[position], self.kernels[position], shortest)
        return losses

    def _member_times(self, job: JointReplay) -> list[OwnTime]:
        """Return the own time of each rank of ``job``, whose hosts have the measured speed."""
        kernels = [self.kernels[position] for position in self.included]
        waits = self.communication.ranks
        own_times = [
            _with_marks(
                own_time(of_rank, member, waits[position].interrupted_ms, _begins_ns(self.ranks[position])),
                self.ranks[position],
            )
            for of_rank, member, position in zip(kernels, job.members, self.included, strict=True)
        ]
        return without_communication_slowdown(own_times)

    def _with_equal_hosts(self, communication: Communication, run_speed: RunSpeedReplay) -> Communication:
        """Return ``communication`` with the ranks' steps if all hosts are equally fast."""
        if not run_speed.step_ms:
            return communication
        of_rank = dict(zip(self.included, equal_hosts_steps(run_speed.equal_hosts), strict=True))
        return replace(
            communication, ranks=tuple(replace(rank, equal_hosts=of_rank.get(rank.position)) for rank in communication.ranks)
        )

    def _replayed_stragglers(self, run_speed: RunSpeedReplay) -> tuple[Straggler, ...]:
        ranks = [self.ranks[position] for position in self.included]
        recorded = RecordedJob.from_rows(self.rows, len(ranks))
        late = find_stragglers(run_speed, recorded, [rank.rank for rank in ranks], [rank.host for rank in ranks])
        return tuple(replace(straggler, positions=tuple(self.included[i] for i in straggler.positions)) for straggler in late)


def replay_job(
    library: Library, ranks: Sequence[RankResult], communication: Communication, *, sampled: bool
) -> ReplayedJob | None:
    """Return the joint replay of ``ranks``; None without matched collectives or with one process.

    A process with several devices has one host, so its own replay already contains all of its devices. Ranks that cannot be
    replayed are left out if no rank waits for them in the profile. With ``sampled``, the run has telemetry. Then the result also
    contains the time that all ranks wait in turn.
    """
    if communication.rows.empty or len({rank.recording_id for rank in ranks}) < len(ranks):
        return None
    problems: list[ReplayProblem | None] = []
    kernels: list[Kernels] = []
    on_cpu = []
    for rank in ranks:
        with library.open(rank.recording_id) as recording:
            problems.append(replay_of(recording, rank))
            kernels.append(kernels_of(recording, rank.device))
            on_cpu.append(cpu_collectives(recording))
    problems = [
        without_host_waits(problem, waits, rank.trace.first_ns or 0) if problem is not None else None
        for rank, problem, waits in zip(ranks, problems, host_waits(on_cpu), strict=True)
    ]
    awaited = (
        problem is None and waits.late_ms >= MIN_GAIN_SHARE * (rank.best.mean_ms or 0.0)
        for rank, waits, problem in zip(ranks, communication.ranks, problems, strict=True)
    )
    included = [position for position, problem in enumerate(problems) if problem is not None]
    if not included or any(awaited):
        noted = replace(communication, notes=(*communication.notes, NO_JOINT_REPLAY))
        return ReplayedJob(library, ranks, problems, kernels, noted, None, (), communication.rows)
    rows = communication.rows[communication.rows["position"].isin(included)]
    rows = rows.assign(position=rows["position"].map({position: i for i, position in enumerate(included)}))
    chosen = [kernels[position] for position in included]
    slowed = slowed_by_waits(chosen, rows)
    members = [
        _member(ranks[position], problem, slowdown, communication.ranks[position])
        for position, slowdown in zip(included, slowed, strict=True)
        if (problem := problems[position]) is not None
    ]
    job = JointReplay(members, MatchedCollectives.from_rows(rows, len(members)))
    times = _replayed_times(chosen, members, slowed, job.waits_ms())
    of_rank = dict(zip(included, times, strict=True))
    replayed = replace(
        communication,
        ranks=tuple(_with_times(rank, *of_rank.get(rank.position, (None, 0.0, 0.0))) for rank in communication.ranks),
        notes=(*communication.notes, *_replay_notes(len(ranks) - len(included), job.abandoned)),
        step_ms=job.step_ms(),
        in_turn_ms=job.common_wait_ms(UTILIZATION_WINDOW_MS) if sampled else 0.0,
    )
    return ReplayedJob(library, ranks, problems, kernels, replayed, job, included, rows)


def _member(rank: RankResult, problem: ReplayProblem, slowdown_ns: pd.Series, waits: RankWaits) -> Member:
    """Return a rank for the joint replay, with its operations shortened by ``slowdown_ns``."""
    # A replay's clock starts with the recording's first event.
    offset_ns = (waits.clock_offset_ns or 0) - (rank.trace.first_ns or 0)
    return Member(
        _with_shorter_operations(problem, slowdown_ns), rank.device, rank.counted["step"].to_numpy(np.int32), offset_ns
    )


def _replayed_times(
    kernels: Sequence[Kernels], members: Sequence[Member], slowed: Sequence[pd.Series], waits_ms: Sequence[float | None]
) -> Iterator[tuple[float | None, float, float]]:
    """Yield, in ms per step, each member's wait, and its kernels' slowdown and interruptions.

    Waiting collectives slow kernels, and another process on the GPU interrupts them.
    """
    shortest = shortest_quiet_ns(kernels)
    for of_rank, member, slowdown_ns, wait_ms in zip(kernels, members, slowed, waits_ms, strict=True):
        yield wait_ms, _per_step_ms(of_rank, member, slowdown_ns), interrupted_ms(of_rank, member.counted, shortest)


def _waits_for_workers(rank: RankResult) -> bool:
    """Return whether a rank waits for its loader's workers, for at least MIN_GAIN_SHARE of its step."""
    waits_ns = rank.work.waits_ns - rank.work.loading_ns if rank.work is not None else 0.0
    return waits_ns >= MIN_GAIN_SHARE * 1e6 * (rank.best.mean_ms or math.inf)


def _own_times(
    library: Library, ranks: Sequence[RankResult], problems: Sequence[ReplayProblem | None], kernels: Sequence[Kernels]
) -> list[OwnTime] | None:
    """Return the own time of each rank, even if the rank's replay does not explain its trace.

    None if a trace has no replay at all.
    """
    shortest = shortest_quiet_ns(kernels)
    own_times = []
    for rank, problem, kernels_of_rank in zip(ranks, problems, kernels, strict=True):
        if problem is None:
            with library.open(rank.recording_id) as recording:
                rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unexplained'")
            if not rows:
                return None
            problem = replay_store.load(rows[0][0])
        counted = rank.counted["step"].to_numpy(np.int32)
        own_times.append(
            own_time(
                kernels_of_rank,
                Member(problem, rank.device, counted, 0),
                interrupted_ms(kernels_of_rank, counted, shortest),
                _begins_ns(rank),
            )
        )
    return without_communication_slowdown(own_times)


def _with_marks(own: OwnTime, rank: RankResult) -> OwnTime:
    """Return ``own`` with the times of the steps outside the profile, if the rank's loop was marked."""
    marks = next((evidence for evidence in rank.best.evidence if evidence.source == "marks"), None)
    return replace(own, marked_ms=marks.quantiles_ms if marks is not None else ())


def _usual_ms(ranks: Sequence[RankResult]) -> float | None:
    """Return the median marked step outside the profile; None without marks.

    It is that of the rank with the longest one.
    """
    marked = (evidence.quantiles_ms for rank in ranks for evidence in rank.best.evidence if evidence.source == "marks")
    return max((float(np.median(quantiles_ms)) for quantiles_ms in marked if quantiles_ms), default=None)


def _begins_ns(rank: RankResult) -> NDArray[np.int64]:
    """Return the times on a rank's host at which its steps begin, on its replay's clock.

    The clock starts with the recording's first event.
    """
    return rank.steps["host_start_ns"].to_numpy(np.int64) - (rank.trace.first_ns or 0)


def replay_of(recording: Recording, rank: RankResult) -> ReplayProblem | None:
    """Return a rank's replay without the profiler; None if no replay explains its trace."""
    rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    return replay_store.load(rows[0][0]) if rows and rank.best.estimate.value is not None else None


def _with_shorter_operations(problem: ReplayProblem, slowdown_ns: pd.Series) -> ReplayProblem:
    """Return ``problem`` with operations shortened by ``slowdown_ns`` (by gpu_op_id)."""
    removed_ns = slowdown_ns.reindex(problem.ops.op, fill_value=0).to_numpy(np.int64)
    return replace(problem, ops=replace(problem.ops, dur=problem.ops.dur - removed_ns))


def _per_step_ms(kernels: Kernels, member: Member, slowdown_ns: pd.Series) -> float:
    """Return the mean of ``slowdown_ns`` per counted step of the rank, in ms."""
    counted = kernels.ops.loc[kernels.ops["step"].isin(member.counted), "gpu_op_id"]
    return float(slowdown_ns[slowdown_ns.index.isin(counted)].sum()) / max(len(member.counted), 1) / 1e6


def _with_times(rank: RankWaits, wait_ms: float | None, slowed_ms: float, interrupted_ms: float) -> RankWaits:
    return replace(rank, unprofiled_wait_ms=wait_ms, slowed_ms=slowed_ms, interrupted_ms=interrupted_ms)


def _replay_notes(left_out: int, abandoned: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out} of the ranks cannot be replayed and are left out of the job's step; no other rank waits for them in the profile."
    if abandoned:
        yield f"{abandoned} collectives have contradicting orders on the ranks; no rank waits for them in the replay."

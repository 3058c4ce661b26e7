"""All ranks of a run as one job: a joint replay for its step time and its stragglers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.metrics.step_time import AGREES_WITHIN
from sawtooth.analysis.ranks.contention import Kernels, held_ms, kernels_of, quietest, slowed_by_waits
from sawtooth.analysis.ranks.joint_replay import JointReplay, Meetings, Member
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.detection import LEAST_SHARE, blame, blame_recorded
from sawtooth.analysis.ranks.stragglers.outliers import FEWEST_ALIKE, RankLosses, outliers
from sawtooth.analysis.ranks.stragglers.own_time import OwnTime, as_quiet_as_others, own_time
from sawtooth.analysis.ranks.stragglers.reasons import with_reason
from sawtooth.analysis.ranks.stragglers.two_groups import split_of
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import FasterHost, apply
from sawtooth.analysis.replay.simulation import ReplayProblem
from sawtooth.analysis.run.job import SEND_RECEIVE, Communication, RankWaits, Straggler
from sawtooth.analysis.run.model import RankResult

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library, Recording

LEAST_HOST = 0.4  # share of the replayed hosts' time: an estimate with a larger error is useless
SEEN_AT_ONCE_MS = 1000 / 6  # the shortest time that one NVML utilization sample covers
HALVINGS = 5  # bisection steps of the hosts' speed: exact to 2 %
NO_JOINT_REPLAY = "Not every rank's trace can be replayed, so the job's step is not known from its ranks together."
NOT_REPLAYED = (
    "Not every rank's trace can be replayed, so the job's step is not known from its ranks together, and no rank is blamed."
)


def as_one_job(
    library: Library,
    ranks: Sequence[RankResult],
    communication: Communication,
    measured_ms: Callable[[Communication], float | None],
    *,
    sampled: bool,
) -> Communication:
    """Return ``communication`` with the job's step and stragglers, from replays without the profiler.

    ``measured_ms`` returns the job's step from marks or telemetry, None without them. If the joint replay takes longer, the
    replayed hosts are too slow. ``sampled`` means that telemetry may be used, which needs the time that ranks wait in turn.
    Stragglers come from the recorded collectives if the job has many ranks with the same work (``outliers``), else from the
    replays. Without matched collectives the ranks are not connected, and nothing is added.
    Ranks that cannot be replayed are left out if no rank waits for them in the profile. Otherwise the job's step is unknown,
    and stragglers come from the recorded collectives and the host's times between calls.
    """
    if communication.rows.empty or len({rank.recording_id for rank in ranks}) < len(ranks):
        return communication  # one process with several devices is one host, so its replay joins them already
    problems: list[ReplayProblem | None] = []
    kernels: list[Kernels] = []
    for rank in ranks:
        with library.open(rank.recording_id) as recording:
            problems.append(replay_of(recording, rank))
            kernels.append(kernels_of(recording, rank.device))
    alike = peers(communication.rows, len(ranks))
    late: tuple[Straggler, ...] = ()
    recorded = RecordedJob.of(communication.rows, len(ranks))
    numbers, hosts = [rank.rank for rank in ranks], [rank.host for rank in ranks]
    recorded_ms = float(np.median([rank.best.mean_ms or 0.0 for rank in ranks]))
    if max(map(len, alike)) >= FEWEST_ALIKE:
        least = quietest(kernels)

        def traces(positions: Sequence[int]) -> dict[int, RankLosses]:
            shown = {}
            for position in positions:
                with library.open(ranks[position].recording_id) as recording:
                    shown[position] = RankLosses.of(recording, ranks[position], kernels[position], least)
            return shown

        late = outliers(recorded, traces, alike, numbers, hosts, recorded_ms)
    joint = _replayed(ranks, communication, problems, kernels, measured_ms, sampled=sampled, by_collectives=bool(late))
    late = late or joint.stragglers
    if not late and None in problems and max(map(len, alike)) < FEWEST_ALIKE:
        own = _own_times(library, ranks, problems, kernels)
        late = blame_recorded(recorded, own, alike, numbers, hosts, recorded_ms) if own is not None else ()
    if not late:
        joint = replace(joint, notes=tuple(NOT_REPLAYED if note == NO_JOINT_REPLAY else note for note in joint.notes))
    telemetry = [rank.telemetry for rank in ranks]
    late = tuple(with_reason(each, telemetry, alike) for each in late)
    split = None if late else split_of(recorded, alike, numbers, hosts, recorded_ms)
    return replace(joint, stragglers=late, split=split)


def _replayed(
    ranks: Sequence[RankResult],
    communication: Communication,
    problems: Sequence[ReplayProblem | None],
    kernels: Sequence[Kernels],
    measured_ms: Callable[[Communication], float | None],
    *,
    sampled: bool,
    by_collectives: bool,
) -> Communication:
    """Return ``communication`` with the results of the joint replay.

    Stragglers are only searched if they are not known ``by_collectives``.
    """
    kept = [position for position, problem in enumerate(problems) if problem is not None]
    awaited = (
        problem is None and waits.late_ms >= LEAST_SHARE * (rank.best.mean_ms or 0.0)
        for rank, waits, problem in zip(ranks, communication.ranks, problems, strict=True)
    )
    if not kept or any(awaited):
        return replace(communication, notes=(*communication.notes, NO_JOINT_REPLAY))
    kernels = [kernels[position] for position in kept]
    rows = communication.rows[communication.rows["position"].isin(kept)]
    rows = rows.assign(position=rows["position"].map({position: i for i, position in enumerate(kept)}))
    slowed = slowed_by_waits(kernels, rows)
    members = []
    for position, off in zip(kept, slowed, strict=True):
        rank, problem = ranks[position], problems[position]
        assert problem is not None
        # a replay's times begin with the recording's first event
        offset_ns = (communication.ranks[position].clock_offset_ns or 0) - (rank.trace.first_ns or 0)
        counted = rank.counted["step"].to_numpy(np.int32)
        members.append(Member(_quicker(problem, off), rank.device, counted, offset_ns))
    job = JointReplay(members, Meetings.of(rows, len(members)))
    step_ms, waits_ms = job.step_ms(), job.waits_ms()
    least = quietest(kernels)
    held = [held_ms(k, m.counted, least) for k, m in zip(kernels, members, strict=True)]
    slowed_ms = [_per_step_ms(k, m, off) for k, m, off in zip(kernels, members, slowed, strict=True)]
    of_rank = dict(zip(kept, zip(waits_ms, slowed_ms, held, strict=True), strict=True))
    joint = replace(
        communication,
        ranks=tuple(_with_times(rank, *of_rank.get(rank.position, (None, 0.0, 0.0))) for rank in communication.ranks),
        notes=(*communication.notes, *_notes(len(ranks) - len(kept), job.abandoned)),
        step_ms=step_ms,
        in_turn_ms=job.in_turn_ms(SEEN_AT_ONCE_MS) if sampled else 0.0,
    )
    paced = _paced(job, measured_ms(joint))
    if by_collectives:
        return replace(joint, paced_ms=paced.step_ms())
    late = blame(
        job=paced,
        recorded=RecordedJob.of(rows, len(kept)),
        own=as_quiet_as_others(
            [own_time(k, m, ms, _begins_ns(ranks[p])) for k, m, ms, p in zip(kernels, paced.members, held, kept, strict=True)]
        ),
        peers=peers(rows, len(kept)),
        ranks=[ranks[p].rank for p in kept],
        hosts=[ranks[p].host for p in kept],
    )
    late = tuple(replace(each, positions=tuple(kept[i] for i in each.positions)) for each in late)
    return replace(joint, stragglers=late, paced_ms=paced.step_ms())


def _paced(job: JointReplay, measured_ms: float | None) -> JointReplay:
    """Return ``job`` with faster hosts if its measured step is shorter than the replayed one.

    Otherwise return it unchanged.
    """
    step_ms = job.step_ms()
    if measured_ms is None or step_ms is None or measured_ms >= (1 - AGREES_WITHIN) * step_ms:
        return job

    def at(factor: float) -> JointReplay:
        return replace(
            job,
            members=[replace(m, problem=apply(m.problem, [FasterHost(factor)])) for m in job.members],
            unchanged=(),
            _kept={},
        )

    def quick_enough(factor: float) -> bool:
        now_ms = at(factor).step_ms()
        return now_ms is None or now_ms <= measured_ms

    return at(turning_point(quick_enough, LEAST_HOST, 1.0, halvings=HALVINGS)[1])


def _own_times(
    library: Library, ranks: Sequence[RankResult], problems: Sequence[ReplayProblem | None], kernels: Sequence[Kernels]
) -> list[OwnTime] | None:
    """Return the own time of each rank, including ranks that their replay does not explain.

    None if a trace has no replay at all.
    """
    least = quietest(kernels)
    own = []
    for rank, problem, mine in zip(ranks, problems, kernels, strict=True):
        if problem is None:
            with library.open(rank.recording_id) as recording:
                rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unexplained'")
            if not rows:
                return None
            problem = replay_store.load(rows[0][0])
        counted = rank.counted["step"].to_numpy(np.int32)
        own.append(own_time(mine, Member(problem, rank.device, counted, 0), held_ms(mine, counted, least), _begins_ns(rank)))
    return as_quiet_as_others(own)


def _begins_ns(rank: RankResult) -> NDArray[np.int64]:
    """Return the times on a rank's host at which its steps begin, on its replay's clock.

    The clock starts with the recording's first event.
    """
    return rank.steps["host_start_ns"].to_numpy(np.int64) - (rank.trace.first_ns or 0)


def replay_of(recording: Recording, rank: RankResult) -> ReplayProblem | None:
    """Return a rank's replay without the profiler; None if no replay explains its trace."""
    rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    return replay_store.load(rows[0][0]) if rows and rank.best.estimate.value is not None else None


def _quicker(problem: ReplayProblem, off_ns: pd.Series) -> ReplayProblem:
    """Return ``problem`` with operations shortened by ``off_ns`` (by gpu_op_id)."""
    off = off_ns.reindex(problem.ops.op, fill_value=0).to_numpy(np.int64)
    return replace(problem, ops=replace(problem.ops, dur=problem.ops.dur - off))


def _per_step_ms(kernels: Kernels, member: Member, off_ns: pd.Series) -> float:
    """Return the part of ``off_ns`` in a counted step of the rank, in ms."""
    counted = kernels.ops.loc[kernels.ops["step"].isin(member.counted), "gpu_op_id"]
    return float(off_ns[off_ns.index.isin(counted)].sum()) / max(len(member.counted), 1) / 1e6


def _with_times(rank: RankWaits, wait_ms: float | None, slowed_ms: float, held_ms: float) -> RankWaits:
    return replace(rank, unprofiled_wait_ms=wait_ms, slowed_ms=slowed_ms, held_ms=held_ms)


def _notes(left_out: int, abandoned: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out} of the ranks cannot be replayed and are left out of the job's step; nobody waits for them in the profile."
    if abandoned:
        yield f"{abandoned} collectives of the ranks contradict each other's order and hold nobody up in the replay."


def peers(rows: pd.DataFrame, ranks: int) -> list[list[int]]:
    """Return, by position, the ranks with the same work by design: those joined by collectives.

    Ranks that send to each other form a pipeline, and its stages differ. A collective that joins two ranks of one pipeline (the
    gradients' norm, the weights shared by the first and last stage) joins stages, so it does not count.
    """
    sent = rows["name"] == SEND_RECEIVE
    pipeline = _joined(_members(rows[sent]), ranks)
    of_stage = (each for each in _members(rows[~sent]) if len({pipeline[position] for position in each}) == len(each))
    root = _joined(of_stage, ranks)
    alike: dict[int, list[int]] = {}
    for position in range(ranks):
        alike.setdefault(root[position], []).append(position)
    return [alike[root[position]] for position in range(ranks)]  # one list for all of its ranks, because there may be thousands


def one_step(rows: pd.DataFrame, ranks: int) -> bool:
    """Return whether collectives join all ranks, directly or through others.

    Sends and receives alone do not define a common end of the step.
    """
    return len(set(_joined(_members(rows[rows["name"] != SEND_RECEIVE]), ranks))) == 1


def _members(rows: pd.DataFrame) -> set[tuple[int, ...]]:
    """Return the positions of the ranks that meet in each collective of ``rows``."""
    return set(rows.groupby("collective")["position"].agg(lambda each: tuple(sorted(each))))


def _joined(sets: Iterable[tuple[int, ...]], ranks: int) -> list[int]:
    """Return, by position, a number that is equal for ranks that ``sets`` join.

    Ranks may be joined directly or through others.
    """
    joined = list(range(ranks))

    def root(position: int) -> int:
        while joined[position] != position:
            position = joined[position]
        return position

    for together in sets:
        for position in together[1:]:
            joined[root(position)] = root(together[0])
    return [root(position) for position in range(ranks)]

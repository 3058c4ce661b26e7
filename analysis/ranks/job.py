"""All ranks of a run as one job: replayed together for its step time, and for who holds it up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.as_recorded import RecordedJob
from sawtooth.analysis.ranks.blame import LEAST_SHARE, blame
from sawtooth.analysis.ranks.coupled import Job, Meetings, Member
from sawtooth.analysis.ranks.own_time import OwnTime, as_quiet_as_others, own_time
from sawtooth.analysis.ranks.slow_gpu import with_reason
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.machine import ReplayProblem
from sawtooth.analysis.run.model import SEND_RECEIVE, Communication, RankResult, RankWaits

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library, Recording

NOT_REPLAYED = (
    "Not every rank's trace can be replayed, so the job's step is not known from its ranks together, and no rank is blamed."
)


def as_one_job(library: Library, ranks: Sequence[RankResult], communication: Communication) -> Communication:
    """Return ``communication`` with the job's step and its stragglers, from the ranks' replays without the profiler.

    Without matched collectives nothing joins the ranks, and nothing is added. Ranks that cannot be replayed are left out where nobody
    waits for them in the profile; where somebody does, the job cannot be told without them.
    """
    if communication.rows.empty or len({rank.recording_id for rank in ranks}) < len(ranks):
        return communication  # one process with several devices is one host: its replay holds them together already
    kept: list[int] = []
    members: list[Member] = []
    own: list[OwnTime] = []
    for position, (rank, waits) in enumerate(zip(ranks, communication.ranks, strict=True)):
        with library.open(rank.recording_id) as recording:
            problem = replay_of(recording, rank)
            if problem is None and waits.late_ms >= LEAST_SHARE * (rank.best.mean_ms or 0.0):
                return replace(communication, notes=(*communication.notes, NOT_REPLAYED))
            if problem is None:
                continue
            counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
            # a replay's times begin with the recording's first
            offset_ns = (waits.clock_offset_ns or 0) - int(rank.info["first_ns"])
            members.append(Member(problem, rank.device, counted, offset_ns))
            talk = recording.frame(
                "SELECT g.gpu_op_id, g.start_ns, g.dur_ns FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) "
                "WHERE g.device = ? AND s.category = 'communication'",
                [rank.device],
            )
            own.append(own_time(recording, members[-1], talk))
            kept.append(position)
    if not kept:
        return replace(communication, notes=(*communication.notes, NOT_REPLAYED))
    rows = communication.rows[communication.rows["position"].isin(kept)]
    rows = rows.assign(position=rows["position"].map({position: i for i, position in enumerate(kept)}))
    job = Job(members, Meetings.of(rows, len(members)))
    late = blame(
        job=job,
        recorded=RecordedJob.of(rows, len(kept)),
        own=as_quiet_as_others(own),
        peers=peers(rows, len(kept)),
        ranks=[ranks[p].rank for p in kept],
        hosts=[None if pd.isna(host := ranks[p].info.get("host")) else str(host) for p in kept],
    )
    late = tuple(replace(each, positions=tuple(kept[i] for i in each.positions)) for each in late)
    step_ms = job.step_ms()
    return replace(
        communication,
        ranks=_with_waits(communication, dict(zip(kept, job.waits_ms(), strict=True))),
        notes=(*communication.notes, *_notes(len(ranks) - len(kept), job.given_up)),
        stragglers=tuple(with_reason(each, ranks, peers(communication.rows, len(ranks))) for each in late),
        step_ms=step_ms,
    )


def replay_of(recording: Recording, rank: RankResult) -> ReplayProblem | None:
    """Return a rank's replay without the profiler, None where none explains its trace."""
    rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    return replay_store.load(rows[0][0]) if rows and rank.best.estimate.value is not None else None


def _with_waits(communication: Communication, waits_ms: Mapping[int, float | None]) -> tuple[RankWaits, ...]:
    return tuple(replace(rank, unprofiled_wait_ms=waits_ms.get(rank.position)) for rank in communication.ranks)


def _notes(left_out: int, given_up: int) -> Iterator[str]:
    if left_out:
        yield f"{left_out} of the ranks cannot be replayed and are left out of the job's step; nobody waits for them in the profile."
    if given_up:
        yield f"{given_up} collectives of the ranks contradict each other's order and hold nobody up in the replay."


def peers(rows: pd.DataFrame, ranks: int) -> list[list[int]]:
    """Return, by position, the ranks with the same work by design: those joined by collectives.

    Where ranks also send to each other they are a pipeline, whose stages differ: then what joins all of them says nothing.
    """
    pipeline = bool((rows["name"] == SEND_RECEIVE).any())
    joined = list(range(ranks))

    def root(position: int) -> int:
        while joined[position] != position:
            position = joined[position]
        return position

    sets = rows[rows["name"] != SEND_RECEIVE].groupby("collective")["position"].agg(lambda each: tuple(sorted(each)))
    for together in set(sets):
        if not (pipeline and len(together) == ranks):
            for position in together[1:]:
                joined[root(position)] = root(together[0])
    return [[p for p in range(ranks) if root(p) == root(position)] for position in range(ranks)]

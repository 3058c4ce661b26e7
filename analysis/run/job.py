"""All ranks of a run as one job: replayed together for its step time, and for who holds it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.run.as_recorded import RecordedJob
from sawtooth.analysis.run.blame import blame
from sawtooth.analysis.run.collectives import SEND_RECEIVE
from sawtooth.analysis.run.coupled import Job, Meetings, Member
from sawtooth.analysis.run.model import Communication, RankResult
from sawtooth.analysis.run.own_time import OwnTime, as_quiet_as_others, own_time

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library

NOT_REPLAYED = (
    "Not every rank's trace can be replayed, so the job's step is not known from its ranks together, and no rank is blamed."
)


def as_one_job(library: Library, ranks: Sequence[RankResult], communication: Communication) -> Communication:
    """Return ``communication`` with the job's step and its stragglers, from the ranks' replays without the profiler.

    Without matched collectives nothing joins the ranks, and nothing is added.
    """
    if communication.rows.empty or len({rank.recording_id for rank in ranks}) < len(ranks):
        return communication  # one process with several devices is one host: its replay holds them together already
    members: list[Member] = []
    own: list[OwnTime] = []
    for rank, waits in zip(ranks, communication.ranks, strict=True):
        with library.open(rank.recording_id) as recording:
            rows = recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
            if not rows or rank.best.estimate.value is None:
                return replace(communication, notes=(*communication.notes, NOT_REPLAYED))
            counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
            # a replay's times begin with the recording's first
            offset_ns = (waits.clock_offset_ns or 0) - int(rank.info["first_ns"])
            members.append(Member(replay_store.load(rows[0][0]), rank.device, counted, offset_ns))
            talk = recording.frame(
                "SELECT g.gpu_op_id, g.start_ns, g.dur_ns FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) "
                "WHERE g.device = ? AND s.category = 'communication'",
                [rank.device],
            )
            own.append(own_time(recording, members[-1], talk))
    job = Job(members, Meetings.of(communication.rows, len(members)))
    hosts = [None if pd.isna(rank.info.get("host")) else str(rank.info["host"]) for rank in ranks]
    recorded = RecordedJob.of(communication.rows, len(ranks))
    late = blame(
        job=job,
        recorded=recorded,
        own=as_quiet_as_others(own),
        peers=peers(communication.rows, len(ranks)),
        ranks=[rank.rank for rank in ranks],
        hosts=hosts,
    )
    notes = communication.notes
    step_ms = job.step_ms()
    if job.given_up:
        notes += (f"{job.given_up} collectives of the ranks contradict each other's order and hold nobody up in the replay.",)
    waited = zip(communication.ranks, job.waits_ms(), strict=True)
    waits = tuple(replace(rank, unprofiled_wait_ms=ms) for rank, ms in waited)
    return replace(communication, ranks=waits, notes=notes, stragglers=late, step_ms=step_ms)


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

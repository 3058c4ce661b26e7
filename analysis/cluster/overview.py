"""A run of representative ranks, combined with the summaries of all ranks of its job.

The summaries add stragglers, missing ranks, and the time that the representatives wait for all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from sawtooth.analysis.cluster.reduction import JobOverview, overview_of
from sawtooth.analysis.run.job import Communication, RankGroup, RankWaits, Split, Straggler
from sawtooth.analysis.run.model import RankResult
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.schema import DataFolder

OF_ALL = (
    "Late ranks and waits come from the summaries of all {ranks:,} ranks. {here} of them have their own recordings in this run."
)
NOBODY = Communication(pd.DataFrame(), (), 0)


class JobRepresentatives(NamedTuple):
    """The representatives of a job with many ranks, and the communication of all ranks.

    ``lost`` is why the summaries could not be read, None if they were read.
    """

    ranks: list[RankResult]
    communication: Communication | None
    lost: str | None


def of_whole_job(
    folder: DataFolder, summaries_id: str, ranks: Sequence[RankResult], communication: Communication | None
) -> JobRepresentatives:
    """Return the representatives with the results of the summaries of all ranks.

    ``communication`` comes from the representatives' recordings. It is returned unchanged if every rank has a recording here,
    because replaying recordings together is more accurate. If the summaries cannot be read, it is returned with a note that
    says why.
    """
    try:
        overview = overview_of(folder.summaries_file(summaries_id))
    except SawtoothError as error:
        lost = str(error)
        return JobRepresentatives(
            list(ranks), communication and replace(communication, stragglers=(), notes=(*communication.notes, lost)), lost
        )
    communication_of_open = communication or replace(NOBODY, ranks=tuple(_waits_of(i, rank) for i, rank in enumerate(ranks)))
    position_of = {(rank.recording_id, rank.device): position for position, rank in enumerate(ranks)}
    of_job = {
        int(row.position): position_of[row.id, int(row.device)]
        for row in overview.ranks.itertuples()
        if (row.id, int(row.device)) in position_of
    }
    if len(of_job) == len(overview.ranks):
        return JobRepresentatives(
            list(ranks),
            replace(
                communication_of_open,
                notes=tuple(dict.fromkeys((*communication_of_open.notes, *overview.notes))),
                heat=overview.heat,
            ),
            None,
        )
    job = replace(
        communication_of_open,
        ranks=tuple(_with_job(waits, overview, of_job) for waits in communication_of_open.ranks),
        stragglers=tuple(
            straggler
            for straggler_of_part in overview.stragglers
            if (straggler := _straggler_here(straggler_of_part, of_job)) is not None
        ),
        split=overview.split
        and Split(_side(overview.split.early, of_job), _side(overview.split.late, of_job), overview.split.behind_ms),
        unmatched=overview.unmatched,
        notes=(OF_ALL.format(ranks=len(overview.ranks), here=len(of_job)), *overview.notes),
        heat=overview.heat,
        groups=overview.groups,
        schedule=overview.schedule,
        job_ranks=len(overview.ranks),
    )
    numbered = bool(overview.ranks["rank"].notna().all())
    waits_ms = overview.heat.groupby("rank")["wait_ms"].mean()
    key = {position_here: int(overview.ranks["rank"].iloc[p]) if numbered else p for p, position_here in of_job.items()}
    split = [_split(rank, float(waits_ms.get(key.get(i, -1), 0.0))) if i in key else rank for i, rank in enumerate(ranks)]
    return JobRepresentatives(split, job, None)


def _split(rank: RankResult, wait_ms: float) -> RankResult:
    """Return a representative whose exposed communication is split into waits and transfer.

    ``wait_ms`` is its wait for all ranks of the job, per step. The representatives alone cannot show this wait: most members of a
    collective are missing, so the shortest time among the representatives still includes waiting.
    """
    exposed_rows = [row for row in rank.ledger if row.owner == "exposed_comm"]
    exposed_ms = sum(row.ms_per_step or 0.0 for row in exposed_rows)
    if not exposed_ms:
        return rank
    waited = min(wait_ms / exposed_ms, 1.0)
    estimates = [row.ms_per_step_unprofiled_est for row in exposed_rows if row.ms_per_step_unprofiled_est is not None]
    parts = [
        replace(
            exposed_rows[0],
            cause=cause,
            ns=round(share * sum(row.ns for row in exposed_rows)),
            ms_per_step=share * exposed_ms,
            ms_per_step_unprofiled_est=share * sum(estimates) if estimates else None,
            share=share * sum(row.share for row in exposed_rows),
        )
        for cause, share in (("comm_wait", waited), ("comm_transfer", 1 - waited))
        if share
    ]
    other_rows = [row for row in rank.ledger if row.owner != "exposed_comm"]
    return replace(rank, ledger=sorted([*other_rows, *parts], key=lambda row: -row.ns), exposed_causes={})


def _straggler_here(straggler: Straggler, of_job: dict[int, int]) -> Straggler | None:
    """Return a straggler with the positions of its ranks among the representatives.

    None if none of its ranks is a representative and their rank numbers are not known.
    """
    positions = tuple(of_job[position] for position in straggler.positions if position in of_job)
    return replace(straggler, positions=positions) if positions or None not in straggler.ranks else None


def _side(side: RankGroup, of_job: dict[int, int]) -> RankGroup:
    return replace(side, positions=tuple(of_job[position] for position in side.positions if position in of_job))


def _waits_of(position: int, rank: RankResult) -> RankWaits:
    return RankWaits(position, rank.rank, rank.device, 0.0, 0.0, None, None)


def _with_job(waits: RankWaits, overview: JobOverview, of_job: dict[int, int]) -> RankWaits:
    position = next((p for p, position_here in of_job.items() if position_here == waits.position), None)
    if position is None:
        return waits
    row = overview.ranks.iloc[position]
    offset_ns = row["clock_offset_ns"]
    return replace(
        waits,
        wait_ms=float(row["wait_ms"]),
        late_ms=float(row["late_ms"]),
        last_share=None if pd.isna(row["last_share"]) else float(row["last_share"]),
        clock_offset_ns=None if pd.isna(offset_ns) else int(offset_ns),
    )

"""Open one rank of a run. Some causes of its lost time are known only from other ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.rank_causes import CausePieces, RankCauses
from sawtooth.analysis.store.rank_view import RankView


@contextmanager
def open_rank(library: Library, rank: RankResult, *, sums: bool = False) -> Iterator[RankView]:
    """Open a rank; ``sums`` adds the stored sums that screens show.

    Raises the errors of ``Library.open``.
    """
    with library.open(rank.recording_id, sums=sums, causes=causes_of([rank])) as recording:
        yield RankView(recording, rank.device, len(rank.counted), rank.gpu)


def causes_of(ranks: Sequence[RankResult]) -> RankCauses | None:
    """Return the causes of exposed communication for the ranks (devices) of one recording.

    None if the other ranks do not explain any of it.
    """
    # The ledger is empty if a failed check made the GPU records unusable.
    parts = [_intervals_of_cause(rank, cause) for rank in ranks if rank.ledger for cause in rank.exposed_causes]
    return RankCauses(tuple(parts)) if parts else None


def _intervals_of_cause(rank: RankResult, cause: str) -> CausePieces:
    row = next(row for row in rank.ledger if (row.owner, row.cause) == ("exposed_comm", cause))
    estimate_ms = row.ms_per_step_unprofiled_est
    starts, ends = rank.exposed_causes[cause]
    return CausePieces(
        device=rank.device,
        cause=cause,
        starts_ns=starts.tolist(),
        ends_ns=ends.tolist(),
        ns=row.ns,
        unprofiled_ns_per_step=None if estimate_ms is None else estimate_ms * 1e6,
        evidence=CAUSE_OF[cause].across_ranks,
    )

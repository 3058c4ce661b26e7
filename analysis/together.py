"""What several changes bring when they are made together: their gains do not add up, since removing one wait uncovers another."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.findings import Finding
from analysis.recordings import Library
from analysis.results import RankResult, whatif_of


def together_ms(library: Library, rank: RankResult, findings: Iterable[Finding]) -> float | None:
    """Return the step time in ms with the changes of all ``findings`` made, carried onto the run's best step time.

    None where there is no replay or no step time. A change that two findings share is made once.
    """
    edits = tuple(dict.fromkeys(edit for finding in findings for edit in finding.edits))
    if rank.best.ms is None:
        return None
    with library.open(rank.recording_id) as recording:
        whatif = whatif_of(recording, rank)
    if whatif is None:
        return None
    before, after = whatif.step_ms(), whatif.step_ms(edits)
    return rank.best.ms * after / before if before and after is not None else None

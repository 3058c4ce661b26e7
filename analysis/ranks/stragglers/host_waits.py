"""The waits of hosts in collectives on the CPU, such as those of gloo.

A host that arrives early at a barrier or broadcast on the CPU waits for the other hosts. The trace has the collective on a thread of
gloo, but no call on the host's own thread, so this wait looks like Python code. A collective on the CPU ends on all ranks after the
last one has arrived. So its shortest duration over the ranks is the transfer time, and the rest of a rank's duration is waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sawtooth.analysis.intervals import Intervals, overlaps, union
from sawtooth.analysis.knowledge.causes import HOST_CAUSES
from sawtooth.analysis.ranks.stragglers.own_time import LONG_GAP_NS, UNRECORDED
from sawtooth.analysis.replay.simulation import ReplayProblem

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

_ON_CPU = (
    "SELECT n.name, o.start_ns, o.dur_ns FROM cpu_ops o JOIN names n USING (name_id) "
    "WHERE o.kind = 'annotation' AND n.name LIKE 'gloo:%' ORDER BY o.start_ns"
)

CpuCollective = tuple[str, int, int]  # Name, start and duration in ns.


def cpu_collectives(recording: Recording) -> list[CpuCollective]:
    """Return the collectives on the CPU of a rank, in order of start."""
    return [(str(name), int(start), int(duration)) for name, start, duration in recording.rows(_ON_CPU)]


def host_waits(ranks: Sequence[Sequence[CpuCollective]]) -> list[Intervals]:
    """Return the waits of each rank for the other ranks in collectives on the CPU.

    The result has no waits if the ranks did not record the same collectives in the same order.
    """
    if len({tuple(name for name, _, _ in calls) for calls in ranks}) > 1:
        return [union([], [])] * len(ranks)
    durations = np.array([[duration for _, _, duration in calls] for calls in ranks], np.int64).reshape(len(ranks), -1)
    waits = durations - durations.min(axis=0, initial=np.iinfo(np.int64).max)
    starts = [np.array([start for _, start, _ in calls], np.int64) for calls in ranks]
    return [union(begin, begin + wait) for begin, wait in zip(starts, waits, strict=True)]


def without_host_waits(problem: ReplayProblem, waits: Intervals, first_ns: int) -> ReplayProblem:
    """Return ``problem`` without the host's ``waits``, which have the times of the recording's clock.

    The replay's clock starts at ``first_ns`` of the recording's clock. Only Python time in long gaps is removed, because a
    collective on the CPU may also run while the host does other work.
    """
    host = problem.host
    gaps = Intervals(host.end[np.maximum(host.pred, 0)] + first_ns, host.start + first_ns)
    shared = overlaps(gaps, waits)
    waited = np.bincount(shared.in_a, shared.ends - shared.starts, len(host)).astype(np.int64)
    python = HOST_CAUSES.index(UNRECORDED)
    long = (host.pred >= 0) & (host.gap_parts[:, python] >= LONG_GAP_NS)
    cut = np.where(long, np.minimum(waited, host.gap_parts[:, python]), 0)
    parts = host.gap_parts.copy()
    parts[:, python] -= cut
    return replace(problem, host=replace(host, gap=host.gap - cut, gap_parts=parts))

"""Joint replay of a job's ranks: each runs at its own speed and waits for others in collectives.

A rank's replay pauses at each of its matched collectives until all members have arrived. Then all members leave it together,
one transfer time after the last arrival. A late rank therefore delays the others, as it does in the job. A second replay without
the rank's lost time shows what the job gains.
NCCL requires that all ranks of a communicator launch its collectives in the same order, so the replay cannot block forever. If
recorded orders contradict each other, the replay abandons a collective and counts it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.replay.edits import Edit, apply
from sawtooth.analysis.replay.simulation import I32, I64, Replayed, ReplayProblem, step_spans, stepwise

Run = Generator[tuple[int, int], int, Replayed]


@dataclass(frozen=True)
class MatchedCollectives:
    """The collectives of a job, matched between its ranks.

    ``collective_of_op`` maps GPU operations to collectives, one mapping for each rank position. ``transfer_ns`` is the time that
    a collective takes after its last member has arrived. ``members`` is the number of recorded ranks of each collective.
    """

    collective_of_op: tuple[Mapping[int, int], ...]
    transfer_ns: Mapping[int, int]
    members: Mapping[int, int]

    @staticmethod
    def from_rows(rows: pd.DataFrame, ranks: int) -> MatchedCollectives:
        """Return the collectives in ``rows`` (of ``matching.match``)."""
        collective_of_op: list[dict[int, int]] = [{} for _ in range(ranks)]
        for position, op, collective in rows[["position", "gpu_op_id", "collective"]].itertuples(index=False):
            collective_of_op[position][int(op)] = int(collective)
        collectives = rows.drop_duplicates("collective")
        keys = collectives["collective"].tolist()
        return MatchedCollectives(
            tuple(collective_of_op),
            dict(zip(keys, collectives["shortest_ns"].astype(int).tolist(), strict=True)),
            dict(zip(keys, collectives["ranks"].astype(int).tolist(), strict=True)),
        )


@dataclass(frozen=True)
class Member:
    """One rank's replay without the profiler.

    It has the problem, the device, the counted steps, and the rank's clock minus the job's, in ns.
    """

    problem: ReplayProblem
    device: int
    counted: I32
    offset_ns: int


class _Counted(NamedTuple):
    """A rank's operations in counted steps.

    ``at`` is their index in the replay, ``nth`` their step (0 to ``steps`` − 1), and ``transfer_ns`` the transfer after all members
    have arrived (-1 if the operation is not a collective).
    """

    at: I64
    nth: I64
    steps: int
    transfer_ns: I64


@dataclass
class JointReplay:
    """All ranks of a job, ready for a joint replay with changes in some of them.

    ``unchanged`` are the runs without changes.
    """

    members: Sequence[Member]
    collectives: MatchedCollectives
    abandoned: int = 0
    unchanged: Sequence[Replayed] = ()
    _cache: dict[tuple[tuple[int, tuple[Edit, ...]], ...], NDArray[np.float64] | None] = field(default_factory=dict)

    def step_ms(self, edits: Mapping[int, Sequence[Edit]] | None = None) -> float | None:
        """Return the job's mean step in ms with ``edits`` of ranks (by position).

        None if no counted step can be timed.
        """
        steps = self.steps_ms(edits)
        return float(steps.mean()) if steps is not None and len(steps) else None

    def steps_ms(self, edits: Mapping[int, Sequence[Edit]] | None = None) -> NDArray[np.float64] | None:
        """Return the job's counted steps in ms; a step of the job ends when the last rank ends it."""
        key = tuple((position, tuple(rank_edits)) for position, rank_edits in sorted((edits or {}).items()))
        if key not in self._cache:
            changed = [apply(m.problem, tuple((edits or {}).get(i, ()))) for i, m in enumerate(self.members)]
            runs, abandoned = replay_together(changed, [m.offset_ns for m in self.members], self.collectives)
            if not key:
                self.abandoned, self.unchanged = abandoned, runs
            self._cache[key] = _steps_ms(self.members, changed, runs)
        return self._cache[key]

    def waits_ms(self) -> list[float | None]:
        """Return, by rank position, the ms per counted step that a rank waits for others in collectives.

        Overlapped waiting counts too. None without counted steps.
        """
        if self.steps_ms() is None:
            return [None] * len(self.members)
        waits: list[float | None] = []
        for position in range(len(self.members)):
            at, _, steps, transfers = self._counted(position)
            run, meets = self.unchanged[position], transfers >= 0
            waited = (run.op_end[at] - run.op_start[at] - transfers)[meets].sum()
            waits.append(float(waited) / steps / 1e6 if steps else None)
        return waits

    def common_wait_ms(self, window_ms: float) -> float:
        """Return the wait in collectives that all ranks have in common, in ms per counted step.

        It is the mean, over windows of ``window_ms``, of the shortest wait of any rank in the window. Only waiting without other
        GPU work counts. ``window_ms`` is the time that one utilization sample covers. Ranks have a common wait if they delay
        each other in turn, for example with many small collectives and hosts of varying speed.
        """
        step_ms = self.step_ms()
        if not step_ms:
            return 0.0
        single_ms = [self._alone_ms(i) for i in range(len(self.members))]
        steps = min(len(steps_of_rank) for steps_of_rank in single_ms)
        if not steps:
            return 0.0
        at_once = min(max(round(window_ms / step_ms), 1), steps)
        windows = np.lib.stride_tricks.sliding_window_view(
            [steps_of_rank[:steps] for steps_of_rank in single_ms], at_once, axis=1
        )
        return float(windows.mean(axis=2).min(axis=0).mean())

    def _alone_ms(self, position: int) -> NDArray[np.float64]:
        """Return, by counted step, the ms that a rank's GPU waits in collectives without other work."""
        at, nth, steps, transfers = self._counted(position)
        run = self.unchanged[position]
        start, end = run.op_start[at], run.op_end[at]
        arrived = np.where(transfers >= 0, np.maximum(start, end - transfers), start)
        return (_covered_ns(start, end, nth, steps) - _covered_ns(arrived, end, nth, steps)) / 1e6

    def _counted(self, position: int) -> _Counted:
        """Return a rank's operations in counted steps."""
        member, collective_of_op = self.members[position], self.collectives.collective_of_op[position]
        steps = np.intersect1d(member.counted, member.problem.steps)
        ops = member.problem.ops
        at = np.flatnonzero(np.isin(ops.step, steps))
        transfers = [
            self.collectives.transfer_ns[collective_of_op[op]] if op in collective_of_op else -1 for op in ops.op[at].tolist()
        ]
        return _Counted(at, np.searchsorted(steps, ops.step[at]), len(steps), np.array(transfers, np.int64))


def _covered_ns(start: I64, end: I64, group: I64, groups: int) -> NDArray[np.float64]:
    """Return, by group, the ns that its intervals cover; overlaps count once."""
    # shift the groups apart, so that no group overlaps the next
    group_shift = int(end.max(initial=0)) - int(start.min(initial=0)) + 1
    order = np.lexsort((start, group))
    start, end, group = (start + group * group_shift)[order], (end + group * group_shift)[order], group[order]
    reached = np.maximum.accumulate(np.concatenate(([start.min(initial=0)], end[:-1])))
    covered = np.zeros(groups)
    np.add.at(covered, group, np.maximum(end - np.maximum(start, reached), 0))
    return covered


def _steps_ms(
    members: Sequence[Member], problems: Sequence[ReplayProblem], runs: Sequence[Replayed]
) -> NDArray[np.float64] | None:
    """Return the job's steps in ms.

    If the ranks do not count the same steps, these are the steps of the rank with the longest mean.
    """
    spans = [step_spans(p, run, m.device, m.counted) for m, p, run in zip(members, problems, runs, strict=True)]
    counted = [
        (starts - m.offset_ns, ends - m.offset_ns) for (starts, ends), m in zip(spans, members, strict=True) if len(starts)
    ]
    if not counted:
        return None
    if len({len(starts) for starts, _ in counted}) > 1:
        return max(((ends - starts) / 1e6 for starts, ends in counted), key=lambda steps: float(steps.mean()))
    began, ended = np.max([starts for starts, _ in counted], axis=0), np.max([ends for _, ends in counted], axis=0)
    steps_ms: NDArray[np.float64] = (ended - began) / 1e6
    return steps_ms


def replay_together(
    problems: Sequence[ReplayProblem], offsets_ns: Sequence[int], collectives: MatchedCollectives
) -> tuple[list[Replayed], int]:
    """Replay all ``problems`` together; return the runs and the number of abandoned collectives.

    Each run is on its own clock. Ranks leave an abandoned collective before all members have arrived.
    """
    runs: list[Run] = []
    for problem, collective_of_op in zip(problems, collectives.collective_of_op, strict=True):
        node_of = {
            i: collective_of_op[op]
            for i, op in enumerate(problem.ops.op.tolist())
            if op in collective_of_op and problem.ops.node[i] >= 0
        }
        runs.append(stepwise(problem, node_of))
    results: list[Replayed | None] = [None] * len(runs)
    arrived: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by collective: (rank position, arrival on the job's clock)
    present = _present(problems, collectives)
    abandoned = 0
    going: list[tuple[int, int | None]] = [(position, None) for position in range(len(runs))]
    while True:
        while going:
            position, end = going.pop()
            try:
                collective, start = next(runs[position]) if end is None else runs[position].send(end + offsets_ns[position])
            except StopIteration as finished:
                results[position] = finished.value
                continue
            arrived[collective].append((position, start - offsets_ns[position]))
            if len(arrived[collective]) == present[collective]:
                going += _released(arrived, collective, collectives)
        if not arrived:
            break
        abandoned += 1  # the ranks that have waited longest continue without the others
        first = min(arrived, key=lambda collective: min(at for _, at in arrived[collective]))
        present[first] -= len(arrived[first])
        going += _released(arrived, first, collectives)
    return [run for run in results if run is not None], abandoned


def _present(problems: Sequence[ReplayProblem], collectives: MatchedCollectives) -> dict[int, int]:
    """Count, by collective, the ranks whose replay contains it.

    A replay may end before the recording does, or an edit may remove the collective.
    """
    count: dict[int, int] = defaultdict(int)
    for problem, collective_of_op in zip(problems, collectives.collective_of_op, strict=True):
        for op in problem.ops.op[problem.ops.node >= 0].tolist():
            if op in collective_of_op:
                count[collective_of_op[op]] += 1
    return count


def _released(
    arrived: dict[int, list[tuple[int, int]]], collective: int, collectives: MatchedCollectives
) -> list[tuple[int, int | None]]:
    members = arrived.pop(collective)
    end = max(at for _, at in members) + collectives.transfer_ns[collective]
    return [(position, end) for position, _ in members]

"""Joint replay of a job's ranks: each runs at its own speed and waits for others in collectives.

A rank's replay pauses at each of its matched collectives until all members have arrived. Then all members leave the collective
together, one transfer time after the last arrival. A late rank therefore delays the others, as it does in the job. A second replay
without the late rank's lost time shows what the job gains.

NCCL requires that all ranks of a communicator launch its collectives in the same order, so the replay cannot block forever. If
the recorded orders contradict each other, the replay abandons a collective: its ranks continue before all members have arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.intervals import intersect, union
from sawtooth.analysis.replay.edits import Edit, apply
from sawtooth.analysis.replay.simulation import I32, I64, Replayed, ReplayProblem, step_spans, stepwise

ReplayRun = Generator[tuple[int, int], int, Replayed]


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
    """One rank's part of the joint replay.

    ``problem`` is its replay without the profiler, ``counted`` has the numbers of its counted steps. ``offset_ns`` is its clock
    minus the job's.
    """

    problem: ReplayProblem
    device: int
    counted: I32
    offset_ns: int


class _CountedOps(NamedTuple):
    """A rank's operations in counted steps.

    ``at`` has their indices in the replay and ``nth`` the index of their step (0 to ``steps`` − 1). ``transfer_ns`` is the
    transfer time after all members have arrived, or -1 if the operation is not a collective.
    """

    at: I64
    nth: I64
    steps: int
    transfer_ns: I64


@dataclass
class JointReplay:
    """All ranks of a job, ready for joint replays with changes in some ranks.

    ``unchanged`` has each rank's replay without changes, and ``abandoned`` the number of collectives that it abandoned. Both are
    set by the first replay without changes.
    """

    members: Sequence[Member]
    collectives: MatchedCollectives
    abandoned: int = 0
    unchanged: Sequence[Replayed] = ()
    _cache: dict[tuple[tuple[int, tuple[Edit, ...]], ...], NDArray[np.float64] | None] = field(default_factory=dict)

    def step_ms(self, edits: Mapping[int, Sequence[Edit]] | None = None) -> float | None:
        """Return the job's mean step in ms; ``edits`` are changes of ranks, by position.

        None if no counted step can be timed.
        """
        steps = self.steps_ms(edits)
        return float(steps.mean()) if steps is not None and len(steps) else None

    def steps_ms(self, edits: Mapping[int, Sequence[Edit]] | None = None) -> NDArray[np.float64] | None:
        """Return the durations of the job's counted steps in ms; a step ends when its last rank has ended it."""
        key = tuple((position, tuple(rank_edits)) for position, rank_edits in sorted((edits or {}).items()))
        if key not in self._cache:
            changed = [apply(m.problem, tuple((edits or {}).get(i, ()))) for i, m in enumerate(self.members)]
            runs, abandoned = replay_together(changed, [m.offset_ns for m in self.members], self.collectives)
            if not key:
                self.abandoned, self.unchanged = abandoned, runs
            self._cache[key] = _steps_ms(self.members, changed, runs)
        return self._cache[key]

    def waits_ms(self) -> list[float | None]:
        """Return, by rank position, how long the rank waits for others in collectives, in ms per counted step.

        Waits that overlap with kernels count too. None without counted steps.
        """
        if self.steps_ms() is None:
            return [None] * len(self.members)
        waits: list[float | None] = []
        for position in range(len(self.members)):
            at, _, steps, transfers = self._counted_ops(position)
            run, meets = self.unchanged[position], transfers >= 0
            waited = (run.op_end[at] - run.op_start[at] - transfers)[meets].sum()
            waits.append(float(waited) / steps / 1e6 if steps else None)
        return waits

    def idle_ms(self) -> list[float | None]:
        """Return, by rank position, the time in which its GPU runs nothing, in ms per counted step.

        A collective runs while it waits. None without counted steps.
        """
        if self.steps_ms() is None:
            return [None] * len(self.members)
        return [_idle_ms(member, run) for member, run in zip(self.members, self.unchanged, strict=True)]

    def common_wait_ms(self, window_ms: float) -> float:
        """Return the wait in collectives that all ranks have in common, in ms per counted step.

        In each window of ``window_ms``, the common wait is the shortest wait of any rank. The result is the mean over the
        windows. Only waiting without other GPU work counts. ``window_ms`` is the time that one utilization sample covers. Ranks
        have a common wait if they delay each other in turn, for example with many small collectives and hosts of varying speed.
        """
        step_ms = self.step_ms()
        if not step_ms:
            return 0.0
        waits_ms = [self._exposed_waits_ms(i) for i in range(len(self.members))]
        steps = min(len(waits_of_rank) for waits_of_rank in waits_ms)
        if not steps:
            return 0.0
        steps_per_window = min(max(round(window_ms / step_ms), 1), steps)
        windows = np.lib.stride_tricks.sliding_window_view(
            [waits_of_rank[:steps] for waits_of_rank in waits_ms], steps_per_window, axis=1
        )
        return float(windows.mean(axis=2).min(axis=0).mean())

    def _exposed_waits_ms(self, position: int) -> NDArray[np.float64]:
        """Return, by counted step, how long a rank's GPU waits in collectives without other work, in ms."""
        at, nth, steps, transfers = self._counted_ops(position)
        run = self.unchanged[position]
        start, end = run.op_start[at], run.op_end[at]
        arrived = np.where(transfers >= 0, np.maximum(start, end - transfers), start)
        return (_covered_ns(start, end, nth, steps) - _covered_ns(arrived, end, nth, steps)) / 1e6

    def _counted_ops(self, position: int) -> _CountedOps:
        """Return a rank's operations in counted steps."""
        member, collective_of_op = self.members[position], self.collectives.collective_of_op[position]
        steps = np.intersect1d(member.counted, member.problem.steps)
        ops = member.problem.ops
        at = np.flatnonzero(np.isin(ops.step, steps))
        transfers = [
            self.collectives.transfer_ns[collective_of_op[op]] if op in collective_of_op else -1 for op in ops.op[at].tolist()
        ]
        return _CountedOps(at, np.searchsorted(steps, ops.step[at]), len(steps), np.array(transfers, np.int64))


def _idle_ms(member: Member, run: Replayed) -> float | None:
    """Return the mean time per counted step in which the member's GPU runs nothing, in ms."""
    problem = member.problem
    starts, ends = step_spans(problem, run, member.device, member.counted)
    if not len(starts):
        return None
    on_device = np.array([device == member.device for device, _ in problem.streams], dtype=bool)[problem.ops.stream]
    steps, works = union(starts, ends), union(run.op_start[on_device], run.op_end[on_device])
    return (steps.total - intersect(steps, works).total) / len(starts) / 1e6


def _covered_ns(start: I64, end: I64, group: I64, groups: int) -> NDArray[np.float64]:
    """Return, by group, the ns that its intervals cover; overlaps count once."""
    # Shift the groups in time, so that no group overlaps the next one.
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
    """Return the durations of the job's steps in ms.

    If the ranks do not count equally many steps, these are the steps of the rank with the longest mean step.
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
    """Replay all ``problems`` together; return each rank's replay and the number of abandoned collectives.

    Each replay has the times of its own rank's clock. Ranks leave an abandoned collective before all members have arrived.
    """
    runs: list[ReplayRun] = []
    for problem, collective_of_op in zip(problems, collectives.collective_of_op, strict=True):
        node_of = {
            i: collective_of_op[op]
            for i, op in enumerate(problem.ops.op.tolist())
            if op in collective_of_op and problem.ops.node[i] >= 0
        }
        runs.append(stepwise(problem, node_of))
    results: list[Replayed | None] = [None] * len(runs)
    # By collective: (position of the rank, arrival on the job's clock).
    arrived: dict[int, list[tuple[int, int]]] = defaultdict(list)
    expected = _count_present_ranks(problems, collectives)
    abandoned = 0
    to_resume: list[tuple[int, int | None]] = [(position, None) for position in range(len(runs))]
    while True:
        while to_resume:
            position, end = to_resume.pop()
            try:
                collective, start = next(runs[position]) if end is None else runs[position].send(end + offsets_ns[position])
            except StopIteration as finished:
                results[position] = finished.value
                continue
            arrived[collective].append((position, start - offsets_ns[position]))
            if len(arrived[collective]) == expected[collective]:
                to_resume += _release(arrived, collective, collectives)
        if not arrived:
            break
        abandoned += 1  # All ranks wait, so the ranks that have waited longest continue without the others.
        first = min(arrived, key=lambda collective: min(at for _, at in arrived[collective]))
        expected[first] -= len(arrived[first])
        to_resume += _release(arrived, first, collectives)
    return [run for run in results if run is not None], abandoned


def _count_present_ranks(problems: Sequence[ReplayProblem], collectives: MatchedCollectives) -> dict[int, int]:
    """Count, for each collective, the ranks whose replay contains it.

    A rank's replay may lack a collective because it ends before the recording, or because an edit removes the collective.
    """
    count: dict[int, int] = defaultdict(int)
    for problem, collective_of_op in zip(problems, collectives.collective_of_op, strict=True):
        for op in problem.ops.op[problem.ops.node >= 0].tolist():
            if op in collective_of_op:
                count[collective_of_op[op]] += 1
    return count


def _release(
    arrived: dict[int, list[tuple[int, int]]], collective: int, collectives: MatchedCollectives
) -> list[tuple[int, int | None]]:
    """Remove ``collective`` from ``arrived``; return its members' positions, each with its end."""
    members = arrived.pop(collective)
    end = max(at for _, at in members) + collectives.transfer_ns[collective]
    return [(position, end) for position, _ in members]

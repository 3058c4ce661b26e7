"""The staircase of a run: the step now, and the step after each combination of its first changes.

The page draws it and lets the user leave out changes. All choices are computed in advance, so the browser needs no server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.timeline_sums import GPU
from sawtooth.analysis.findings.plan import with_earlier_uncertainty
from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.remaining import ReplayedStep
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.run.model import Finding, PlanStep, RankResult, RunResult
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.run_analysis import whatif_of
from sawtooth.analysis.store.library import Library

MAX_CHANGES = 6  # This gives 64 choices. With more, the replays would take longer than the rest of the analysis.
# Host calls and operations. In a larger replay, only single changes and the plan's steps get replayed intervals. An interval
# takes up to two more replays of 1 µs per event.
MANY_EVENTS = 40_000
UNEXPLAINED = ("idle", UNATTRIBUTED)

Parts = tuple[tuple[str, str | None, float], ...]


@dataclass(frozen=True)
class StairStep:
    """The step with some changes: its time, its interval, and its parts (owner, cause, ms).

    The parts sum to ``ms``. Time that the replay does not explain has the owner idle and the cause unattributed. ``limit`` means
    that ``ms`` is only the shortest possible step.
    """

    ms: float
    low_ms: float | None
    high_ms: float | None
    parts: Parts
    limit: bool = False


@dataclass(frozen=True)
class Staircase:
    """The changes in order (by rule), and the step after each choice of changes.

    The first ``planned`` changes are the plan's. In a key of ``choices``, bit i means change i. If choices are missing, only the
    plan's steps are known.
    """

    changes: tuple[str, ...]
    planned: int
    choices: Mapping[int, StairStep]

    @property
    def now(self) -> StairStep:
        """The step without any change."""
        return self.choices[0]

    @property
    def planned_choice(self) -> int:
        """The choice of all changes of the plan."""
        return (1 << self.planned) - 1

    @property
    def complete(self) -> bool:
        """Whether every choice is known, so that a user can leave changes out."""
        return len(self.choices) == 1 << len(self.changes)


def staircase_of(library: Library, result: RunResult, *, every_choice: bool = True) -> Staircase | None:
    """Return the staircase of ``result``; None if the step time or its parts are not known.

    Without ``every_choice``, only the steps of the plan are computed.
    """
    rank = result.lead
    verdict = judge(rank) if rank is not None else None
    if rank is None or verdict is None or not rank.best.ms or result.withdrawn_by is not None:
        return None
    now = _now(rank, [(part.owner, part.cause, part.ms) for part in verdict.parts])
    by_rule = {finding.rule: finding for finding in result.findings}
    planned = [step.rule for step in result.plan][:MAX_CHANGES]
    unsure = [f.rule for f in result.findings if f.edits and f.claims == "gain" and f.rule not in planned]
    changes = tuple([*planned, *unsure][:MAX_CHANGES])
    prepares = {step.rule for step in result.plan if step.prepares}
    edits = [() if rule in prepares else by_rule[rule].edits for rule in changes]
    if not changes:
        return Staircase((), 0, {0: now})
    with library.open(rank.recording_id) as recording:
        whatif = whatif_of(recording, rank)
        if whatif is None:
            return Staircase((), 0, {0: now})
        owners = recording.rows(f"SELECT id, kind FROM {GPU} WHERE device = ?", [rank.device])
    owner_of = np.full(max((int(op) for op, _ in owners), default=-1) + 2, "", dtype=object)
    for op, owner in owners:
        owner_of[op] = owner
    shown_choices = [(1 << count) - 1 for count in range(1, len(planned) + 1)]
    if every_choice or not planned:
        shown_choices = list(range(1, 1 << len(changes)))
    at = {rule: place for place, rule in enumerate(changes)}
    needs = [{at[first] for first in _needed(by_rule[rule]) if first in at} for rule in changes]
    builder = _Builder(whatif, rank.best, now, edits, needs, owner_of)
    choices: dict[int, StairStep] = {0: now}
    for choice in shown_choices:
        if (step := builder.step(choice, choices)) is None:
            return Staircase((), 0, {0: now})
        choices[choice] = step
    return Staircase(changes, len(planned), choices)


def _needed(finding: Finding) -> tuple[str, ...]:
    """Return the rules whose changes must be made for the gain of ``finding``."""
    return finding.needs_first if finding.pays_later else finding.enabled_by


def _now(rank: RankResult, parts: Sequence[tuple[str, str | None, float]]) -> StairStep:
    """Return the step without changes, its parts scaled to the run's step time."""
    ms, reading = rank.best.ms or 0.0, rank.metrics["best_step_time_ms"]
    total_ms = math.fsum(part[2] for part in parts) or 1.0
    return StairStep(ms, reading.low, reading.high, tuple((owner, cause, part * ms / total_ms) for owner, cause, part in parts))


@dataclass(frozen=True)
class _Builder:
    """Computes the step after each choice of changes of one run."""

    whatif: WhatIf
    best: BestStepTime
    now: StairStep
    edits: Sequence[tuple[Edit, ...]]
    needs: Sequence[set[int]]  # Changes without which a change cannot be made.
    owner_of: NDArray[np.object_]

    def step(self, choice: int, known: Mapping[int, StairStep]) -> StairStep | None:
        """Return the step with the changes of ``choice``; ``known`` has the choices with fewer changes."""
        chosen = {i for i in range(len(self.edits)) if choice >> i & 1}
        members = sorted(i for i in chosen if self.needs[i] <= chosen)
        edits = tuple(dict.fromkeys(edit for i in members for edit in self.edits[i]))
        earlier_choices = [choice & ((1 << i) - 1) for i in members]
        if not edits:
            return known.get(earlier_choices[-1], self.now) if earlier_choices else self.now
        ms = self.whatif.predict_ms(self.best, edits)
        after = self.whatif.parts_of(self.best, edits, self.owner_of) if ms is not None else None
        if ms is None or ms <= 0:
            return None
        parts = self._parts(ms, after)
        return StairStep(
            ms, *self._interval(ms, edits, [known[c] for c in earlier_choices if c and c in known], members), parts
        )

    def _interval(
        self, ms: float, edits: tuple[Edit, ...], earlier_steps: Sequence[StairStep], members: Sequence[int]
    ) -> tuple[float, float]:
        """Return the interval of the step with ``edits`` after the ``earlier_steps``, as in the plan."""
        steps = [PlanStep("", 0.0, step.ms, step.low_ms or step.ms, step.high_ms or step.ms) for step in earlier_steps]
        least_ms = self.whatif.least_ms(self.best, edits)
        in_order = members == list(range(len(members)))
        if in_order or len(members) == 1 or self._events <= MANY_EVENTS:
            replayed_range = self.whatif.predict_range_ms(self.best, edits) or (ms, ms)
            step = PlanStep("", 0.0, ms, *self.whatif.range_of_another_run_ms(self.best, edits, replayed_range))
        else:
            step = PlanStep("", 0.0, ms, ms, ms)
        step = with_earlier_uncertainty(step, steps, least_ms)
        return min(step.predicted_low_ms, ms), max(step.predicted_high_ms, ms)

    @property
    def _events(self) -> int:
        return len(self.whatif.problem.host) + len(self.whatif.problem.ops)

    def _parts(self, ms: float, after: ReplayedStep | None) -> Parts:
        """Return the parts after the changes: today's parts, changed as in the replay.

        They sum to ``ms``. If the replay's waits are shorter than the predicted waits, the difference is unattributed.
        """
        recorded = self.whatif.parts_of(self.best, (), self.owner_of)
        if recorded is None or after is None:
            return (*UNEXPLAINED, ms),  # fmt: skip
        work = {
            (o, c): part_ms * _ratio(recorded.work, after.work, o) for o, c, part_ms in self.now.parts if o not in LOST_OWNERS
        }
        work = {key: part_ms for key, part_ms in work.items() if key[0] != OUTSIDE_PROFILE}
        work_ms = math.fsum(work.values())
        if work_ms > ms:
            work, work_ms = {key: part_ms * ms / work_ms for key, part_ms in work.items()}, ms
        waits = {
            (o, c): part_ms * self._wait_ratio(recorded, after, o, c) for o, c, part_ms in self.now.parts if (o, c) not in work
        }
        causes = {cause for _, cause in waits}
        for cause, wait in after.waits.items():  # This wait does not exist today.
            if cause not in causes and wait > 0 and not recorded.waits.get(cause):
                waits["idle", cause] = wait
        wait_ms, idle_ms = math.fsum(waits.values()), ms - work_ms
        if wait_ms > idle_ms:
            waits = {key: part_ms * idle_ms / wait_ms for key, part_ms in waits.items()}
        else:
            waits[UNEXPLAINED] = waits.get(UNEXPLAINED, 0.0) + idle_ms - wait_ms
        return tuple((owner, cause, part_ms) for (owner, cause), part_ms in (work | waits).items() if part_ms > 0)

    def _wait_ratio(self, recorded: ReplayedStep, after: ReplayedStep, owner: str, cause: str | None) -> float:
        """Return the share of a wait that remains: of this wait in the replay, or of all if it has none."""
        if owner == OUTSIDE_PROFILE and not self.best.represented:
            return 1.0
        if owner != "idle" and recorded.work.get(owner):
            return _ratio(recorded.work, after.work, owner)
        if cause is not None and recorded.waits.get(cause):
            return _ratio(recorded.waits, after.waits, cause)
        waits_before, waits_after = math.fsum(recorded.waits.values()), math.fsum(after.waits.values())
        return min(waits_after / waits_before, 1.0) if waits_before else 1.0


def _ratio(recorded: Mapping[str, float], after: Mapping[str, float], key: str) -> float:
    """Return the part ``key`` after the changes ÷ before; 1 if it was 0 before."""
    return after.get(key, 0.0) / recorded[key] if recorded.get(key) else 1.0

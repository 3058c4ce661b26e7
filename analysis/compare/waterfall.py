"""Parts of a step time's change, for the run's step and for the profiled steps.

In both cases the parts sum exactly to the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import (
    HOST_OPERATORS,
    HOST_PARTS,
    HOST_REST,
    KERNEL_OWNERS,
    LOST_OWNERS,
    OUTSIDE_PROFILE,
    OWNER_KEYS,
)
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.scaled_ledger import unseen_ms
from sawtooth.analysis.run.verdict import uses_estimate

UNSEEN_OWNER = "idle"  # Owner of the ledger's row that also contains time which no profiled step shows.
MOSTLY_NEW = 0.5  # Share of a finding's gain. If no part of the finding's kind grew by this share, A had the problem too.
MOSTLY_GONE = 0.1  # Share of its cause's time in A. A fixed finding leaves no more than this in B.
ROUNDING = 1e-6  # Share of the step, for the floating-point error of a ledger's sum. No real part is that small.

Part = tuple[str, str | None]


@dataclass(frozen=True)
class RunRow:
    """One owner and cause of the run's step, exact ms per step.

    The owner ``OUTSIDE_PROFILE`` is time that no profiled step shows. ``scaled_ms`` is the time by which the part was shortened to
    fit the runs' own steps, summed over both sides.
    """

    owner: str
    cause: str | None
    ms_a: Fraction
    ms_b: Fraction
    scaled_ms: Fraction = Fraction(0)

    @property
    def change_ms(self) -> Fraction:
        """B − A."""
        return self.ms_b - self.ms_a

    @property
    def resolved(self) -> bool:
        """Whether the change is larger than the scaling of the parts can explain."""
        return not self.scaled_ms or abs(self.change_ms) > self.scaled_ms


@dataclass(frozen=True)
class WaterfallRow:
    """One owner and cause in the profiled steps, exact ns per step.

    ``unprofiled_ms_a`` and ``unprofiled_ms_b`` are ms per step in the replays without the profiler's cost.
    """

    owner: str
    cause: str | None
    ns_a: Fraction
    ns_b: Fraction
    unprofiled_ms_a: float | None
    unprofiled_ms_b: float | None

    @property
    def change_ns(self) -> Fraction:
        """B − A, ns per step."""
        return self.ns_b - self.ns_a

    @property
    def unprofiled_change_ms(self) -> float | None:
        """B − A in the replays, or None if either side has no replay."""
        if self.unprofiled_ms_a is None or self.unprofiled_ms_b is None:
            return None
        return self.unprofiled_ms_b - self.unprofiled_ms_a


def run_waterfall(a: Sequence[RunResult], b: Sequence[RunResult]) -> tuple[RunRow, ...]:
    """Return the parts of both runs' own steps, as means over the runs of a side.

    The parts of a side sum to its best step time. So the changes of the parts sum to the change of the best step time.
    The result is empty if a side has no step time.
    """
    side_a, side_b = (_parts_of_side(runs) for runs in (a, b))
    if side_a is None or side_b is None:
        return ()
    (parts_a, scaled_a), (parts_b, scaled_b) = side_a, side_b
    if any(run.lead is None and run.host is None for run in (*a, *b)):  # Step marks alone do not show operators.
        parts_a, parts_b = (_without_operators(parts) for parts in (parts_a, parts_b))
        scaled_a, scaled_b = (_without_operators(parts) for parts in (scaled_a, scaled_b))
    zero = Fraction(0)
    keys = _in_ledger_order({**parts_a, **parts_b}, lambda key: max(parts_a.get(key, zero), parts_b.get(key, zero)))
    return tuple(
        RunRow(*key, parts_a.get(key, zero), parts_b.get(key, zero), scaled_a.get(key, zero) + scaled_b.get(key, zero))
        for key in keys
    )


def is_grown(finding: Finding, rows: Sequence[RunRow]) -> bool:
    """Return whether B's step has more time of a finding's causes than A's.

    If the finding has no causes, all kernels count. True if this cannot be decided: there are no parts, or the finding
    states no time.
    """
    stake = max(finding.ceiling_ms_per_step or 0.0, finding.gain_ms)
    causes = finding.explains.causes
    rows_of_finding = [row for row in rows if (row.cause in causes if causes else row.owner in KERNEL_OWNERS)]
    return not stake or not rows_of_finding or any(row.change_ms >= MOSTLY_NEW * stake for row in rows_of_finding)


def is_gone(finding: Finding, rows: Sequence[RunRow]) -> bool:
    """Return whether B no longer loses the time that A lost by the finding's causes.

    False if the finding names no cause, or if A's step shows no such time.
    """
    rows_of_finding = [row for row in rows if row.cause in finding.explains.causes]
    ms_a, ms_b = (sum(ms, Fraction(0)) for ms in ([row.ms_a for row in rows_of_finding], [row.ms_b for row in rows_of_finding]))
    return ms_a - ms_b >= MOSTLY_NEW * finding.gain_ms and ms_a > 0 and ms_b <= MOSTLY_GONE * ms_a


def _without_operators(parts: Mapping[Part, Fraction]) -> dict[Part, Fraction]:
    """Return the parts with the host's operators merged into its other work."""
    joined: dict[Part, Fraction] = {}
    for (owner, cause), ms in parts.items():
        key = (HOST_REST if owner == HOST_OPERATORS else owner, cause)
        joined[key] = joined.get(key, Fraction(0)) + ms
    return joined


def _parts_of_side(runs: Sequence[RunResult]) -> tuple[dict[Part, Fraction], dict[Part, Fraction]] | None:
    """Return the mean parts of a side's steps, and by how much each was scaled.

    None if a run has no step time.
    """
    parts: dict[Part, Fraction] = {}
    scaled: dict[Part, Fraction] = {}
    for run in runs:
        step_ms = run.metrics["best_step_time_ms"].value
        if step_ms is None:
            return None
        host: dict[Part, Fraction] = {(part, None): Fraction(ms) for part, ms in host_parts(run).items()}
        run_parts = _parts_of_run(run.lead, Fraction(step_ms), host)
        fitted = _fit_to_step(run_parts, Fraction(step_ms))
        for key, ms in fitted.items():
            parts[key] = parts.get(key, Fraction(0)) + ms / len(runs)
            scaled[key] = scaled.get(key, Fraction(0)) + max(run_parts.get(key, ms) - ms, Fraction(0)) / len(runs)
    return parts, scaled


def _parts_of_run(rank: RankResult | None, step_ms: Fraction, host: Mapping[Part, Fraction]) -> dict[Part, Fraction]:
    """Return the parts of a run's step by the column of its ledger that represents the step.

    Without GPU work, they are the parts of the ``host``'s time. They may be longer than the step. Time that no profiled step
    shows becomes ``OUTSIDE_PROFILE``.
    """
    parts: dict[Part, Fraction] = dict(host)
    replayed = rank is not None and uses_estimate(rank)
    for row in rank.ledger if rank is not None and len(rank.counted) else ():
        ms = row.ms_per_step_unprofiled_est if replayed else row.ms_per_step
        if ms:
            parts[row.owner, row.cause] = parts.get((row.owner, row.cause), Fraction(0)) + Fraction(ms)
    if rank is not None and replayed and (UNSEEN_OWNER, UNATTRIBUTED) in parts:
        unseen = min(Fraction(unseen_ms(rank.ledger, rank.best)), parts[UNSEEN_OWNER, UNATTRIBUTED])
        parts[UNSEEN_OWNER, UNATTRIBUTED] -= unseen
        parts[OUTSIDE_PROFILE, None] = unseen
    remaining_ms = step_ms - sum(parts.values())
    if parts and abs(remaining_ms) <= ROUNDING * step_ms:
        largest = max(parts, key=lambda key: parts[key])
        parts[largest] += remaining_ms
    elif remaining_ms >= 0:
        parts[OUTSIDE_PROFILE, None] = parts.get((OUTSIDE_PROFILE, None), Fraction(0)) + remaining_ms
    return {key: ms for key, ms in parts.items() if ms}


def _fit_to_step(parts: Mapping[Part, Fraction], step_ms: Fraction) -> dict[Part, Fraction]:
    """Return the parts, shrunk if they are longer than the step."""
    fitted = _shrunk(parts, step_ms) if sum(parts.values()) > step_ms else parts
    return {key: ms for key, ms in fitted.items() if ms}


def _shrunk(parts: Mapping[Part, Fraction], step_ms: Fraction) -> dict[Part, Fraction]:
    """Shrink the parts to a shorter step.

    The profiler slows the host, so lost time shrinks first. The GPU's work shrinks only if it alone is longer than the step.
    """
    works = sum((ms for (owner, _), ms in parts.items() if owner not in LOST_OWNERS), Fraction(0))
    lost = sum(parts.values(), Fraction(0)) - works
    of_lost = max(step_ms - works, Fraction(0)) / lost if lost else Fraction(0)
    of_work = min(Fraction(1), step_ms / works) if works else Fraction(1)
    return {(owner, cause): ms * (of_lost if owner in LOST_OWNERS else of_work) for (owner, cause), ms in parts.items()}


def profile_step_ns(runs: Sequence[RunResult]) -> Fraction | None:
    """Return the mean device step of the profiles in ns, averaged over the runs, or None without steps.

    A run's mean is its steady window divided by its number of counted steps.
    """
    leads = [run.lead for run in runs]
    if not all(lead is not None and len(lead.counted) for lead in leads):
        return None
    return sum((Fraction(lead.window_ns, len(lead.counted)) for lead in leads if lead), Fraction(0)) / len(leads)


def profile_waterfall(a: Sequence[RunResult], b: Sequence[RunResult]) -> tuple[WaterfallRow, ...]:
    """Return the parts of the profiled steps.

    Their changes sum exactly to the change of the mean device step.
    """
    if profile_step_ns(a) is None or profile_step_ns(b) is None:
        return ()
    sides = [_ledger(a), _ledger(b)]
    keys = _in_ledger_order(
        {**sides[0], **sides[1]}, lambda key: max(side[key][0] if key in side else Fraction(0) for side in sides)
    )
    replayed = [any(ms is not None for _, ms in side.values()) for side in sides]
    rows = []
    for key in keys:
        (ns_a, ms_a), (ns_b, ms_b) = (
            side.get(key, (Fraction(0), 0.0 if is_replayed else None))
            for side, is_replayed in zip(sides, replayed, strict=True)
        )
        rows.append(WaterfallRow(owner=key[0], cause=key[1], ns_a=ns_a, ns_b=ns_b, unprofiled_ms_a=ms_a, unprofiled_ms_b=ms_b))
    return tuple(rows)


def _ledger(runs: Sequence[RunResult]) -> dict[Part, tuple[Fraction, float | None]]:
    """Return the exact ns per step and the ms per step without the profiler, averaged over the runs.

    The keys are (owner, cause).
    """
    exact: dict[Part, Fraction] = {}
    replayed: dict[Part, float] = {}
    leads = [run.lead for run in runs if run.lead is not None]
    everywhere = all(any(row.ms_per_step_unprofiled_est is not None for row in lead.ledger) for lead in leads)
    for lead in leads:
        for row in lead.ledger:
            key = (row.owner, row.cause)
            exact[key] = exact.get(key, Fraction(0)) + Fraction(row.ns, len(lead.counted) * len(leads))
            replayed[key] = replayed.get(key, 0.0) + (row.ms_per_step_unprofiled_est or 0.0) / len(leads)
    return {key: (ns, replayed[key] if everywhere else None) for key, ns in exact.items()}


def _in_ledger_order(keys: Iterable[Part], longer: Callable[[Part], Fraction]) -> list[Part]:
    """Return the keys in the ledger's order, with ``OUTSIDE_PROFILE`` last.

    Within an owner, the longer part comes first.
    """
    owners = (*OWNER_KEYS, *HOST_PARTS, OUTSIDE_PROFILE)
    return sorted(keys, key=lambda key: (owners.index(key[0]), -longer(key), key[1] or ""))

"""Differences in how two runs were set up, and the part of the step time's change that each explains.

Each part of the step's change counts once. Differences that act on the same part explain it together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from sawtooth.analysis.compare.changed.setup_traits import COMPUTE, IN_WORKERS, Trait
from sawtooth.analysis.compare.waterfall import RunRow
from sawtooth.analysis.run.model import Finding

SYMPTOM = "reads"  # Key of the copies to the host. They are an effect of another difference, so they come after it.
PADDING = "padding"  # Key of the difference in sizes of layers.
MAX_NAMED_SIZES = 3  # Sizes that a line names.
MIN_PART_SHARE = Fraction(1, 100)  # Share of the step's change. A smaller part is within the rounding of a replay.


@dataclass(frozen=True)
class SetupDifference:
    """One difference between two runs.

    It is either a choice or a finding. For a choice, ``what`` names it, ``a`` and ``b`` are its values in words, and
    ``amount`` is B's value if it is a number. A ``finding`` is a finding that only A has; if ``of_b`` is true, only B.
    """

    key: str
    what: str
    a: str | None
    b: str | None
    rules: tuple[str, ...]
    explains: tuple[str, ...]
    finding: Finding | None = None
    amount: float | None = None
    of_b: bool = False

    @property
    def argument(self) -> bool:
        """Whether this difference is in the command line.

        A user typed it, but a recording does not show which part of a step it acts on.
        """
        return self.key.partition(" ")[0] == "argument"


@dataclass(frozen=True)
class Effect:
    """Differences and the parts of the step's change that they act on.

    ``share`` is their share of that change; None if they act on no part.
    """

    differences: tuple[SetupDifference, ...]
    parts: tuple[RunRow, ...]
    share: float | None


def differences(
    a: Sequence[Trait],
    b: Sequence[Trait],
    advice: Sequence[Finding],
    fixed: Sequence[Finding],
    resized: Mapping[int, int] = MappingProxyType({}),
    *,
    of_b: bool = False,
) -> tuple[SetupDifference, ...]:
    """Return each difference once: changed traits and sizes first, then A's advice that B no longer needs.

    ``advice`` are A's findings. If a finding advises the change that was made, its rule is listed in that difference.
    ``fixed`` are the findings that B no longer has. If ``of_b`` is true, the sides are exchanged: ``advice`` are B's
    findings, and ``fixed`` those that A does not have. ``resized`` maps A's size of each changed layer to B's.
    """
    values = {trait.key: trait for trait in a}
    set_up = [
        SetupDifference(
            trait.key,
            *trait.compared_values(values[trait.key]),
            tuple(finding.rule for finding in advice if (values[trait.key] if of_b else trait).is_advised_by(finding)),
            trait.explains,
            amount=trait.amount,
        )
        for trait in b
        if trait.key in values and trait.differs_from(values[trait.key])
    ]
    set_up += _of_sizes(resized, advice)
    covered = {rule for difference in set_up for rule in difference.rules}
    followed = [
        SetupDifference(finding.rule, finding.title, None, None, (finding.rule,), finding.explains.causes, finding, of_b=of_b)
        for finding in fixed
        if finding.severity != "info" and finding.claims != "caution" and finding.rule not in covered
    ]
    return (*set_up, *followed)


def _of_sizes(resized: Mapping[int, int], advice: Sequence[Finding]) -> list[SetupDifference]:
    """Return the changed sizes of layers as one difference, largest change first; none without a change."""
    if not resized:
        return []
    order = sorted(resized, key=lambda size: (-abs(resized[size] / size - 1), size))[:MAX_NAMED_SIZES]
    sizes_a, sizes_b = (", ".join(f"{size:,}" for size in sizes) for sizes in (order, [resized[size] for size in order]))
    rules = tuple(finding.rule for finding in advice if PADDING in finding.explains.sets)
    return [SetupDifference(PADDING, "Sizes of layers (padding)", sizes_a, sizes_b, rules, COMPUTE)]


def was_not_followed(finding: Finding, a: Sequence[Trait], b: Sequence[Trait]) -> bool:
    """Return whether the recordings show that B did not follow the advice of A's finding.

    They show it if each choice that the advice sets is the same on both sides. Then another change removed the finding, and B
    does not test the finding's predicted gain. For example, if B launches fewer kernels, the advice to use a CUDA graph
    disappears although B uses none.
    """
    values = {trait.key: trait for trait in a}
    same_keys = {trait.key for trait in b if trait.key in values and _same_choice(values[trait.key], trait)}
    advised = {choice.partition(" ")[0] for choice in finding.explains.sets}
    return bool(advised) and advised <= same_keys


def _same_choice(a: Trait, b: Trait) -> bool:
    """Return whether both traits are the same choice.

    If B's number of workers is not known, it may be higher than A's, so the choice does not count as the same.
    """
    return not a.differs_from(b) and (b.value != IN_WORKERS or b.amount is not None)


def of_batch(ratio: Fraction | None, other_differences: Sequence[SetupDifference]) -> tuple[SetupDifference, ...]:
    """Return the ratio of the batch sizes as a difference.

    The result is empty if the ratio is not known, or if a number that a user entered already shows it.
    """
    entered = any(difference.key in ("samples", "tokens") or "batch" in difference.key for difference in other_differences)
    if ratio is None or entered:
        return ()
    return (SetupDifference("batch", "Batch size (ratio)", f"{ratio.denominator:,}", f"{ratio.numerator:,}", (), ()),)


def effects(changes: Sequence[SetupDifference], waterfall: Sequence[RunRow]) -> tuple[Effect, ...]:
    """Return the part of the step's change that each difference explains.

    Arguments of the command line come first, then the largest share. Differences that explain no part come last.
    """
    change = sum((row.change_ms for row in waterfall), Fraction(0))
    moved = [
        row
        for row in waterfall
        if row.change_ms * change > 0 and abs(row.change_ms) >= MIN_PART_SHARE * abs(change) and row.resolved
    ]
    groups: list[tuple[list[SetupDifference], list[RunRow]]] = []
    for difference in changes:
        parts = [row for row in moved if row.owner in difference.explains or row.cause in difference.explains]
        # The new difference joins all groups that act on one of its parts.
        shared = [group for group in groups if any(row in group[1] for row in parts)]
        joined = [d for group in shared for d in group[0]]
        rows = [row for row in moved if row in parts or any(row in group[1] for group in shared)]
        groups = [group for group in groups if group not in shared] + [([*joined, difference], rows)]
    effects = [
        Effect(
            tuple(sorted(members, key=lambda difference: difference.key == SYMPTOM)),
            tuple(sorted(rows, key=lambda row: -abs(row.change_ms))),
            _share(rows, change),
        )
        for members, rows in groups
    ]
    return tuple(sorted(effects, key=lambda effect: (not effect.differences[0].argument, -(effect.share or 0.0))))


def _share(rows: Sequence[RunRow], change: Fraction) -> float | None:
    return min(float(sum((row.change_ms for row in rows), Fraction(0)) / change), 1.0) if rows and change else None

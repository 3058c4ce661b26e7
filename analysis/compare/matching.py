"""Match the kernels (or operators) of two sides across renames, fusions and changed shapes.

A piece is one (name, operator, shapes) of one side with its time per step. Pieces are matched in the order below. Every
piece is in exactly one row, so each side's rows sum to its pieces exactly.

1. by name: one row per name that both sides have;
2. by operator and shapes: other kernels of one operator on the same shapes (renamed, another library, another dtype);
3. by operator: the same operator on other shapes (another batch size);
4. by category: the rest of a category that both sides still have (fusions, other optimizers);
5. alone: names that only one side has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

MatchedBy = Literal["name", "operator_and_shape", "operator", "category", "only_a", "only_b"]


@dataclass(frozen=True)
class PerStepWork:
    """Time (ns) and launches (or calls) per step of one kernel or operator, as exact fractions.

    ``shapes`` is JSON, or "" if unknown.
    """

    name: str
    operator: str
    shapes: str
    category: str
    ns: Fraction
    count: Fraction

    def scaled(self, share: Fraction) -> PerStepWork:
        """Return the piece with ``share`` of its time and launches."""
        return self if share == 1 else replace(self, ns=self.ns * share, count=self.count * share)


@dataclass
class Match:
    """Pieces of both sides that do the same work. Times are ns per step, counts are per step."""

    how: MatchedBy
    label: str
    category: str
    operator: str
    shapes: str
    names_a: tuple[str, ...]
    names_b: tuple[str, ...]
    ns_a: Fraction = field(default=Fraction(0))
    ns_b: Fraction = field(default=Fraction(0))
    count_a: Fraction = field(default=Fraction(0))
    count_b: Fraction = field(default=Fraction(0))

    @property
    def change_ns(self) -> Fraction:
        """B − A, ns per step."""
        return self.ns_b - self.ns_a


def match(a: Sequence[PerStepWork], b: Sequence[PerStepWork]) -> list[Match]:
    """Return the matched rows, largest change first."""
    rows: list[Match] = []
    left_a, left_b = list(a), list(b)
    stages: tuple[tuple[MatchedBy, Callable[[PerStepWork], Hashable | None]], ...] = (
        ("name", lambda p: p.name),
        ("operator_and_shape", lambda p: (p.operator, p.shapes) if p.operator and p.shapes else None),
        ("operator", lambda p: p.operator or None),
        ("category", lambda p: p.category or None),
    )
    for stage, key in stages:
        left_a, left_b = _stage(stage, key, left_a, left_b, rows)
    _stage("only_a", lambda p: p.name, left_a, [], rows, both_required=False)
    _stage("only_b", lambda p: p.name, [], left_b, rows, both_required=False)
    return sorted(rows, key=lambda r: (-abs(r.change_ns), sorted((*r.names_a, *r.names_b)), r.shapes))


def _stage(
    stage: MatchedBy,
    key: Callable[[PerStepWork], Hashable | None],
    a: Iterable[PerStepWork],
    b: Iterable[PerStepWork],
    rows: list[Match],
    *,
    both_required: bool = True,
) -> tuple[list[PerStepWork], list[PerStepWork]]:
    """Move the pieces whose key both sides have into ``rows``, and return the rest of each side."""
    groups: tuple[dict[Hashable, list[PerStepWork]], dict[Hashable, list[PerStepWork]]] = (defaultdict(list), defaultdict(list))
    unmatched: tuple[list[PerStepWork], list[PerStepWork]] = ([], [])
    for side, pieces in enumerate((a, b)):
        for piece in pieces:
            value = key(piece)
            (unmatched[side] if value is None else groups[side][value]).append(piece)
    shared = groups[0].keys() & groups[1].keys() if both_required else groups[0].keys() | groups[1].keys()
    for value in groups[0].keys() | groups[1].keys():
        of_a, of_b = groups[0].get(value, []), groups[1].get(value, [])
        if value in shared:
            rows.append(_row(stage, of_a, of_b))
        else:
            unmatched[0].extend(of_a)
            unmatched[1].extend(of_b)
    return unmatched


def _row(stage: MatchedBy, a: list[PerStepWork], b: list[PerStepWork]) -> Match:
    pieces = [*a, *b]
    operators = _largest(pieces, lambda p: p.operator)
    shapes = _largest(pieces, lambda p: p.shapes) if len({p.shapes for p in pieces}) == 1 else ""
    category = _largest(pieces, lambda p: p.category)
    label = {
        "name": pieces[0].name,
        "operator_and_shape": f"{operators} {shapes}",
        "operator": operators,
        "category": f"other {category}",
        "only_a": pieces[0].name,
        "only_b": pieces[0].name,
    }[stage]
    return Match(
        how=stage,
        label=label,
        category=category,
        operator=operators,
        shapes=shapes,
        names_a=tuple(sorted({p.name for p in a})),
        names_b=tuple(sorted({p.name for p in b})),
        ns_a=sum((p.ns for p in a), Fraction(0)),
        ns_b=sum((p.ns for p in b), Fraction(0)),
        count_a=sum((p.count for p in a), Fraction(0)),
        count_b=sum((p.count for p in b), Fraction(0)),
    )


def _largest(pieces: list[PerStepWork], text: Callable[[PerStepWork], str]) -> str:
    """Return the text with most of the pieces' time, or the first in alphabetical order if equal."""
    time: dict[str, Fraction] = defaultdict(Fraction)
    for piece in pieces:
        time[text(piece)] += piece.ns
    return min(time, key=lambda t: (-time[t], t))

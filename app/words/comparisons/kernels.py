"""The kernels behind a change of compute time, by family: a different number, or a different speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.knowledge.owners import COMPUTE_OWNERS
from sawtooth.app import format as fmt
from sawtooth.app.charts.rankings import short_name
from sawtooth.app.words import categories
from sawtooth.app.words.comparisons.step_parts import bars, steps_divided

NO_COMPUTE = ("communication", "memcpy", "memset")
MIN_SENTENCE_SHARE = 0.03  # Share of the longer step. A smaller change of the compute time needs no sentence.
MIN_FAMILY_SHARE = 0.2  # Share of the changes of all families. A family with less is not named.
MAX_FAMILIES = 2  # Families that the sentence names.
NAME_LENGTH = 40  # Characters of a kernel's name.


class _Family(NamedTuple):
    category: str
    rows: list[Match]

    @property
    def change_ms(self) -> float:
        return float(sum(row.change_ns for row in self.rows)) / 1e6


def behind_compute(comparison: Comparison) -> str | None:
    """Return which kernels caused a change of the compute time.

    It is None if it changed little, or if no kernels are known. An example is "Kernels, as profiled: matrix products 12.6 → 4.10 ms per step (12 fewer, most in aten::mm)".
    """
    steps = steps_divided(comparison)
    if not steps or not comparison.kernels:
        return None
    parts = bars(comparison, steps[0])
    longer_ms = max(sum(part.ms_a for part in parts), sum(part.ms_b for part in parts))
    largest_ms = max((abs(part.change_ms) for part in parts if part.owner in COMPUTE_OWNERS), default=0.0)
    if largest_ms < MIN_SENTENCE_SHARE * longer_ms:
        return None
    families = _families(comparison.kernels)
    min_change_ms = MIN_FAMILY_SHARE * sum(abs(family.change_ms) for family in families)
    large = [family for family in families if abs(family.change_ms) >= min_change_ms]
    sentence = "; ".join(map(_in_words, large[:MAX_FAMILIES]))
    return f"Kernels, as profiled: {sentence}." if sentence else None


def _families(rows: Sequence[Match]) -> list[_Family]:
    """Return the categories of computing kernels, the one with the largest change first."""
    by_category: dict[str, list[Match]] = {}
    for row in rows:
        if row.category not in NO_COMPUTE:
            by_category.setdefault(row.category, []).append(row)
    return sorted((_Family(*item) for item in by_category.items()), key=lambda family: -abs(family.change_ms))


def _in_words(family: _Family) -> str:
    a, b = (float(sum(getattr(row, f"ns_{side}") for row in family.rows)) / 1e6 for side in "ab")
    name = categories.in_words(family.category)
    facts = ", ".join(filter(None, (_count_difference(family.rows), _main_operator(family))))
    if not a or not b:
        return f"{name} in {'B' if b else 'A'} alone, {fmt.duration_ms(a or b)} per step ({facts})"
    return f"{name} {fmt.duration_ms(a)} → {fmt.duration_ms(b)} per step ({facts})"


def _count_difference(rows: Sequence[Match]) -> str:
    """Return the rounded difference of the number of kernels per step in words."""
    difference = round(float(sum(row.count_b - row.count_a for row in rows)))
    if not difference:
        return "the same number"
    return f"{fmt.count(abs(difference))} {'more' if difference > 0 else 'fewer'}"


def _main_operator(family: _Family) -> str:
    """Return the operator (or name) of the kernels that contributed most to the family's change."""
    sign = 1 if family.change_ms > 0 else -1
    row = max(family.rows, key=lambda row: sign * row.change_ns)
    name = fmt.clean(row.operator, NAME_LENGTH) if row.operator else short_name(row.label, NAME_LENGTH)
    return f"most in {name}" if name else ""

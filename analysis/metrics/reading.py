"""A metric's value with its trust, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Trust = Literal["ok", "caution", "unusable"]
Bound = Literal["least", "most"]
_TRUST: list[Trust] = ["ok", "caution", "unusable"]


class NotFiniteError(ValueError):
    """A value that is no number: what it is computed from cannot be."""


@dataclass(frozen=True)
class Reading:
    """A metric's value, or None with the reason why. ``trust`` and ``notes`` travel with the number wherever it is shown.

    ``low`` to ``high`` is its 90 % interval, both None where none is known; ``high`` alone None: nothing bounds it from above (see notes).
    ``bound``: the true value is at ``least`` or at ``most`` this one, since part of the evidence is missing.
    """

    value: float | None
    why_missing: str | None = None
    trust: Trust = "ok"
    notes: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    bound: Bound | None = None

    def __post_init__(self) -> None:
        if self.value is None and not self.why_missing:
            raise ValueError("a missing reading needs its reason")
        if self.value is not None and not math.isfinite(self.value):
            raise NotFiniteError(f"a reading must be finite, not {self.value}")


def missing(reason: str) -> Reading:
    """Return a reading without a value and the sentence that says why."""
    return Reading(None, reason, "unusable")


def worst(*trusts: Trust) -> Trust:
    """Return the least of some trusts."""
    return max(trusts, key=_TRUST.index)


def lowered(reading: Reading, trust: Trust, note: str) -> Reading:
    """Return ``reading`` with at most this trust and the note added; a missing reading stays as it is."""
    if reading.value is None:
        return reading
    return replace(reading, trust=worst(reading.trust, trust), notes=(*reading.notes, note))

"""A metric's value with its trust, or the reason why it is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Trust = Literal["ok", "caution", "unusable"]
Bound = Literal["least", "most"]
_TRUST: list[Trust] = ["ok", "caution", "unusable"]


class NotFiniteError(ValueError):
    """A value is not a finite number, because its inputs are impossible."""


@dataclass(frozen=True)
class Reading:
    """A metric's value, or None with the reason.

    Every output shows ``trust`` and ``notes`` with the number. ``low`` to ``high`` is its 90 % interval; both are None if the
    interval is unknown. If only ``high`` is None, there is no upper limit, and the notes say why. ``bound`` is "least" if the
    true value may be higher and "most" if it may be lower, because part of the evidence is missing.
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
    """Return a reading without a value; ``reason`` is a sentence that explains why."""
    return Reading(None, reason, "unusable")


def lowest_trust(*trusts: Trust) -> Trust:
    """Return the lowest of several trusts."""
    return max(trusts, key=_TRUST.index)


def with_caution(reading: Reading, note: str) -> Reading:
    """Return ``reading`` with one more note and at most the trust "caution"; unchanged without a value.

    The first note of a reading that is not fully trusted is the reason. Reports show this note.
    """
    if reading.value is None:
        return reading
    notes = (note, *reading.notes) if reading.trust == "ok" else (*reading.notes, note)
    return replace(reading, trust=lowest_trust(reading.trust, "caution"), notes=notes)

"""Labels and colours of the kinds of slices on the timeline."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.knowledge import owners
from sawtooth.app.theme import CAUSES, HOST_KINDS, OWNERS, Colour


def kind_label(kind: str | None) -> str:
    """Return a slice's kind in words, for any lane."""
    known = {**gap_colours(), **work_colours(), **HOST_KINDS}
    return known[kind].label if kind in known else ""


def work_colours() -> dict[str, Colour]:
    """Return the colours of GPU operations by owner."""
    return {o.key: replace(OWNERS[o.key], label=o.work) for o in owners.OWNERS if o.key != "idle"}


def gap_colours() -> dict[str, Colour]:
    """Return the colours of lost time by cause, or by owner if no cause is known."""
    return {**CAUSES, **{k: OWNERS[k] for k in reversed(owners.LOST_OWNERS)}}

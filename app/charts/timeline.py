"""Labels and colours of the kinds of slices on the timeline."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.knowledge import owners
from sawtooth.app.theme import CAUSES, OWNERS, Colour

HOST_KINDS: dict[str, Colour] = {
    "annotation": Colour("annotation", "#6B7C8C", "#8FA1B3"),
    "op": Colour("operator", "#7C95AF", "#6A819A"),
    "launch": Colour("launch call", "#787878", "#9A9A9A"),
    "call": Colour("other runtime call", "#949494", "#6E6E6E"),
    "copy": replace(OWNERS["exposed_memcpy"], label="copy call"),
    "sync": replace(CAUSES["host_sync"], label="waits for the GPU"),
    "allocator": replace(CAUSES["allocator"], label="allocates or frees"),
    "python": Colour("Python call", "#8F88BE", "#726D9C"),
}


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

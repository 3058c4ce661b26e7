"""The kinds of slices on the timeline: their labels and colours."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.knowledge import owners
from sawtooth.app.theme import CAUSES, OWNERS, Colour

HOST_KINDS: dict[str, Colour] = {
    "annotation": Colour("annotation", "#6B7C8C", "#8FA1B3"),
    "op": Colour("operator", "#9FB3C8", "#5C7085"),
    "launch": Colour("launch call", "#A7A7A7", "#7D7D7D"),
    "call": Colour("other runtime call", "#C9C9C9", "#5A5A5A"),
    "copy": replace(OWNERS["exposed_memcpy"], label="copy call"),
    "sync": replace(CAUSES["host_sync"], label="waits for the GPU"),
    "allocator": replace(CAUSES["allocator"], label="allocates or frees"),
    "python": Colour("Python call", "#B7B2D6", "#5E5A7E"),
}


def kind_label(kind: str | None) -> str:
    """Return a slice's kind in words, whatever lane it is of."""
    known = {**gap_colours(), **work_colours(), **HOST_KINDS}
    return known[kind].label if kind in known else ""


def work_colours() -> dict[str, Colour]:
    """Return the colours of GPU operations by owner class."""
    return {o.key: replace(OWNERS[o.key], label=o.work) for o in owners.OWNERS if o.key != "idle"}


def gap_colours() -> dict[str, Colour]:
    """Return the colours of lost time, by cause, or by owner where no cause is known."""
    return {**CAUSES, **{k: OWNERS[k] for k in reversed(owners.LOST_OWNERS)}}

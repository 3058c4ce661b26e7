"""Labels and colours of the kinds of slices on the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sawtooth.analysis.knowledge import owners
from sawtooth.app.theme import CAUSES, HOST_KINDS, OWNERS, Colour


def kind_label(kind: str | None, names: Mapping[str, str]) -> str:
    """Return a slice's kind in words, for any lane; ``names`` as of ``gap_colours``."""
    known = colours(names)
    return known[kind].label if kind in known else ""


def colours(names: Mapping[str, str]) -> dict[str, Colour]:
    """Return the colours of all kinds of slices; ``names`` as of ``gap_colours``."""
    return {**gap_colours(names), **work_colours(), **HOST_KINDS}


def work_colours() -> dict[str, Colour]:
    """Return the colours of GPU operations by owner."""
    return {o.key: replace(OWNERS[o.key], label=o.work) for o in owners.OWNERS if o.key != "idle"}


def gap_colours(names: Mapping[str, str]) -> dict[str, Colour]:
    """Return the colours of lost time by cause, or by owner if no cause is known.

    ``names`` are a run's own names of causes.
    """
    colours: dict[str, Colour] = {**CAUSES, **{k: OWNERS[k] for k in reversed(owners.LOST_OWNERS)}}
    return {key: replace(colour, label=names.get(key, colour.label)) for key, colour in colours.items()}

"""Arguments of events, decoded as a form says: all of a group at once, and one by one where they do not have the types they should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from sawtooth.ingest.trace.torch_json.arguments import NOTHING, CollectiveArgs
from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS, Event
from sawtooth.ingest.trace.torch_json.text.repair import repair

COLLECTIVE = b'"Collective name"'  # among the arguments of operators and of kernels


def text_of(events: Sequence[Event]) -> bytes:
    """Return the arguments of all events as one JSON list."""
    return b"[" + b",".join([e.args for e in events]) + b"]"


def decoded(events: Sequence[Event], form: Any, text: bytes | None = None) -> list[Any]:
    """Return the arguments of every event as ``form``; ``text`` is ``text_of`` of them where that is known."""
    try:
        return msgspec.json.decode(text_of(events) if text is None else text, type=list[form])
    except DECODE_ERRORS:
        return [_loose(e.args, form) for e in events]


def collectives(events: list[Event], text: bytes, arguments: list[CollectiveArgs]) -> NDArray[np.int32]:
    """Return for each event the place of its collective in ``arguments``, to which it is appended; -1 where it is none. ``text`` is ``text_of`` them."""
    result = np.full(len(events), -1, np.int32)
    if COLLECTIVE in text:
        ends = np.cumsum(np.fromiter(map(len, [event.args for event in events]), np.int64, len(events)) + 1)  # commas included
        places = np.cumsum([len(part) + len(COLLECTIVE) for part in text.split(COLLECTIVE)[:-1]]) - len(COLLECTIVE) - 1
        rows = np.unique(np.searchsorted(ends, places, side="right")).tolist()
        result[rows] = np.arange(len(arguments), len(arguments) + len(rows))
        arguments += decoded([events[row] for row in rows], CollectiveArgs)
    return result


def object_of(raw: Raw) -> dict[str, Any]:
    """Return the arguments of one event as a dict; empty where they are no object."""
    for mended in (False, True):
        try:
            value = msgspec.json.decode(repair(bytes(raw))[0] if mended else raw)
        except DECODE_ERRORS:
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _loose(raw: Raw, form: Any) -> Any:
    """Read arguments that do not have the types they should: what fits is kept, the rest is not recorded."""
    result = form()
    args = object_of(raw)
    for known in msgspec.structs.fields(form):
        value = args.get(known.encode_name)
        if getattr(result, known.name) is NOTHING:
            if known.encode_name in args:
                setattr(result, known.name, Raw(msgspec.json.encode(value)))
        elif isinstance(value, int | float | str):
            setattr(result, known.name, value)
    return result

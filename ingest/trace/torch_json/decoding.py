"""Decode the arguments of events: a whole group at once, or one by one if types are not as expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, integers
from sawtooth.ingest.trace.spool import Columns
from sawtooth.ingest.trace.torch_json.arguments import EMPTY_TEXT, CollectiveArgs, GraphAnnotationArgs
from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS, Event
from sawtooth.ingest.trace.torch_json.text.repair import repair

ANNOTATION_KEYS = (b'"name"', b'"annotation"', b'"str"')  # Arguments with these keys name a kernel of a CUDA graph.
COLLECTIVE_KEY = b'"Collective name"'  # Operators and kernels of collectives have an argument with this key.


def text_of(events: Sequence[Event]) -> bytes:
    """Return the arguments of all events as one JSON list."""
    return b"[" + b",".join([e.args for e in events]) + b"]"


def decode_arguments(events: Sequence[Event], form: Any, text: bytes | None = None) -> list[Any]:
    """Return the arguments of every event as ``form``; ``text`` is ``text_of(events)`` if it is known."""
    try:
        return msgspec.json.decode(text_of(events) if text is None else text, type=list[form])
    except DECODE_ERRORS:
        return [_with_valid_values(e.args, form) for e in events]


def collectives(events: list[Event], text: bytes, arguments: list[CollectiveArgs]) -> NDArray[np.int32]:
    """Append the events' collectives to ``arguments``; return each event's index of a collective, or -1.

    ``text`` is ``text_of(events)``.
    """
    result = np.full(len(events), -1, np.int32)
    if COLLECTIVE_KEY in text:
        # ``ends`` are the positions in ``text`` after each event's arguments and comma.
        ends = np.cumsum(np.fromiter(map(len, [event.args for event in events]), np.int64, len(events)) + 1)
        lengths = [len(part) + len(COLLECTIVE_KEY) for part in text.split(COLLECTIVE_KEY)[:-1]]
        key_positions = np.cumsum(lengths) - len(COLLECTIVE_KEY) - 1
        rows = np.unique(np.searchsorted(ends, key_positions, side="right")).tolist()
        result[rows] = np.arange(len(arguments), len(arguments) + len(rows))
        arguments += decode_arguments([events[row] for row in rows], CollectiveArgs)
    return result


def graph_annotations(events: list[Event], text: bytes, start: I64, names: Mapping[str, int]) -> Columns:
    """Return the named operations of CUDA graphs as rows of table ``graph_annotations``."""
    args = decode_arguments(events, GraphAnnotationArgs, text) if any(key in text for key in ANNOTATION_KEYS) else []
    rows = [row for row, annotation in enumerate(args) if annotation.label]
    annotations = [args[row] for row in rows]
    return {
        "graph_id": integers([annotation.graph for annotation in annotations]),
        "graph_node_id": integers([annotation.node for annotation in annotations]),
        "name_id": np.array([names[annotation.label] for annotation in annotations], np.int32),
        "backward": np.array([annotation.phase == "backward" for annotation in annotations], bool),
        "start": start[rows],
    }


def object_of(raw: Raw) -> dict[str, Any]:
    """Return the arguments of one event as a dict; {} if they are not an object."""
    for repaired in (False, True):
        try:
            value = msgspec.json.decode(repair(bytes(raw))[0] if repaired else raw)
        except DECODE_ERRORS:
            continue
        return value if isinstance(value, dict) else {}
    return {}


def _with_valid_values(raw: Raw, form: Any) -> Any:
    """Return the arguments of one event; values of unexpected types keep their defaults."""
    result = form()
    args = object_of(raw)
    for field in msgspec.structs.fields(form):
        value = args.get(field.encode_name)
        if getattr(result, field.name) is EMPTY_TEXT:
            if field.encode_name in args:
                setattr(result, field.name, Raw(msgspec.json.encode(value)))
        elif isinstance(value, int | float | str):
            setattr(result, field.name, value)
    return result

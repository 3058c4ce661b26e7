"""Decode events of a trace, strictly by block or tolerantly one by one."""

from __future__ import annotations

import re
from typing import Union

import msgspec
from msgspec import Raw

from sawtooth.ingest.trace.torch_json.arguments import EMPTY_TEXT, NO_ARGS, Number

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
BRACKETS = b"[]"
LEAD_BYTES = 256  # Blanks and a comma before a block. With more, the block does not decode and is read event by event.
TRAILING_MESSAGE = re.compile(r"trailing characters \(byte (\d+)\)")


class Event(msgspec.Struct, gc=False):
    """One trace event; times and arguments stay text, so that times are converted without rounding."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: Raw = EMPTY_TEXT
    dur: Raw = EMPTY_TEXT
    args: Raw = NO_ARGS


def _event_type(phase: str) -> type[msgspec.Struct]:
    """Return an event type for one phase.

    Arrows between events are a third of all events. Their fields are not decoded, because no measurement uses them.
    """
    fields = [] if phase in FLOWS else [(f.name, f.type, f.default) for f in msgspec.structs.fields(Event) if f.name != "ph"]
    form = msgspec.defstruct(f"Event_{phase}", fields, tag_field="ph", tag=phase, gc=False)
    form.ph = phase  # type: ignore[attr-defined]  # Every event then has the attribute ph.
    if phase in FLOWS:
        form.cat = f"\0{phase}"  # type: ignore[attr-defined]  # A key of ARROWS.
    return form


FLOWS = ("s", "t", "f")
# Each arrow gets one of these categories. The value is the key under which arrows of this category are counted.
ARROWS = {f"\0{phase}": f"ph {phase}" for phase in FLOWS}
PHASES = ("X", *FLOWS, "i", "I", "M", "C", "B", "E")
FORMS = {phase: _event_type(phase) for phase in PHASES}
USUAL_FORMS = frozenset(FORMS[phase] for phase in ("X", *FLOWS))
PHASE_DECODER = msgspec.json.Decoder(list[Union[tuple(FORMS.values())]])  # type: ignore[misc]  # noqa: UP007  (made at run time)


DecodedEvent = tuple[Event | None, bytes | None] | None  # An event, and the text after the array's end if the end was found.
EVENTS_DECODER = msgspec.json.Decoder(list[Event])
EVENT_DECODER = msgspec.json.Decoder(Event)


def decode_events(text: bytes | memoryview) -> list[Event]:
    """Decode a JSON array of events.

    Raises one of DECODE_ERRORS.
    """
    try:
        return PHASE_DECODER.decode(text)
    except msgspec.ValidationError:  # An event has a phase that is rare, missing or not a string.
        return EVENTS_DECODER.decode(text)


def decode_block(block: bytes | memoryview) -> list[Event] | None:
    """Decode ``block``, which may begin with a comma; None if it does not consist of whole events."""
    return decode_in_place(memoryview(bytearray().join((BRACKETS[:1], block, BRACKETS[1:]))))


def decode_in_place(buffer: memoryview) -> list[Event] | None:
    """Decode a block like ``decode_block``; ``buffer`` has a free byte on either side for the brackets.

    The events refer to ``buffer``.
    """
    lead = bytes(buffer[1 : LEAD_BYTES + 1])
    begin = len(lead) - len(without_lead(lead))
    buffer[begin], buffer[-1] = BRACKETS
    try:
        return decode_events(buffer[begin:])
    except DECODE_ERRORS:
        return None


def without_lead(text: bytes) -> bytes:
    """Return ``text`` without leading comma and blanks."""
    return text.lstrip(b", \t\r\n")


def count_brackets(text: bytes) -> int:
    """Return the number of opening brackets in ``text``."""
    return text.count(b"[") + text.count(b"{")


def is_incomplete(text: bytes) -> bool:
    """Return whether ``text`` is the beginning of valid JSON."""
    try:
        EVENT_DECODER.decode(text)
    except DECODE_ERRORS as error:
        return "truncated" in str(error)
    return False


def decode_one(text: bytes) -> DecodedEvent:
    """Return the event and, if ``text`` contains the array's end, the text after the end.

    The result is None if ``text`` does not decode.
    """
    try:
        return EVENT_DECODER.decode(text), None
    except msgspec.ValidationError:
        return _with_valid_fields(text)
    except DECODE_ERRORS as error:
        end = _end_of_first_value(str(error), text)
        rest = without_lead(text[end:])
        if not end or not rest.startswith(b"]"):
            return None
        decoded = decode_one(text[:end])
        return (decoded[0], rest[1:]) if decoded is not None and decoded[1] is None else None


def end_of_first_object(text: bytes) -> int:
    """Return the end of the first value in ``text`` if it is an object and more text follows, else 0."""
    try:
        EVENT_DECODER.decode(text)
    except DECODE_ERRORS as error:
        return _end_of_first_value(str(error), text)
    return 0


def _end_of_first_value(message: str, text: bytes) -> int:
    match = TRAILING_MESSAGE.search(message)
    return text.rfind(b"}", 0, int(match.group(1))) + 1 if match else 0


def _with_valid_fields(text: bytes) -> DecodedEvent:
    """Decode an event, but ignore fields of unexpected types."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, Raw])
        event = Event()
        for key in ("ph", "cat", "name", "pid", "tid"):
            value = msgspec.json.decode(fields[key]) if key in fields else None
            if isinstance(value, str if key in ("ph", "cat", "name") else int | float | str):
                setattr(event, key, value)
    except DECODE_ERRORS:
        return None
    for key in ("ts", "dur", "args"):
        if key in fields:
            setattr(event, key, fields[key])
    return event, None

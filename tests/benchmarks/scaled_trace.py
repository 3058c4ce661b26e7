"""Make a long trace by repeating the steps of a short one, with new ids each time."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

IDS = ("External id", "correlation", "Ev Idx", "Record function id", "Python id", "Python parent id", "Sequence number")
PAUSE_US = 50  # Time between two repetitions.
STEP = re.compile(r"ProfilerStep#(\d+)")
# A number and its increment per repetition. The second form is for numbers inside a name.
HOLE = re.compile(r'"@(-?\d+):(\d+)@(\.\d+)?"|~(\d+):(\d+)~')
FRACTION = re.compile(r'"\^([-+.\deE]+)\^"')  # A number with a fraction, which is copied digit by digit.
LEVEL = 6  # gzip's default


def _microseconds(value: Any) -> tuple[int, str]:
    """Return whole microseconds, and the fraction as written."""
    complete, _, fraction = str(value).strip("^").partition(".")
    return int(complete), f".{fraction:0<3}"[:4]


def _as_written(text: str) -> str:
    """Write fractions as in the file: a float would lose the nanoseconds of an absolute time."""
    return FRACTION.sub(r"\1", text)


class Repeated:
    """The events of a trace as one text with placeholders.

    Every repetition fills them with its own times and ids.
    """

    def __init__(self, events: list[dict[str, Any]]) -> None:
        timed = [e for e in events if e.get("ph") in ("X", "s", "f", "i") and isinstance(e.get("pid"), int)]
        self.once = [e for e in events if e.get("ph") == "M"]
        self.events = len(timed)
        starts = [_microseconds(e["ts"])[0] for e in timed]
        ends = [start + float(str(e.get("dur", 0)).strip("^")) for start, e in zip(starts, timed, strict=True)]
        self.period_us = int(max(ends)) - min(starts) + PAUSE_US
        steps = [int(m.group(1)) for e in timed if (m := STEP.match(e["name"]))]
        self._steps = max(steps) - min(steps) + 1 if steps else 0
        ids = [e["args"].get(key) for e in timed if "args" in e for key in IDS] + [e.get("id") for e in timed]
        self._past = 1 + max((i for i in ids if isinstance(i, int)), default=0)
        text = ",\n".join(json.dumps(self._hollow(e)) for e in timed)
        found = [m.groups() for m in HOLE.finditer(text)]
        self._values = np.array([int(m[0] or m[3]) for m in found], np.int64)
        self._growth = np.array([int(m[1] or m[4]) for m in found], np.int64)
        self._text = _as_written(HOLE.sub(lambda m: f"%d{m.group(3) or ''}", text.replace("%", "%%"))).encode()

    def _hollow(self, event: dict[str, Any]) -> dict[str, Any]:
        complete, fraction = _microseconds(event["ts"])
        event = {**event, "ts": f"@{complete}:{self.period_us}@{fraction}"}
        if isinstance(event.get("id"), int):
            event["id"] = f"@{event['id']}:{self._past}@"
        if "args" in event:
            event["args"] = {
                k: f"@{v}:{self._past}@" if k in IDS and isinstance(v, int) and v > 0 else v for k, v in event["args"].items()
            }
        event["name"] = STEP.sub(lambda m: f"ProfilerStep#~{m.group(1)}:{self._steps}~", event["name"])
        return event

    def repetition(self, number: int) -> bytes:
        """Return the text of one repetition, from 0."""
        return self._text % tuple((self._values + number * self._growth).tolist())


def write(source: Path, target: Path, events: int) -> int:
    """Write a gzip-compressed trace of at least ``events`` events and return its number of events.

    It repeats the trace in ``source``.
    """
    document = json.loads(gzip.decompress(source.read_bytes()), parse_float=lambda text: f"^{text}^")
    repeated = Repeated(document.pop("traceEvents"))
    count = max(1, -(-(events - len(repeated.once)) // repeated.events))
    head = _as_written(json.dumps(document)[:-1])
    with gzip.open(target, "wb", compresslevel=LEVEL) as file:
        file.write(f'{head}, "traceEvents": [\n'.encode())
        for number in range(count):
            file.write(repeated.repetition(number) + b",\n")
        file.write(_as_written(",\n".join(map(json.dumps, repeated.once))).encode() + b"\n]}")
    return count * repeated.events + len(repeated.once)

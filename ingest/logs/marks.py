"""Read files of step marks into recordings with the table ``step_marks``.

``sawtooth.ingest.capture.marks`` documents the format of the recorder. A user's own script can write a simpler format without a
head. It has one line per step: ``{"step": 17, "t_ns": 1700000000123456789, "phase": "train"}``. The phase may be absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from sawtooth.ingest.capture.command.call_site import TRAINERS
from sawtooth.ingest.capture.marks import PHASES
from sawtooth.ingest.errors import ImportDiagnostic, SourceError
from sawtooth.ingest.loop.call_site_text import lines_text, number_text
from sawtooth.ingest.loop.step_boundary import BOUNDARIES, MAX_NAME_CHARACTERS
from sawtooth.ingest.manifest import Amount, Measure
from sawtooth.ingest.source import Source
from sawtooth.ingest.telemetry.registry import lines
from sawtooth.ingest.typed import from_json
from sawtooth.ingest.writer import Writer

MAX_LINES, MAX_SITE_CHARACTERS = 16, 1000  # Limits of lines per stack and of characters, because the file may be hostile.
SIGNATURE = b'{"k": "marks"'
# The whole line must match, because samples of telemetry have more fields.
PLAIN = re.compile(rb'\{"step":\s*\d+,\s*"t_ns":\s*\d+\s*(?:,\s*"phase":\s*"\w*"\s*)?\}')


Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # Number of a rank, an optimizer or a process.
Step = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Time = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]  # Unix ns.


class _Head(msgspec.Struct):
    host: str | None = None
    boot: str | None = None
    rank: Number | None = None
    recorder: str = ""
    pid: Number | None = None
    gpu: str | None = None
    sign: str | None = None
    of: str | None = None


class _MarkLine(msgspec.Struct, rename={"place": "l", "wait": "d", "first": "f", "start": "s"}):
    i: Step
    w: Time
    p: str = "train"
    o: Number = 0
    b: Measure | None = None
    n: Amount | None = None
    place: Number = 0
    wait: Step | None = None
    first: Step | None = None
    start: Step | None = None
    at: list[str] | None = None
    by: str | None = None


class _PlainMark(msgspec.Struct):
    step: Step
    t_ns: Time
    phase: str = "train"


def is_marks(head: bytes) -> bool:
    """Return whether a file has step marks, by its first bytes."""
    return head.startswith(SIGNATURE) or PLAIN.match(head) is not None


def store(source: Source, writer: Writer, about: dict[str, Any]) -> dict[str, Any]:
    """Read ``source``, write its marks, and return the recording row.

    Damaged lines, lines of another kind and lines with an unknown phase are skipped and counted. Raises SourceError if there is
    no mark.
    """
    mark_lines: Iterator[bytes] = lines(source)
    first = next(mark_lines, b"")
    try:
        head = from_json(first, _Head)
    except msgspec.MsgspecError:
        head = _Head()
    plain = PLAIN.match(first) is not None
    skipped: list[bytes] = []
    if plain:  # The plain format has no head.
        mark_lines = chain([first], mark_lines)
    marks = sorted(_marks(mark_lines, skipped, plain=plain), key=lambda mark: mark.w)
    if not marks:
        raise SourceError("E-NOEV", _no_mark_message(len(skipped)))
    writer.insert(
        "step_marks",
        {
            "step": np.array([mark.i for mark in marks], np.int64),
            "end_ns": np.array([mark.w for mark in marks], np.int64),
            "phase": [mark.p for mark in marks],
            "optimizer": np.array([mark.o for mark in marks], np.int32),
            "samples": [mark.b for mark in marks],
            "tokens": [mark.n for mark in marks],
            "site": _sites(marks),
            "wait_ns": [mark.wait for mark in marks],
            "first_wait_ns": [mark.first for mark in marks],
            "loader_start_ns": [mark.start for mark in marks],
        },
    )
    if skipped:
        sentence = "Incomplete or unknown lines of step marks were skipped."
        writer.insert_row("diagnostics", vars(ImportDiagnostic("marks_skipped", "info", sentence, len(skipped))))
    return {
        **about,
        "kind": "marks",
        "event_count": len(marks),
        "clock": "unix",
        "first_ns": marks[0].w,
        "last_ns": marks[-1].w,
        "truncated": bool(source.damage),
        "host": head.host,
        "rank": head.rank,
        "metadata": msgspec.json.encode(
            {
                "recorder": head.recorder,
                "boot": head.boot,
                "pid": head.pid,
                "gpu": head.gpu,
                **_boundary(head),
                **_trainers(marks),
            }
        ).decode(),
    }


def _no_mark_message(skipped: int) -> str:
    if skipped:
        lines = "its only line is" if skipped == 1 else f"all {skipped:,} lines are"
        return f"This file of step marks contains no valid mark, because {lines} damaged or unknown. Record the run again."
    return "This file of step marks contains no mark, because no step ended while it was recorded. Record at least one step."


def _boundary(head: _Head) -> dict[str, str | None]:
    """Return the step boundary of a loop without an optimizer; {} for a loop with an optimizer."""
    return {"sign": head.sign, "of": head.of and head.of[:MAX_NAME_CHARACTERS]} if head.sign in BOUNDARIES else {}


def _trainers(marks: Sequence[_MarkLine]) -> dict[str, dict[str, str]]:
    """Return the libraries with a loop that calls steps, by the text of the call site."""
    sites = dict(zip((mark.place for mark in marks), _sites(marks).to_pylist(), strict=True))
    trainers = {str(sites[mark.place]): mark.by for mark in marks if mark.by is not None and mark.by in dict(TRAINERS).values()}
    return {"trainers": trainers} if trainers else {}


def _sites(marks: Sequence[_MarkLine]) -> pa.Array:
    """Return the place from which each step was called.

    A place is the stack that a mark from this place recorded, or else a number. With only one place and no stack, all values are NULL.
    """
    lines = {mark.place: lines_text(mark.at[:MAX_LINES])[:MAX_SITE_CHARACTERS] for mark in marks if mark.at}
    numbers = {place: number_text(place) for place in {mark.place for mark in marks}}
    named = {**numbers, **lines} if lines or len(numbers) > 1 else {}
    return pa.array([named.get(mark.place) for mark in marks], pa.string())


def _marks(mark_lines: Iterable[bytes], skipped: list[bytes], *, plain: bool) -> Iterator[_MarkLine]:
    """Yield the marks; lines that are not marks are added to ``skipped``."""
    for line in mark_lines:
        if not line.strip():
            continue
        try:
            mark = _from_plain(from_json(line, _PlainMark)) if plain else from_json(line, _MarkLine)
        except msgspec.MsgspecError:
            skipped.append(line)
            continue
        if mark.p in PHASES:
            yield mark
        else:
            skipped.append(line)


def _from_plain(mark: _PlainMark) -> _MarkLine:
    return _MarkLine(mark.step, mark.t_ns, mark.phase)

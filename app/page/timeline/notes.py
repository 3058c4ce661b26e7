"""Notes about time ranges of the timeline.

They are stored as lines of the run's notes, so that they are edited, exported and imported together with these.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sawtooth.app.format import clean
from sawtooth.app.page import frame
from sawtooth.app.page.runs.editing import NOTES_LENGTH
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.runs.manifests import edit_run

TEXT_LENGTH = 300  # Characters of one note, enough for a sentence or two.
_LINE = re.compile(r"^\[(\d{1,12}(?:\.\d{1,9})?) to (\d{1,12}(?:\.\d{1,9})?) ms\] (\S.*)$", re.MULTILINE)


def noted_ranges(notes: str) -> list[dict[str, Any]]:
    """Return text, start and end of the notes with a time range, in ns after the recording's start."""
    return [
        {"start": round(float(start) * 1e6), "end": round(float(end) * 1e6), "text": clean(text, TEXT_LENGTH)}
        for start, end, text in _LINE.findall(notes)
    ]


def with_note(notes: str, start_ns: float, end_ns: float, text: str) -> str:
    """Return ``notes`` with an additional line about the range from ``start_ns`` to ``end_ns``.

    Raises UsageError if the text is empty, the range is invalid, or the notes are full.
    """
    words = clean(" ".join(text.split()), TEXT_LENGTH)
    if not words or not 0 <= start_ns <= end_ns:
        raise UsageError("A note needs a few words and a place.")
    line = f"[{start_ns / 1e6:.6f} to {end_ns / 1e6:.6f} ms] {words}"
    longer = f"{notes.rstrip()}\n{line}".lstrip()
    if len(longer) > NOTES_LENGTH:
        raise UsageError("The run's notes are full. Shorten them on the Runs page.")
    return longer


def keep(run_id: str, note: Any) -> None:
    """Store a note (start, end and text) that the viewer wrote in the component.

    The run's notes are read again before the change, so that no other viewer's note is lost.
    """
    start_ns, end_ns, words = float(note["start"]), float(note["end"]), str(note["text"])
    edit_run(
        frame.data_folder(),
        run_id,
        lambda run: msgspec.structs.replace(run, notes=with_note(run.notes, start_ns, end_ns, words)),
    )

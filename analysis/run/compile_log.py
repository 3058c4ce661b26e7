"""Graph breaks and recompilations from torch.compile's own log, which was added next to the trace."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import Manifest

MAX_PLACES = 100  # Places of each kind, the most frequent ones: a page shows a few, a report some more.


# Dynamo's text for a break after which it skips the function, such as one in a loop. The cause of the break follows it.
ABANDONED = re.compile(r"^.{0,80}\bskipping the (?:function|frame)\b.{0,60}?(?:graph break encountered: |$)", re.IGNORECASE)


@dataclass(frozen=True)
class CompileReason:
    """One place where a graph breaks or code is compiled again.

    ``place`` is ``file.py:12`` or a function's name. ``reason`` and ``hint`` are Dynamo's explanation and advice. ``frame`` is the
    compiled frame, such as 3/0. ``times`` counts how often it happened. ``gives_up`` says that the whole function of the break
    runs uncompiled.
    """

    place: str
    reason: str
    hint: str
    frame: str
    times: int
    gives_up: bool = False


@dataclass(frozen=True)
class CompileLog:
    """Graph breaks and recompilations by place, and the number and total time of compilations."""

    breaks: tuple[CompileReason, ...]
    recompiled: tuple[CompileReason, ...]
    compiled: int
    seconds: float

    def break_in(self, frame: str) -> CompileReason | None:
        """Return the break that ends the graph of ``frame``."""
        return next((entry for entry in self.breaks if entry.frame == frame), None)


def load(manifest: Manifest, library: Library, rank: int | None) -> CompileLog | None:
    """Return the logs of ``rank``, or of every rank if logs name none; None where the run has no log."""
    refs = [ref for ref in manifest.recordings if ref.kind == "compile" and (rank is None or ref.rank in (rank, None))]
    breaks: list[CompileReason] = []
    recompiled: list[CompileReason] = []
    compiled, seconds = 0, 0.0
    for ref in refs:
        with library.open(ref.id, derived=False) as recording:
            # Another version of the same frame breaks at the same line.
            rows = recording.rows(
                "SELECT kind, coalesce(parse_filename(file) || ':' || line, ''), coalesce(reason, ''), coalesce(any_value(hint), ''), "
                "coalesce(min(compile_id), ''), count(*) FROM compile_events WHERE kind IN ('graph_break', 'recompile') "
                "GROUP BY kind, file, line, reason, CASE WHEN kind = 'graph_break' THEN compile_id END "
                "QUALIFY row_number() OVER (PARTITION BY kind ORDER BY count(*) DESC, min(time_ns), file, line, reason, min(compile_id)) <= ? ORDER BY min(time_ns), 2",
                [MAX_PLACES],
            )
            functions = dict(
                recording.rows(
                    "SELECT compile_id, coalesce(any_value(\"function\") || ' (' || parse_filename(any_value(file)) || ':' || any_value(line) || ')', "
                    "any_value(\"function\")) FROM compile_events WHERE kind = 'compile' AND compile_id IS NOT NULL GROUP BY 1"
                )
            )
            count, ns = recording.rows(
                "SELECT count(*) FILTER (kind = 'compile'), coalesce(sum(dur_ns), 0) FROM compile_events WHERE kind IN ('compile', 'compile_backward')"
            )[0]
        breaks += [_broken(CompileReason(*row[1:])) for row in rows if row[0] == "graph_break"]
        recompiled += [
            CompileReason(place or functions.get(frame) or f"frame {frame}", reason, hint, frame, times)
            for kind, place, reason, hint, frame, times in rows
            if kind == "recompile"
        ]
        compiled, seconds = compiled + int(count), seconds + float(ns) / 1e9
    return CompileLog(_most_frequent(breaks), _most_frequent(recompiled), compiled, seconds) if refs else None


def _most_frequent(entries: list[CompileReason]) -> tuple[CompileReason, ...]:
    """Return the MAX_PLACES most frequent entries in their original order.

    Each of several logs may have that many.
    """
    frequent = sorted(sorted(range(len(entries)), key=lambda i: -entries[i].times)[:MAX_PLACES])
    return tuple(entries[i] for i in frequent)


def _broken(entry: CompileReason) -> CompileReason:
    """Return a break with the cause of the break as its reason, if Dynamo gave up on the function."""
    abandoned = ABANDONED.match(entry.reason)
    if abandoned is None:
        return entry
    return replace(entry, reason=entry.reason[abandoned.end() :] or entry.reason, gives_up=True)

"""What torch.compile's own log, dropped beside the trace, says: where graphs break, and why code was compiled again."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import Manifest

MOST_PLACES = 100  # of either kind, the most frequent: a page shows a few, a report some more


# What Dynamo says of a break that it cannot go on after, such as one in a loop; what broke the graph stands behind it.
GIVEN_UP = re.compile(r"^.{0,80}\bskipping the (?:function|frame)\b.{0,60}?(?:graph break encountered: |$)", re.IGNORECASE)


@dataclass(frozen=True)
class CompileReason:
    """One place: where (``file.py:12`` or a function's name), why, what Dynamo advises, the compiled frame (such as 3/0), and how often.

    ``gives_up``: the function of the break runs uncompiled as a whole.
    """

    place: str
    reason: str
    hint: str
    frame: str
    times: int
    gives_up: bool = False


@dataclass(frozen=True)
class CompileLog:
    """Breaks of graphs and recompilations by place, how many functions were compiled, and how long that took, seconds."""

    breaks: tuple[CompileReason, ...]
    recompiled: tuple[CompileReason, ...]
    compiled: int
    seconds: float

    def break_in(self, frame: str) -> CompileReason | None:
        """Return the break that ends the graph of ``frame``."""
        return next((entry for entry in self.breaks if entry.frame == frame), None)


def load(manifest: Manifest, library: Library, rank: int | None) -> CompileLog | None:
    """Return what the logs of ``rank`` say (of every rank, where logs name none); None where the run has none."""
    refs = [ref for ref in manifest.recordings if ref.kind == "compile" and (rank is None or ref.rank in (rank, None))]
    breaks: list[CompileReason] = []
    recompiled: list[CompileReason] = []
    compiled, seconds = 0, 0.0
    for ref in refs:
        with library.open(ref.id, derived=False) as recording:
            # A frame that is met again (another version of it) breaks at the same line.
            rows = recording.rows(
                "SELECT kind, coalesce(parse_filename(file) || ':' || line, ''), coalesce(reason, ''), coalesce(any_value(hint), ''), "
                "coalesce(min(compile_id), ''), count(*) FROM compile_events WHERE kind IN ('graph_break', 'recompile') "
                "GROUP BY kind, file, line, reason, CASE WHEN kind = 'graph_break' THEN compile_id END "
                "QUALIFY row_number() OVER (PARTITION BY kind ORDER BY count(*) DESC, min(time_ns), file, line, reason, min(compile_id)) <= ? ORDER BY min(time_ns), 2",
                [MOST_PLACES],
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
    """Return the MOST_PLACES that occur most often, in their own order: several logs have as many each."""
    kept = sorted(sorted(range(len(entries)), key=lambda i: -entries[i].times)[:MOST_PLACES])
    return tuple(entries[i] for i in kept)


def _broken(entry: CompileReason) -> CompileReason:
    """Return a break with what broke the graph as its reason, where Dynamo gave its function up."""
    given_up = GIVEN_UP.match(entry.reason)
    if given_up is None:
        return entry
    return replace(entry, reason=entry.reason[given_up.end() :] or entry.reason, gives_up=True)

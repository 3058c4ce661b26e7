"""What a run's folder holds, as the runs it makes: one, or one for each profile where it was taken again and again.

Each run has the marks of its own stretch of the training, halfway to the profiles before and after, so that two of them are compared by
hundreds of steps. Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture import batches
from sawtooth.ingest.capture.hook import AT

STEP = "step"  # the setting that tells these runs apart
MARK = re.compile(rb'"i": (\d+),.*"p": "(\w+)", "o": (\d+)')

Sources = list[tuple[Path, dict[str, Any]]]


@dataclass
class Stretch:
    """A run: the step that its profile began after, its files with what the manifest says of each, and its facts."""

    step: int = 0
    sources: Sources = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)


def runs_of(folder: Path) -> list[Stretch]:
    """Return the runs to pack, the first profile's first. Only the process that stepped most (or each rank) is the training."""
    marks = sorted(folder.glob("marks-*.jsonl"), key=lambda path: path.stat().st_size, reverse=True)
    ranked = [path for path in marks if path.stem.startswith("marks-rank")]
    by_step: dict[int, Stretch] = {}
    for path in sorted(ranked) or marks[:1]:
        for stretch in _of_process(folder, path):
            by_step.setdefault(stretch.step, Stretch(stretch.step)).sources.extend(stretch.sources)
    runs = [by_step[step] for step in sorted(by_step)]
    telemetry = folder / "telemetry.jsonl"
    if telemetry.exists():
        runs = runs or [Stretch()]
        runs[0].sources.append((telemetry, {"source_name": "telemetry.jsonl", "kind": "telemetry"}))
    if runs and (cost := batches.cost_of(folder)) is not None:
        runs[0].facts.update(batches.facts_of(*cost))
    return runs


def _of_process(folder: Path, marks: Path) -> list[Stretch]:
    who = marks.stem.removeprefix("marks-")
    rank = {"rank": int(who.removeprefix("rank"))} if who.startswith("rank") else {}
    trace, called = folder / f"trace-{who}.json", f"{who}" if rank else "trace"
    traces = [trace] if trace.exists() else []
    traces += sorted(folder.glob(f"trace-{who}{AT}*.json"), key=_began)
    if len(traces) <= 1:
        steps, parts = [0], [marks]
    else:
        leading, first = _overview(marks)
        steps = [first, *map(_began, traces[1:])]
        parts = _split(marks, leading, steps)
    stretches = []
    for number, (step, part) in enumerate(zip(steps, parts, strict=True)):
        sources: Sources = []
        if number < len(traces):
            sources.append((traces[number], {"source_name": f"{called}.json.gz", "kind": "trace", **rank}))
        sources.append((part, {"source_name": f"marks{'-' + who if rank else ''}.jsonl", "kind": "marks", **rank}))
        stretches.append(Stretch(step, sources))
    return stretches


def _began(trace: Path) -> int:
    return int(trace.stem.rpartition(AT)[2])


def _overview(marks: Path) -> tuple[int, int]:
    """Return the optimizer that steps least often, whose steps are the loop's, and the step that the first profile began after."""
    last: dict[int, int] = {}
    profiled: dict[int, int] = {}
    with marks.open("rb") as lines:
        for mark in map(MARK.search, lines):
            if mark:
                step, optimizer = int(mark[1]), int(mark[3])
                last[optimizer] = step
                if mark[2] == b"profile":
                    profiled.setdefault(optimizer, step)
    leading = min(last, key=lambda optimizer: (last[optimizer], optimizer), default=0)
    return leading, max(profiled.get(leading, 1) - 1, 0)


def _split(marks: Path, leading: int, steps: list[int]) -> list[Path]:
    """Write the marks of each stretch into a file of its own, each with the head; lines of several optimizers go by time, not by number."""
    bounds = [(a + b) // 2 for a, b in pairwise(steps)]
    parts = [marks.with_suffix(f".{number}.jsonl") for number in range(len(steps))]
    with marks.open("rb") as lines:
        head = next(lines, b"")
        number, out = 0, parts[0].open("wb")
        out.write(head)
        for line in lines:
            mark = MARK.search(line)
            if mark and int(mark[3]) == leading and number < len(bounds) and int(mark[1]) > bounds[number]:
                out.close()
                number += 1
                out = parts[number].open("wb")
                out.write(head)
            out.write(line)
        out.close()
    return parts

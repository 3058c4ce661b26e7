"""The loops in the step marks of a training, distinguished by optimizer or by the calling line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from sawtooth.analysis.metrics.step_time_evidence import HOST_SPEED_FACTOR
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.recording_row import row_of
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.call_site_text import lines_of
from sawtooth.ingest.loop.leading_optimizer import most_frequent_leader
from sawtooth.ingest.loop.step_parts import StepSpan
from sawtooth.ingest.manifest import Manifest

# A line with fewer consecutive steps on average (such as an epoch's last batch) is part of the outer loop.
MIN_STEPS_IN_A_ROW = 10
MIN_STEPS = 10  # Loops with fewer steps are not mentioned.
TRAINING = frozenset({"train", "eval", "checkpoint"})
SUPERSEDED = "superseded"  # Phase of profiled steps whose trace was replaced by a later profile.


class Mark(NamedTuple):
    """A step as the loop marked it."""

    step: int
    end_ns: int
    phase: str
    wait_ns: int | None = None
    first_ns: int | None = None
    start_ns: int | None = None


class MarkRow(NamedTuple):
    """A row of ``step_marks``; the site and the waits are None in older recordings."""

    optimizer: int
    step: int
    end_ns: int
    phase: str
    site: str | None = None
    wait_ns: int | None = None
    first_ns: int | None = None
    start_ns: int | None = None


class Loop(NamedTuple):
    """The identity of a loop: its optimizer's number and the lines that call its step, innermost first."""

    optimizer: int
    site: str | None


class ChosenLoop(NamedTuple):
    """The marks of the analysed loop in time order, and a sentence about other loops ("" if none).

    ``line`` is the innermost line that ends the steps, and ``site`` the text of its call site; None if unknown.
    """

    marks: list[Mark]
    about_others: str
    line: str | None = None
    site: str | None = None


def spans_between(marks: Sequence[Mark], phases: Collection[str]) -> list[StepSpan]:
    """Return the times between marks of consecutive steps that both have one of ``phases``."""
    return [
        StepSpan(mark.step, mark.end_ns - last.end_ns, mark.phase, mark.wait_ns, mark.first_ns or 0, mark.start_ns or 0)
        for last, mark in pairwise(marks)
        if mark.step == last.step + 1 and {last.phase, mark.phase} <= {*phases}
    ]


def traced_ns(manifest: Manifest, library: Library, rank: int | None) -> tuple[int, int] | None:
    """Return the time of the trace of ``rank`` in Unix ns; None if there is none or its clock is another."""
    for ref in manifest.recordings:
        if ref.kind == "trace" and (ref.rank == rank or rank is None):
            with library.open(ref.id, derived=False) as recording:
                row = row_of(recording)
            return (row.first_ns, row.last_ns) if row.clock == "unix" and row.first_ns and row.last_ns else None
    return None


def choose_loop(rows: Sequence[MarkRow], traced_ns: tuple[int, int] | None = None) -> ChosenLoop:
    """Return the loop that was profiled, else the one with the longest time.

    ``rows`` are in time order; ``traced_ns`` is the time of the run's trace.
    """
    loops: dict[Loop, list[Mark]] = defaultdict(list)
    for row, site in zip(rows, _sites(rows), strict=True):
        loops[Loop(row.optimizer, site)].append(Mark(row.step, row.end_ns, row.phase, *row[5:]))
    _mark_superseded(loops, traced_ns)
    if not loops:
        return ChosenLoop([], "")
    in_order = sorted(((mark.end_ns, loop.optimizer, mark.phase) for loop, marks in loops.items() for mark in marks))
    optimizer = most_frequent_leader((number, phase) for _, number, phase in in_order)
    chosen = max((loop for loop in loops if loop.optimizer == optimizer), key=lambda loop: _weight(loops[loop]))
    _join_equal_loops(loops, chosen)
    line = next(iter(lines_of(chosen.site)), None)
    return ChosenLoop(loops[chosen], _others_in_words(chosen, loops), line, chosen.site)


def _sites(rows: Sequence[MarkRow]) -> list[str | None]:
    """Return, for each row, the line that identifies its loop.

    A line that steps only occasionally belongs to the loop before it, or else to the first loop.
    """
    by_optimizer: dict[int, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_optimizer[row.optimizer].append(index)
    sites: list[str | None] = [None] * len(rows)
    for indices in by_optimizer.values():
        runs = [(site, list(run)) for site, run in groupby(indices, key=lambda index: rows[index].site)]
        runs_per_site, steps = Counter(site for site, _ in runs), Counter(rows[index].site for index in indices)
        loop_sites = {site for site in steps if steps[site] >= MIN_STEPS_IN_A_ROW * runs_per_site[site]}
        last = next((site for site, _ in runs if site in loop_sites), None)
        for site, run in runs:
            last = site if site in loop_sites else last
            for index in run:
                sites[index] = last
    return sites


def _mark_superseded(loops: dict[Loop, list[Mark]], traced_ns: tuple[int, int] | None) -> None:
    """Change the phase of a loop's profiled steps if the profile of a longer loop replaced their trace."""
    profiled = [loop for loop, marks in loops.items() if any(mark.phase == "profile" for mark in marks)]
    if traced_ns is None or len(profiled) < 2:
        return
    start_ns, end_ns = traced_ns
    traced = [loop for loop in profiled if any(m.phase == "profile" and start_ns <= m.end_ns <= end_ns for m in loops[loop])]
    for loop in profiled if traced else ():
        if loop not in traced:
            loops[loop] = [mark._replace(phase=SUPERSEDED) if mark.phase == "profile" else mark for mark in loops[loop]]


def _join_equal_loops(loops: dict[Loop, list[Mark]], chosen: Loop) -> None:
    """Join ``chosen`` with the loops that are the same code, called from other lines.

    They are the same loop if the innermost lines are equal and the usual steps differ at most as much as a host's speed varies. An
    example is a function that trains for some steps, called from several lines. Its calls may also train on other data or with
    another batch, so the lengths of the steps are compared.
    """
    line, usual_ns = next(iter(lines_of(chosen.site)), None), _usual_ns(loops[chosen])
    for loop in [loop for loop in loops if loop != chosen and loop.optimizer == chosen.optimizer]:
        other_line, other_ns = next(iter(lines_of(loop.site)), None), _usual_ns(loops[loop])
        if (
            line is not None
            and line == other_line
            and 0 < max(usual_ns, other_ns) <= HOST_SPEED_FACTOR * min(usual_ns, other_ns)
        ):
            loops[chosen] = sorted([*loops[chosen], *loops.pop(loop)], key=lambda mark: mark.end_ns)


def _usual_ns(marks: Sequence[Mark]) -> float:
    """Return the median training step in ns, 0 if there are few."""
    spans_ns = _spans_ns(marks)
    return float(np.median(spans_ns)) if len(spans_ns) >= MIN_STEPS else 0.0


def _weight(marks: Sequence[Mark]) -> tuple[int, int]:
    """Return the sort key to choose a loop: number of profiled steps, then duration."""
    return sum(mark.phase == "profile" for mark in marks), sum(_spans_ns(marks))


def _spans_ns(marks: Iterable[Mark]) -> list[int]:
    """Return the durations of the loop's training steps in ns."""
    return [b.end_ns - a.end_ns for a, b in pairwise(marks) if b.step == a.step + 1 and {a.phase, b.phase} <= TRAINING]


def _others_in_words(chosen: Loop, loops: dict[Loop, list[Mark]]) -> str:
    """Return a sentence about the analysed loop and the other ones.

    The others are loops of the same optimizer, and loops of other optimizers that ran completely before or after it.
    """
    first_ns, last_ns = loops[chosen][0].end_ns, loops[chosen][-1].end_ns
    other_loops = [
        loop
        for loop, marks in loops.items()
        if loop != chosen
        and len(marks) > MIN_STEPS
        and (loop.optimizer == chosen.optimizer or marks[0].end_ns > last_ns or marks[-1].end_ns < first_ns)
        and _spans_ns(marks)
    ]
    if not other_loops:
        return ""
    longest = max(other_loops, key=lambda loop: sum(_spans_ns(loops[loop])))
    marks = loops[longest]
    relation = "after" if marks[0].end_ns > last_ns else "before" if marks[-1].end_ns < first_ns else "in turns with"
    steps_in_words = f"{len(marks):,} steps of {in_words(float(np.mean(_spans_ns(marks))) / 1e6)}"
    chosen_line, other_line = _name(chosen, longest), _name(longest, chosen)
    if chosen_line is None or other_line is None:
        return f"Another loop made {steps_in_words} {relation} these. The report is about this loop only."
    if chosen_line == other_line:
        return (
            f"The report is about the loop of one optimizer that steps at {chosen_line}. "
            f"Another optimizer made {steps_in_words} {relation} it at the same line."
        )
    other = "Another loop" if len(other_loops) == 1 else f"{len(other_loops)} other loops are not included. The longest of them"
    not_included = " It is not included." if len(other_loops) == 1 else ""
    return (
        f"The report is about the loop that steps at {chosen_line}. "
        f"{other}, at {other_line}, made {steps_in_words} {relation} it.{not_included}"
    )


def _name(loop: Loop, other: Loop) -> str | None:
    """Return the innermost line of ``loop`` that ``other`` lacks, else its innermost line, or None."""
    lines, other_lines = lines_of(loop.site), lines_of(other.site)
    return next((line for line in lines if line not in other_lines), next(iter(lines), None))

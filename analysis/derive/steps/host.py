"""Steps of the host: their marks, and where each begins and ends."""

from __future__ import annotations

import re

import numpy as np

from sawtooth.analysis.derive.events import I64, TraceEvents
from sawtooth.analysis.derive.steps.host_steps import LOST_MARK, HostSteps
from sawtooth.analysis.derive.steps.inferred_steps import find_periods
from sawtooth.analysis.derive.steps.joined_marks import joined_marks
from sawtooth.analysis.derive.steps.layers import are_layers
from sawtooth.analysis.derive.steps.optimizer_turns import backward_starts, last_of_each_round, last_of_each_step
from sawtooth.analysis.derive.steps.unended_ranges import end_ranges, with_ended_updates
from sawtooth.analysis.derive.steps.unmarked_iterations import divide_steps, operator_starts
from sawtooth.analysis.intervals import union
from sawtooth.ingest.loop.step_boundary import STEP_NAME, TIMED_NAME

PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
# Annotations that repeat within a step, or describe the work of the profiler or a library. They never mark a step.
NOT_A_STEP = re.compile(
    r"nccl:|rccl:|FSDP::|## Call CompiledFxGraph|enumerate\(DataLoader\)|DistributedDataParallel\.forward|Optimizer\.zero_grad|"
    r"PyTorch Profiler|Torch-Compiled Region|TorchDynamo|CompiledFunction|\[memory\]|\[param|DataLoader"
)
# examples: "step_12", "Iteration 3", "Step 10 to 20"
NUMBERED_STEP = re.compile(r"(?:^|[^a-z])(?:step|iter|iteration|batch)[^a-z]*\d", re.IGNORECASE)
NUMBER = re.compile(r"\d+")
UPDATE_NAME = "Optimizer.step#"

MIN_CALL_SHARE = 0.5  # Share of the calls of a marked step. Fewer calls between two marks may come from outside the loop.
# Share of a step. Marks with a smaller distance follow each other, because a waiting schedule leaves out at least a whole step.
JOINED = 0.1
MIN_CALLS = 10  # The profiler itself makes fewer calls when it starts and stops (3 in 171 traces).


def find_host_steps(events: TraceEvents) -> HostSteps:
    """Find the steps from the best available source.

    The order is ProfilerStep, optimizer steps, a repeated user annotation, and repeated host work.
    """
    by_name = _annotations(events)
    marked = _marked_by_profiler(events, by_name)
    if marked is not None:
        return marked
    repeated = _repeated_annotations(events, by_name)
    if repeated:
        depth = _annotation_depth(events, np.flatnonzero(events.ops.annotation))
        name = min(
            repeated, key=lambda n: (min(depth[i] for i in repeated[n]), len(repeated[n]), -_total_time(events, repeated[n]), n)
        )
        return divide_steps(events, _annotation_steps(events, name, repeated[name]), np.sort(events.ops.start[repeated[name]]))
    return _inferred_steps(events)


def marked_steps(events: TraceEvents) -> HostSteps | None:
    """Return the steps marked by a profiler, an optimizer or the recorder; None if there are none.

    Of ``events.ops``, only the first row, all annotations and the backward pass are needed.
    """
    return _marked_by_profiler(events, _annotations(events))


def _annotations(events: TraceEvents) -> dict[str, list[int]]:
    by_name: dict[str, list[int]] = {}
    for index in np.flatnonzero(events.ops.annotation):
        by_name.setdefault(events.names[events.ops.name[index]], []).append(int(index))
    return by_name


def _marked_by_profiler(events: TraceEvents, by_name: dict[str, list[int]]) -> HostSteps | None:
    events = with_ended_updates(events, [rows for name, rows in by_name.items() if name.startswith(UPDATE_NAME)])
    profiler = {name: rows for name, rows in by_name.items() if PROFILER_STEP.fullmatch(name)}
    updates = _updates(events, by_name)
    if profiler:
        return _profiler_steps(events, profiler, updates[1] if updates is not None else [])
    if updates is not None:
        return _annotation_steps(events, *updates)
    boundaries = {name: rows for name, rows in by_name.items() if name.startswith(STEP_NAME)}
    for name, rows in boundaries.items():  # The recorder marks only one loop.
        return _annotation_steps(events, name, rows)
    return None


def _updates(events: TraceEvents, by_name: dict[str, list[int]]) -> tuple[str, list[int]] | None:
    """Return an optimizer's name and its steps, one for each step of the loop; None without an optimizer."""
    optimizers = {name: rows for name, rows in by_name.items() if name.startswith(UPDATE_NAME)}
    rows_of = {name: last_of_each_round(events, last_of_each_step(events, rows)) for name, rows in optimizers.items()}
    return min(rows_of.items(), key=lambda item: (len(item[1]), item[0])) if rows_of else None


def _repeated_annotations(events: TraceEvents, by_name: dict[str, list[int]]) -> dict[str, list[int]]:
    """Return annotations that one thread repeats; names that differ only in their numbers count as one.

    An annotation must repeat on one thread, because a recording may contain several processes that mark their own steps.
    """
    rows_of: dict[str, dict[int, list[int]]] = {}
    for name, rows in by_name.items():
        if not NOT_A_STEP.match(name):
            threads = rows_of.setdefault(NUMBER.sub("#", name) if NUMBERED_STEP.search(name) else name, {})
            for row in rows:
                threads.setdefault(int(events.ops.thread[row]), []).append(row)
    repeated = {name: max(threads.values(), key=len) for name, threads in rows_of.items()}
    return {name: rows for name, rows in repeated.items() if len(rows) > 1}


def _profiler_steps(events: TraceEvents, rows_of: dict[str, list[int]], updates: list[int]) -> HostSteps:
    # Several profilers or threads may write the same step. The longest row of each name is the loop's own.
    rows = [max(rows, key=lambda i: events.ops.end[i] - events.ops.start[i]) for rows in rows_of.values()]
    rows.sort(key=lambda i: int(events.ops.start[i]))
    names = [events.names[events.ops.name[i]] for i in rows]
    numbers = np.array([int(PROFILER_STEP.fullmatch(n)[1]) for n in names])  # type: ignore[index]  # they were chosen by this pattern
    starts, ends = events.ops.start[rows], events.ops.end[rows]
    ends = np.append(np.minimum(ends[:-1], starts[1:]), ends[-1:])  # A mark without an end would cover the later ones.
    calls = np.sort(events.calls.start)
    single, other_places = _lost_marks(
        numbers, starts, ends, calls if len(calls) or len(events.gpu) else operator_starts(events, rows)
    )
    if updates and len(backward_starts(events)):  # Without a backward pass, the updates of one step are not known.
        other_places += joined_marks(starts, ends, events.ops.end[updates], calls)
    if len(single):
        names = np.insert(
            np.array(names, object), single, [f"ProfilerStep#{n - 1}{LOST_MARK}" for n in numbers[single]]
        ).tolist()
        starts, ends = np.insert(starts, single, ends[single - 1]), np.insert(ends, single, starts[single])
        numbers = np.insert(numbers, single, numbers[single] - 1)
    # Gaps in the numbers mean that the schedule waited between two profiling cycles.
    cycle = np.concatenate(([0], np.cumsum(np.diff(numbers) != 1))).astype(np.int64)
    return HostSteps("profiler_step", None, names, starts, ends, cycle, other_places)


def _lost_marks(numbers: I64, starts: I64, ends: I64, calls: I64) -> tuple[I64, int]:
    """Return the steps before which one mark was lost, and the number of other places with lost marks.

    While a schedule waits, nothing is recorded. So a missing number is a lost mark if calls of its step were recorded. ``calls``
    are operators in a trace of the CPU alone. Many calls before the first mark or after the last also show a lost mark. The times
    are not known if several marks in a row were lost, or if the calls of the step were lost too. A number is also missing if one
    mark covers several steps; then the next mark follows at once.
    """
    in_step = np.median(np.searchsorted(calls, ends) - np.searchsorted(calls, starts))
    borders = np.searchsorted(calls, starts, side="right"), np.searchsorted(calls, ends)
    calls_between = np.append(borders[0], len(calls)) - np.insert(borders[1], 0, 0)
    recorded = calls_between >= max(MIN_CALL_SHARE * in_step, MIN_CALLS)
    partly = calls_between[1:-1] >= MIN_CALLS
    missing = np.concatenate(([1], np.diff(numbers) - 1, [1]))
    single = np.flatnonzero(recorded[1:-1] & (missing[1:-1] == 1)) + 1
    joined = (missing[1:-1] > 0) & (starts[1:] - ends[:-1] < JOINED * (ends - starts)[:-1])
    recorded[1:-1] = (partly & (missing[1:-1] > 0)) | joined
    return single, int((recorded & (missing > 0)).sum()) - len(single)


def _annotation_steps(events: TraceEvents, name: str, rows: list[int]) -> HostSteps:
    rows = sorted(rows, key=lambda i: (int(events.ops.end[i]), int(events.ops.start[i])))
    ends = end_ranges(events.ops.start[rows], events.ops.end[rows])
    rows = [rows[i] for i in np.argsort(ends, kind="stable")]
    ends = np.sort(ends)
    first = min(int(events.ops.start[0]) if len(events.ops) else 0, int(events.calls.start[0]) if len(events.calls) else 0)
    if not name.startswith("Optimizer.") and (ends < events.ops.end[rows]).any():
        first = int(events.ops.start[rows[0]])  # A range that was never popped has no known end.
    starts = np.concatenate(([min(first, int(ends[0]))], ends[:-1])).astype(np.int64)
    names = [events.names[events.ops.name[i]] for i in rows]
    if name in names or len(set(names)) < len(names):
        names = [f"{name} {i + 1}" for i in range(len(rows))]
    return HostSteps(
        source="annotation", annotation=name, names=names, starts=starts, ends=ends, cycle=np.zeros(len(rows), np.int64)
    )


def _inferred_steps(events: TraceEvents) -> HostSteps:
    timed = TIMED_NAME in _annotations(events)
    periods = find_periods(events) if not timed else None
    if periods is None or are_layers(events, periods[0]):
        empty = np.zeros(0, np.int64)
        return HostSteps(source="none", annotation=None, names=[], starts=empty, ends=empty, cycle=empty)
    starts, ends = periods
    return HostSteps(
        source="inferred",
        annotation=None,
        names=[f"step {i + 1}" for i in range(len(starts))],
        starts=starts,
        ends=ends,
        cycle=np.zeros(len(starts), np.int64),
    )


def _annotation_depth(events: TraceEvents, marked: I64) -> dict[int, int]:
    """Count the annotations that enclose each annotation on its own thread."""
    depth: dict[int, int] = {}
    for index in marked:
        parent, levels = int(events.ops.parent[index]), 0
        while parent >= 0:
            levels += bool(events.ops.annotation[parent])
            parent = int(events.ops.parent[parent])
        depth[int(index)] = levels
    return depth


def _total_time(events: TraceEvents, rows: list[int]) -> int:
    return union(events.ops.start[rows], events.ops.end[rows]).total

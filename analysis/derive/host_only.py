"""Host time per step, from a trace without GPU work."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis import intervals
from sawtooth.analysis.derive.events import I64, TraceEvents
from sawtooth.analysis.derive.host import PYTHON_CALL_NS, HostFacts
from sawtooth.analysis.derive.steps.host_steps import HostSteps
from sawtooth.analysis.knowledge.frames import is_user_line, without_line

LOADING = "enumerate(DataLoader)"  # PyTorch annotates the loading of each batch with this name.
# This Python call is inside LOADING if the training process loads the batch itself.
LOADS_INLINE = "_SingleProcessDataLoaderIter"
LOADS_IN_WORKERS = "_MultiProcessingDataLoaderIter"  # This Python call is inside LOADING if worker processes load the batch.
COLLECTIVE = re.compile(r"^(gloo|mpi|nccl|rccl|ucc):")  # Annotations of the backends, which last as long as the operation.
OPTIMIZER = "Optimizer.step#"  # PyTorch annotates an optimizer's step with this prefix.
MAX_OPERATORS = 10  # Number of listed operators. The others take little time.
MIN_STEPS = 2  # Two ends of steps give one step time.
MIN_CALLS = 100  # Fewer pairs of Python calls give no reliable percentile.
# Percentile of the times between consecutive calls of one function. Recording takes most of such a time.
FASTEST_PERCENTILE = 10
# Recording takes this share of the time between two calls: 0.71 to 0.75 in loops over sin, random and ord, which were timed
# with and without the profiler.
RECORDED_SHARE = 0.7


def host_only(events: TraceEvents, steps: HostSteps, host: HostFacts) -> dict[str, Any] | None:
    """Return the host's times in ns per step; None if the trace has no operators.

    Without steps, times are those of the full recording. ``step_ns`` are the durations from step end to step end. ``first_ns``
    is the duration of the first step if a profiler marks it, else None. ``unmarked`` counts the places between marks at which
    steps ran without a mark.

    The time of the loop's thread has three parts: ``loading_ns`` (waits for batches), ``operators_ns`` (inside other operators) and
    ``rest_ns`` (outside both). ``communication_ns`` is the part of the rest in which the collective called ``collective`` runs.
    ``operators`` has name, own time and calls. ``threads`` has id and time inside operators. If Python calls are recorded,
    ``functions`` has the user's own functions with their time outside operators; it includes the loader's code if the loop's own
    process runs it. Time between two cycles of the profiler is not counted.
    """
    ops = events.ops
    if not len(ops):
        return None
    steps = _without_the_end_of_the_profile(events, steps)
    step_ns: list[int] = []
    first_ns: int | None = None
    window = intervals.union([int(ops.start.min())], [int(ops.end.max())])
    has_gap = _has_gap_after(steps)
    if len(steps.ends) >= MIN_STEPS and len(within_cycle := np.flatnonzero((np.diff(steps.cycle) == 0) & ~has_gap)):
        step_ns = np.diff(steps.ends)[within_cycle].tolist()
        window = intervals.union(steps.ends[within_cycle], steps.ends[within_cycle + 1])
        first_ns = int(steps.ends[0] - steps.starts[0]) if steps.source == "profiler_step" else None
    elif steps.source == "profiler_step":  # The schedule has one active step in each cycle. Its marks have both ends.
        step_ns = (steps.ends - steps.starts).tolist()
        window = intervals.union(steps.starts, steps.ends)
    divisor = max(len(step_ns), 1)
    part = np.searchsorted(window.starts, ops.start, side="right") - 1
    inside = (part >= 0) & (ops.start < window.ends[part])
    loading_op = np.array([name.startswith(LOADING) for name in events.names], bool)[ops.name]
    working = inside & ~ops.annotation & ~loading_op
    loop = _loop_thread(events, inside)
    loading = _clip(events, inside & loading_op & (ops.thread == loop), window)
    operators = intervals.difference(_clip(events, working & (ops.thread == loop), window), loading)
    host_rest = intervals.difference(intervals.difference(window, loading), operators)
    communication, collective = _communication(events, inside, host_rest, window)
    in_workers = np.array([LOADS_IN_WORKERS in name for name in events.names], bool)[ops.name]
    other = (working | (inside & loading_op & in_workers)) & (ops.thread == loop)
    functions = own_functions(events.names, host, loop, window, _clip(events, other, window))
    return {
        "functions": [[name, ns / divisor] for name, ns in functions],
        "step_ns": step_ns,
        "first_ns": first_ns,
        "unmarked": steps.lost_marks + int(has_gap.sum()),
        "loading_ns": loading.total / divisor,
        "operators_ns": operators.total / divisor,
        "rest_ns": host_rest.total / divisor,
        "communication_ns": communication / divisor,
        "collective": collective,
        "operators": _operators(events, working, divisor),
        "threads": [
            [int(thread), _clip(events, working & (ops.thread == thread), window).total / divisor]
            for thread in np.unique(ops.thread[working])
        ],
    }


def _has_gap_after(steps: HostSteps) -> NDArray[np.bool_]:
    """Return which steps are followed by at least the time of a usual iteration without a mark.

    Steps before a gap in the numbers are not among them, because a schedule waits there. An iteration is the time from mark
    to mark. So no time is left out if the marks cover only a part of each iteration.
    """
    if steps.source != "profiler_step":
        return np.zeros(max(len(steps.ends) - 1, 0), bool)
    gap_ns = steps.starts[1:] - steps.ends[:-1]
    in_cycle = np.diff(steps.cycle) == 0
    iterations = np.diff(steps.starts)[in_cycle]
    return in_cycle & (gap_ns >= np.median(iterations)) if len(iterations) else in_cycle


def _without_the_end_of_the_profile(events: TraceEvents, steps: HostSteps) -> HostSteps:
    """Return ``steps`` with the last step shortened to the end of its operators, if optimizers mark steps.

    A recorder ends its profile in a hook of the optimizer's step, so the annotation includes the end of the profile. This took
    810 ms after 360,000 Python calls.
    """
    ops = events.ops
    if not (steps.annotation or "").startswith(OPTIMIZER) or len(steps.ends) < MIN_STEPS:
        return steps
    second_last, last = (int(end) for end in steps.ends[-2:])
    works = ~ops.annotation & (ops.start >= second_last) & (ops.end <= last)
    if not works.any():
        return steps
    return replace(steps, ends=np.append(steps.ends[:-1], ops.end[works].max()))


def _communication(
    events: TraceEvents, inside: NDArray[np.bool_], host_rest: intervals.Intervals, window: intervals.Intervals
) -> tuple[int, str]:
    """Return the ns of ``host_rest`` with a collective on any thread, and the longest collective's name.

    Without a collective, the result is (0, "").
    """
    of_backend = np.array([COLLECTIVE.match(name) is not None for name in events.names] or [False], bool)
    chosen = inside & of_backend[events.ops.name]
    if not chosen.any():
        return 0, ""
    time = np.bincount(events.ops.name[chosen], weights=(events.ops.end - events.ops.start)[chosen])
    return intervals.intersect(_clip(events, chosen, window), host_rest).total, events.names[int(time.argmax())]


def _loop_thread(events: TraceEvents, inside: NDArray[np.bool_]) -> int:
    """Return the loop's thread, which has the most time in outermost operators and annotations."""
    ops = events.ops
    outer = inside & (ops.parent < 0)
    time = np.bincount(ops.thread[outer], weights=(ops.end - ops.start)[outer]) if outer.any() else np.zeros(1)
    return int(time.argmax())


def _clip(events: TraceEvents, chosen: NDArray[np.bool_], window: intervals.Intervals) -> intervals.Intervals:
    return intervals.intersect(intervals.union(events.ops.start[chosen], events.ops.end[chosen]), window)


def _operators(events: TraceEvents, working: NDArray[np.bool_], divisor: int) -> list[list[Any]]:
    """Return name, own ns and calls per step for the operators with the most own time."""
    ops = events.ops
    own_ns = ops.end - ops.start
    has_parent = ops.parent >= 0
    np.subtract.at(own_ns, ops.parent[has_parent], (ops.end - ops.start)[has_parent])
    time = np.bincount(ops.name[working], weights=own_ns[working], minlength=len(events.names))
    calls = np.bincount(ops.name[working], minlength=len(events.names))
    first = np.argsort(-time, kind="stable")[:MAX_OPERATORS]
    return [[events.names[i], float(time[i]) / divisor, float(calls[i]) / divisor] for i in first if calls[i]]


def own_functions(
    names: Sequence[str], host: HostFacts, thread: int, window: intervals.Intervals, inside: intervals.Intervals
) -> list[tuple[str, int]]:
    """Return the user's functions (``file.py(12): name``) with their ns on ``thread``, longest first.

    Only time inside ``window`` and outside ``inside`` counts. The time of calls into libraries and Python itself, minus the
    cost of recording them, counts for the calling function. A function that was open when the recording began gets the line
    of its definition, or no line if no later call shows it. Empty if no Python calls were recorded.
    """
    calls = np.flatnonzero(host.python_thread == thread)
    if not len(calls) or not len(window.starts):
        return []  # Return early, because matching every name is slow.
    shown_names = _names_with_lines(names, host, calls)
    calls = calls[(host.python_end[calls] > window.starts[0]) & (host.python_start[calls] < window.ends[-1])]
    owner = _owners(host, calls, np.array([is_user_line(name) for name in names], bool))
    in_user_code = owner >= 0
    calls, owner = calls[in_user_code], owner[in_user_code]
    if not len(calls):
        return []
    begin, end = host.python_start[calls], host.python_end[calls]
    ns = _time_within(window, begin, end) - _time_within(inside, begin, end)
    at = np.full(int(calls.max()) + 1, -1, np.int64)
    at[calls] = np.arange(len(calls))
    parent = host.python_parent[calls]
    own_ns = ns.copy()
    nested = (parent >= 0) & (parent < len(at))
    nested[nested] = at[parent[nested]] >= 0
    np.subtract.at(own_ns, at[parent[nested]], ns[nested])
    window_index = np.searchsorted(window.starts, begin, side="right") - 1
    counted = (window_index >= 0) & (begin < window.ends[window_index])
    without_recording = np.maximum(own_ns, 0) - _call_cost_ns(host, thread) * counted
    open_first = np.isin(owner, list(shown_names))
    time = np.bincount(host.python_name[owner[~open_first]], weights=without_recording[~open_first], minlength=len(names))
    of_function = Counter({names[name]: int(time[name]) for name in np.flatnonzero(time > 0).tolist()})
    for call, call_ns in zip(owner[open_first].tolist(), without_recording[open_first].tolist(), strict=True):
        of_function[shown_names[call]] += int(call_ns)
    return [(name, function_ns) for name, function_ns in of_function.most_common(MAX_OPERATORS) if function_ns > 0]


def _call_cost_ns(host: HostFacts, thread: int) -> float:
    """Return the ns that recording one Python call on ``thread`` costs.

    It is derived from the times between consecutive calls of one function.
    """
    calls = np.flatnonzero(host.python_thread == thread)
    calls = calls[np.lexsort((host.python_start[calls], host.python_parent[calls]))]
    distance_ns = np.diff(host.python_start[calls])[np.diff(host.python_parent[calls]) == 0]
    if len(distance_ns) < MIN_CALLS:
        return PYTHON_CALL_NS
    return min(RECORDED_SHARE * float(np.percentile(distance_ns, FASTEST_PERCENTILE)), PYTHON_CALL_NS)


def _names_with_lines(names: Sequence[str], host: HostFacts, calls: I64) -> dict[int, str]:
    """Return names for the calls that were open when the recording began.

    Their recorded line is the line that ran at that time. The line of the definition comes from later calls, if all later calls
    have the same line.
    """
    open_first = calls[host.python_start[calls] < host.python_end[calls].min()]
    if not len(open_first):
        return {}
    defined: dict[str, set[str]] = defaultdict(set)
    for name in {names[number] for number in host.python_name[np.setdiff1d(calls, open_first)]}:
        defined[without_line(name)].add(name)
    bare = {int(call): without_line(names[host.python_name[call]]) for call in open_first}
    return {call: next(iter(defined[name])) if len(defined[name]) == 1 else name for call, name in bare.items()}


def _owners(host: HostFacts, calls: I64, user: NDArray[np.bool_]) -> I64:
    """Return, for each call, the nearest user call: itself or an ancestor; -1 if there is none."""
    owner = calls.astype(np.int64)
    while True:
        climbs = (owner >= 0) & ~user[host.python_name[np.maximum(owner, 0)]]
        if not climbs.any():
            return owner
        owner[climbs] = host.python_parent[owner[climbs]]


def _time_within(parts: intervals.Intervals, begin: I64, end: I64) -> I64:
    if not len(parts.starts):
        return np.zeros_like(begin)
    total = np.concatenate([[0], np.cumsum(parts.ends - parts.starts)])

    def before(time: I64) -> I64:
        at = np.searchsorted(parts.starts, time, side="right") - 1
        part = np.maximum(at, 0)
        return np.where(at >= 0, total[part] + np.minimum(time, parts.ends[part]) - parts.starts[part], 0)

    return before(end) - before(begin)

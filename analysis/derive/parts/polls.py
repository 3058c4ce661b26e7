"""Host waits by polling, such as ``while not event.query()``.

Such a loop makes many short calls. Together they are one wait for GPU work. PyTorch's allocators also query events, but inside
operators.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, Calls, TraceEvents
from sawtooth.analysis.derive.host import POLLED

POLL = re.compile(r"^((cuda|hip)(Event|Stream)Query|cu(Event|Stream)Query)$")
MIN_POLLS = 3  # Fewer polls may not be a loop.
MIN_SERIES_NS = 20_000  # A shorter series of polls costs less than the error of its times.
CLOCK_SKEW_NS = 20_000  # The clocks of host and GPU differ by up to this time.


def with_polled_waits(events: TraceEvents) -> TraceEvents:
    """Return the events with each series of polls that waits for GPU work as one call.

    The first poll of a series then lasts until the last poll's end, and POLLED ends its name. The other polls stay as they are.
    """
    polls = np.flatnonzero([POLL.match(name) is not None for name in events.names])
    if not len(polls) or not len(events.gpu):
        return events
    calls, ops = events.calls, events.ops
    in_operator = (calls.cpu_op >= 0) & ~ops.annotation[calls.cpu_op] if len(ops) else np.zeros(len(calls), bool)
    first, last = _series(calls, np.isin(calls.name, polls) & ~in_operator, events.gpu.end)
    if not len(first):
        return events
    name, end = calls.name.copy(), calls.end.copy()
    renamed = np.full(len(events.names), -1, np.int32)
    used = np.unique(name[first])
    renamed[used] = len(events.names) + np.arange(len(used), dtype=np.int32)
    name[first], end[first] = renamed[name[first]], end[last]
    names = [*events.names, *(events.names[name_id] + POLLED for name_id in used.tolist())]
    return replace(events, names=names, calls=replace(calls, name=name, end=end))


def _series(calls: Calls, is_poll: NDArray[np.bool_], work_end: I64) -> tuple[I64, I64]:
    """Return the first and the last call of each series of polls that waits.

    A series has only polls of one thread. It waits if GPU work ends between its last two polls.
    """
    order = np.lexsort((calls.start, calls.thread))
    polls, thread = is_poll[order], calls.thread[order]
    follows = polls[1:] & polls[:-1] & (thread[1:] == thread[:-1])
    begins = np.flatnonzero(polls & ~np.concatenate([[False], follows]))
    ends = np.flatnonzero(polls & ~np.concatenate([follows, [False]]))
    long = ends - begins + 1 >= MIN_POLLS
    first, before_last, last = order[begins[long]], order[ends[long] - 1], order[ends[long]]
    work_ends = np.sort(work_end)
    after = np.searchsorted(work_ends, calls.start[before_last] - CLOCK_SKEW_NS)
    until = np.searchsorted(work_ends, calls.end[last] + CLOCK_SKEW_NS, side="right")
    waits = (until > after) & (calls.end[last] - calls.start[first] >= MIN_SERIES_NS)
    return first[waits], last[waits]

"""Driver calls of PyTorch's caching allocator in the counted steps, and the memory state behind them.

The allocator calls the driver if none of its free blocks can serve a request. If the driver refuses, the allocator returns
every free unsplit block and asks again, all inside one operator. ``empty_cache`` returns blocks outside of operators. Memory
is fragmented if the allocator has enough free bytes for a request, but no single block of the requested size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.queries.calls import CountedEvents, calls
from sawtooth.analysis.run.model import CodeChange
from sawtooth.analysis.telemetry.attribution import metadata_of

DRIVER_CALLS = r"^(cuda|hip)(Malloc|Free)(Async)?$|^(cu|hip)Mem(Create|Map|Unmap|Release|Alloc|Free)"
RETURNING_CALLS = "Free|Unmap|Release"
LARGE_BYTES = 1 << 20  # Smaller requests come from a separate pool, which cannot use the free blocks of the large pool.
# Share of the reserved peak that must be free when most memory is in use. The allocator rounds blocks up to 2 MB, which wastes a
# few percent in any program.
MIN_FREE_SHARE = 0.1
# Share of the calls of NEW_TENSORS that ask the driver. Without the caching allocator, nearly all calls ask. With it, 0.6 % asked in
# a loop with ``empty_cache()``.
MIN_UNCACHED_SHARE = 0.5
NEW_TENSORS = ("aten::empty", "aten::mm", "aten::addmm", "aten::bmm")  # Operators that need memory for each result.

RETAINED_TENSORS = (
    "the reference that keeps tensors of each step",
    ": append loss.detach() instead of loss, clear lists of outputs, limit caches.",
)
DETACHED = (
    CodeChange(
        "PyTorch",
        "losses.append(loss)             # keeps the graph",
        "losses.append(loss.detach())    # or .item() when you log",
    ),
    CodeChange(
        "Lightning",
        "self.outputs.append(logits)",
        "self.outputs.append(logits.detach().cpu())   # and self.outputs.clear() in on_train_epoch_end",
    ),
)


@dataclass(frozen=True)
class DriverCalls:
    """The allocator's driver calls in the counted steps.

    ``retried`` is the number of steps in which the allocator asked again after the driver refused. ``free_bytes`` and
    ``reserved_bytes`` are the allocator's free and reserved memory at the request. ``fragmented`` is True if the free memory was
    large enough in total, None if not known. ``uncached`` is True if each tensor's memory comes from the driver.
    """

    all: CountedEvents
    retried: int
    fragmented: bool | None = None
    free_bytes: float | None = None
    reserved_bytes: float | None = None
    expandable: bool = False
    uncached: bool = False

    @property
    def never_returns(self) -> bool:
        """Return whether every counted step takes memory from the driver, and none returns any."""
        names, steps = self.all.frame["name"], self.all.frame["step"]
        return not names.str.contains(RETURNING_CALLS).any() and steps.nunique() == self.all.steps

    def row(self) -> Row:
        """Return the memory state as a row of evidence."""
        return {"free_bytes": self.free_bytes, "reserved_bytes": self.reserved_bytes, "steps_retried": self.retried}


@once
def driver_calls(context: RuleContext) -> DriverCalls:
    """Return the allocator's driver calls with its memory state at these calls."""
    all_calls = calls(context, DRIVER_CALLS)
    if not all_calls.count_per_step:
        return DriverCalls(all_calls, 0)
    if _is_uncached(context, all_calls.frame):
        return DriverCalls(all_calls, 0, uncached=True)
    requests = _requests(context, all_calls.frame)
    retried = int(requests.loc[requests["is_retry"], "step"].nunique())
    recorded = metadata_of(context.recording).get("cuda_allocator")
    notes = recorded if isinstance(recorded, dict) else {}
    expandable = "expandable_segments:true" in str(notes.get("settings", "")).lower()
    memory_state = _memory_state(context, requests)
    if memory_state is None and retried:
        memory_state = _memory_state_from_counters(notes)
    if memory_state is None:
        return DriverCalls(all_calls, retried, expandable=expandable)
    return DriverCalls(all_calls, retried, *memory_state, expandable=expandable)


def _is_uncached(context: RuleContext, frame: pd.DataFrame) -> bool:
    """Return whether nearly every new tensor asks the driver, as without PyTorch's caching allocator."""
    allocating = frame[~frame["name"].str.contains(RETURNING_CALLS)]
    ((asking, created),) = context.recording.rows(
        "SELECT count(*) FILTER (cpu_op_id IN (SELECT unnest($ids::BIGINT[]))), count(*) FROM cpu_ops JOIN names USING (name_id) "
        "WHERE list_contains($names::VARCHAR[], name) AND start_ns BETWEEN $first AND $last",
        {
            "names": list(NEW_TENSORS),
            "ids": allocating["cpu_op_id"].dropna().astype("int64").unique().tolist(),
            "first": int(frame["start_ns"].min()),
            "last": int(frame["start_ns"].max()),
        },
    )
    return bool(asking > MIN_UNCACHED_SHARE * created)


def _requests(context: RuleContext, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the operators in which the allocator called the driver for memory.

    Columns: step, thread_id, start_ns (of the first allocating call), end_ns (of the last one) and is_retry. An operator is a retry
    if it returned blocks between two allocating calls, because the first request had failed.
    """
    ids = frame["cpu_op_id"].dropna().astype("int64").unique().tolist()
    operators = context.recording.rows(
        "SELECT cpu_op_id FROM cpu_ops WHERE kind = 'op' AND cpu_op_id IN (SELECT unnest(?::BIGINT[]))", [ids]
    )
    inside = frame[frame["cpu_op_id"].isin([key for (key,) in operators])].sort_values("start_ns")
    gives_back = inside["name"].str.contains(RETURNING_CALLS)
    rows = []
    for _, part in inside.groupby("cpu_op_id"):
        returning, allocating = part[gives_back[part.index]], part[~gives_back[part.index]]
        if allocating.empty:
            continue
        first_ns, last_ns = allocating["start_ns"].iloc[0], allocating["start_ns"].iloc[-1]
        is_retry = bool(returning["start_ns"].between(first_ns, last_ns).any())
        first_call = part.iloc[0]
        rows.append((first_call["step"], first_call["thread_id"], first_ns, allocating["end_ns"].iloc[-1], is_retry))
    return pd.DataFrame(rows, columns=["step", "thread_id", "start_ns", "end_ns", "is_retry"]).astype({"is_retry": bool})


# The request is the first block that the thread gets after the call. The last event before the call gives the memory state.
_MEMORY_STATE_SQL = """
WITH asked AS (SELECT unnest($threads::BIGINT[]) AS thread_id, unnest($starts::BIGINT[]) AS start_ns, unnest($ends::BIGINT[]) AS end_ns),
events AS (SELECT * FROM allocations WHERE device_type <> 0 AND device = $device AND total_reserved_bytes > 0)
SELECT request.bytes, before.total_allocated_bytes AS allocated, before.total_reserved_bytes AS reserved FROM asked
    ASOF JOIN (FROM events WHERE bytes > 0) request ON request.thread_id = asked.thread_id AND request.time_ns >= asked.end_ns
    ASOF JOIN events before ON before.time_ns <= asked.start_ns"""


def _memory_state(context: RuleContext, requests: pd.DataFrame) -> tuple[bool, float, float] | None:
    """Return the memory state from the allocator's events, None if there are no events.

    The tuple has: whether the free memory was large enough for most requests, the median free bytes, the median reserved
    bytes.
    """
    if requests.empty:
        return None
    columns = {
        key: requests[name].tolist() for key, name in (("threads", "thread_id"), ("starts", "start_ns"), ("ends", "end_ns"))
    }
    rows = context.recording.frame(_MEMORY_STATE_SQL, {**columns, "device": context.rank.device})
    rows = rows[rows["bytes"] >= LARGE_BYTES]
    if rows.empty:
        return None
    free = rows["reserved"] - rows["allocated"]
    return bool((free >= rows["bytes"]).mean() > 0.5), float(free.median()), float(rows["reserved"].median())


def _memory_state_from_counters(notes: dict[str, Any]) -> tuple[bool, float, float] | None:
    """Return the memory state like ``_memory_state``, but from the recorder's counters.

    The free bytes are a lower bound: the reserved peak minus the allocated peak.
    """
    ended = notes.get("ended")
    counters = ended if isinstance(ended, dict) else {}
    allocated, reserved = (counters.get(f"{kind}_bytes.all.peak") for kind in ("allocated", "reserved"))
    if not isinstance(allocated, int | float) or not isinstance(reserved, int | float) or min(allocated, reserved) <= 0:
        return None
    return reserved - allocated >= MIN_FREE_SHARE * reserved, max(float(reserved - allocated), 0.0), float(reserved)

"""Why PyTorch's caching allocator went to the driver in the counted steps: a request that none of its blocks could hold, and what it had at that time.

In its retry the allocator asks the driver, is refused, gives every block back that is whole and free, and asks once more, all within one operator;
``empty_cache`` gives blocks back outside of any. Memory is in pieces (fragmented) where the allocator holds as much as is asked for, free, in no single block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import Events, calls
from sawtooth.analysis.telemetry.attribution import metadata_of

CALLS = r"^(cuda|hip)(Malloc|Free)(Async)?$|^(cu|hip)Mem(Create|Map|Unmap|Release|Alloc|Free)"
GIVES_BACK = "Free|Unmap|Release"
LARGE = 1 << 20  # bytes: what is asked for below this comes from a pool of its own, which larger free blocks do not serve
# Of the peak of what is reserved, free even at the peak of what is in use: blocks are rounded up to 2 MB, which wastes a few percent of any mix.
WELL_ABOVE = 0.1


@dataclass(frozen=True)
class DriverCalls:
    """The allocator's calls of the driver in the counted steps. ``retried`` is in how many of these steps it was refused and asked again; ``free_bytes``
    and ``reserved_bytes`` what it had free and in all as it asked; ``in_pieces``: the free memory would have done (None: not known)."""

    all: Events
    retried: int
    in_pieces: bool | None = None
    free_bytes: float | None = None
    reserved_bytes: float | None = None
    expandable: bool = False

    def row(self) -> dict[str, Any]:
        """Return what it held as a row of evidence."""
        return {"free_bytes": self.free_bytes, "reserved_bytes": self.reserved_bytes, "steps_retried": self.retried}


@once
def driver_calls(context: RuleContext) -> DriverCalls:
    """Return the allocator's calls of the driver, and what they say of its memory."""
    every = calls(context, CALLS)
    if not every.count:
        return DriverCalls(every, 0)
    asked = _asked(context, every.frame)
    retried = int(asked.loc[asked["again"], "step"].nunique())
    notes = metadata_of(context.recording).get("cuda_allocator")
    notes = notes if isinstance(notes, dict) else {}
    expandable = "expandable_segments:true" in str(notes.get("settings", "")).lower()
    held = _held(context, asked)
    if held is None and retried:
        held = _by_counters(notes)
    if held is None:
        return DriverCalls(every, retried, expandable=expandable)
    return DriverCalls(every, retried, *held, expandable=expandable)


def _asked(context: RuleContext, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the operators that the driver was asked in, with step, thread_id, start_ns (of the first call), end_ns (of the last that takes memory) and
    whether it was asked ``again``: after blocks were given back that an earlier call of the same operator could not do without."""
    ids = frame["cpu_op_id"].dropna().astype("int64").unique().tolist()
    operators = context.recording.rows(
        "SELECT cpu_op_id FROM cpu_ops WHERE kind = 'op' AND cpu_op_id IN (SELECT unnest(?::BIGINT[]))", [ids]
    )
    inside = frame[frame["cpu_op_id"].isin([key for (key,) in operators])].sort_values("start_ns")
    gives = inside["name"].str.contains(GIVES_BACK)
    rows = []
    for _, part in inside.groupby("cpu_op_id"):
        back, takes = part[gives[part.index]], part[~gives[part.index]]
        if takes.empty:
            continue
        first, last = takes["start_ns"].iloc[0], takes["start_ns"].iloc[-1]
        again = bool(back["start_ns"].between(first, last).any())
        head = part.iloc[0]
        rows.append((head["step"], head["thread_id"], first, takes["end_ns"].iloc[-1], again))
    return pd.DataFrame(rows, columns=["step", "thread_id", "start_ns", "end_ns", "again"]).astype({"again": bool})


# A request is the first block that its thread gets after the call; what was held before is what the last event before the call says.
_HELD = """
WITH asked AS (SELECT unnest($threads::BIGINT[]) AS thread_id, unnest($starts::BIGINT[]) AS start_ns, unnest($ends::BIGINT[]) AS end_ns),
events AS (SELECT * FROM allocations WHERE device_type <> 0 AND device = $device AND total_reserved_bytes > 0)
SELECT request.bytes, before.total_allocated_bytes AS allocated, before.total_reserved_bytes AS reserved FROM asked
    ASOF JOIN (FROM events WHERE bytes > 0) request ON request.thread_id = asked.thread_id AND request.time_ns >= asked.end_ns
    ASOF JOIN events before ON before.time_ns <= asked.start_ns"""


def _held(context: RuleContext, asked: pd.DataFrame) -> tuple[bool, float, float] | None:
    """Return by the allocator's events whether most requests would have found room in what was free, and the median of that and of all that was reserved."""
    if asked.empty:
        return None
    columns = {
        key: asked[name].tolist() for key, name in (("threads", "thread_id"), ("starts", "start_ns"), ("ends", "end_ns"))
    }
    rows = context.recording.frame(_HELD, {**columns, "device": context.rank.device})
    rows = rows[rows["bytes"] >= LARGE]
    if rows.empty:
        return None
    free = rows["reserved"] - rows["allocated"]
    return bool((free >= rows["bytes"]).mean() > 0.5), float(free.median()), float(rows["reserved"].median())


def _by_counters(notes: dict[str, Any]) -> tuple[bool, float, float] | None:
    """Return the same by the counters of the capture helper: what was free at the peak of what was reserved, at least."""
    ended = notes.get("ended")
    known = ended if isinstance(ended, dict) else {}
    allocated, reserved = (known.get(f"{kind}_bytes.all.peak") for kind in ("allocated", "reserved"))
    if not isinstance(allocated, int | float) or not isinstance(reserved, int | float) or min(allocated, reserved) <= 0:
        return None
    return reserved - allocated >= WELL_ABOVE * reserved, max(float(reserved - allocated), 0.0), float(reserved)

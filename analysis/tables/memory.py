"""Device memory: the allocator's history, its peak, and its calls to the driver in the steady window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

_SQL = queries_of(__file__)
ALLOCATED_BEFORE = "allocated before the recording began"
MAX_POINTS = 2000  # Points of a drawn line. The reduction to this number keeps the peak.


@dataclass(frozen=True)
class MemoryUse:
    """The history of a device's allocator.

    ``time_ns`` is absolute. If the trace has only changes of the allocated bytes, earlier allocations are unknown. Bytes are then
    ``relative`` to the start of the recording, or to the lowest level if usage falls below the start. ``reserved`` is empty if not
    recorded.
    """

    time_ns: NDArray[np.int64]
    allocated: NDArray[np.float64]
    reserved: NDArray[np.float64]
    relative: bool
    peak_bytes: float
    peak_ns: int
    reserved_peak_bytes: float | None
    allocations: int
    allocated_bytes: float

    def table(self, origin_ns: int) -> pd.DataFrame:
        """Return at_ms, allocated_bytes and reserved_bytes with the same points as the drawn line."""
        rows = {"at_ms": (self.time_ns - origin_ns) / 1e6, "allocated_bytes": self.allocated}
        if len(self.reserved):
            rows["reserved_bytes"] = self.reserved
        return pd.DataFrame(rows)

    @property
    def unused_share(self) -> float | None:
        """The share of the reserved peak that is not allocated, due to fragmentation and caching."""
        return 1 - self.peak_bytes / self.reserved_peak_bytes if self.reserved_peak_bytes else None


def memory_use(rank: RankView) -> MemoryUse | None:
    """Return the allocator's history of a device; None if no GPU allocation was recorded."""
    rows = rank.frame(_SQL["history"])
    if rows.empty:
        return None
    relative = bool(rows["allocated"].isna().any())
    change = rows["bytes"].fillna(0).astype(float)
    allocated = change.cumsum().to_numpy() if relative else rows["allocated"].to_numpy(np.float64)
    if relative:
        allocated = allocated - min(float(allocated.min()), 0.0)
    reserved = np.zeros(0) if bool(rows["reserved"].isna().any()) else rows["reserved"].to_numpy(np.float64)
    time = rows["time_ns"].to_numpy(np.int64)
    top = int(allocated.argmax())
    keep = MinMaxLTTBDownsampler().downsample(time, allocated, n_out=MAX_POINTS) if len(time) > MAX_POINTS else slice(None)  # type: ignore[no-untyped-call]
    return MemoryUse(
        time_ns=time[keep],
        allocated=allocated[keep],
        reserved=reserved[keep] if len(reserved) else reserved,
        relative=relative,
        peak_bytes=float(allocated[top]),
        peak_ns=int(time[top]),
        reserved_peak_bytes=float(reserved.max()) if len(reserved) else None,
        allocations=int((change > 0).sum()),
        allocated_bytes=float(change[change > 0].sum()),
    )


def operators_at_peak(rank: RankView, use: MemoryUse) -> pd.DataFrame:
    """Return the operators whose allocations are in use at the peak, largest first.

    Columns: operator, bytes, allocations (0 if unknown) and share (of the peak). Memory without a recorded allocation was
    allocated before the recording began; usually it holds weights and the optimizer's state.
    """
    rows = rank.frame(_SQL["holders"], peak=use.peak_ns).astype({"bytes": float})
    other_bytes = use.peak_bytes - float(rows["bytes"].sum())
    if other_bytes > 0:
        rows.loc[len(rows)] = [ALLOCATED_BEFORE, other_bytes, 0]
    rows = rows.sort_values("bytes", ascending=False, ignore_index=True)
    return rows.assign(share=rows["bytes"] / use.peak_bytes if use.peak_bytes else 0.0)


def capacity_bytes(rank: RankView) -> float | None:
    """Return the device's memory in bytes; None if it is not in the trace."""
    rows = rank.rows("SELECT memory_bytes FROM devices WHERE device = $device")
    return float(rows[0][0]) if rows and rows[0][0] else None


def driver_calls(rank: RankView) -> pd.DataFrame:
    """Return the host's calls that allocate or free device memory within the steady window.

    Columns: call, calls and ms per step (or in the window without steps). PyTorch's allocator reuses its memory, so a steady run
    has no such calls.
    """
    rows = rank.frame(_SQL["driver_calls"])
    return rows.assign(calls=rows["calls"] / rank.step_divisor, ms=rows["ms"] / rank.step_divisor)

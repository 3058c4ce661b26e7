"""Samples of a running session in bounded memory.

All samples of the last minutes are stored. Of the whole session, the lows, highs and means of time buckets are stored.
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.quantities.registry import GAP_PERIODS

WINDOW_NS = 330 * 10**9  # Time for which all samples are stored: slightly more than the page's five-minute window.
# Old samples are removed when they reach this age. Removing copies the arrays, which about every half minute is cheap.
TRIMMED_AT_NS = WINDOW_NS * 11 // 10
MAX_SAMPLES = 40_000  # Stored samples: 330 s at 100 Hz are 33,000. A sender whose timestamps hardly advance could send more.
SESSION_BUCKETS = 1000  # Buckets of the whole session: each has a low and a high, so 2000 points are drawn.
FIRST_BUCKET_NS = 10**8  # First length of a bucket, one sample at 10 Hz. The length doubles as the session grows.
SHORTEST_GAP_NS = 10**9  # A shorter pause is a late sample. As a gap, it would make the line flicker.
MAX_POINTS = 2000  # Points of a line: enough for a screen, which is about 1,500 pixels wide.

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


class LiveSeries:
    """One quantity of one GPU. Times are in ns and must increase; samples out of order are ignored."""

    def __init__(self) -> None:
        self._time, self._value = array("q"), array("d")
        self._bucket_ns = FIRST_BUCKET_NS
        self._bucket, self._low, self._high = array("q"), array("d"), array("d")
        self._sum, self._count = array("d"), array("q")
        self.last_ns: int | None = None
        self.peak: float | None = None

    def add(self, time_ns: int, value: float) -> None:
        """Add a sample."""
        if self.last_ns is not None and time_ns <= self.last_ns:
            return
        self.last_ns = time_ns
        self.peak = value if self.peak is None else max(self.peak, value)
        self._time.append(time_ns)
        self._value.append(value)
        if time_ns - self._time[0] > TRIMMED_AT_NS:
            self._forget(int(np.searchsorted(np.array(self._time), time_ns - WINDOW_NS)))
        elif len(self._time) > MAX_SAMPLES * 11 // 10:
            self._forget(len(self._time) - MAX_SAMPLES)
        self._into_buckets(time_ns, value)

    def __len__(self) -> int:
        """Return the number of stored samples."""
        return len(self._time)

    def halve(self) -> None:
        """Discard the older half of the stored samples; the buckets remain."""
        self._forget(len(self) // 2)

    def _forget(self, first: int) -> None:
        self._time, self._value = self._time[first:], self._value[first:]

    def latest(self) -> float | None:
        """Return the newest value."""
        return self._value[-1] if self._value else None

    def since(self, start_ns: int) -> tuple[I64, F64]:
        """Return times and values of the stored samples from ``start_ns`` on."""
        time, value = np.array(self._time, np.int64), np.array(self._value, np.float64)
        first = int(np.searchsorted(time, start_ns))
        return time[first:], value[first:]

    def parts(self) -> tuple[I64, F64]:
        """Return the ends and the means of the whole session's buckets."""
        ends = (np.array(self._bucket, np.int64) + 1) * self._bucket_ns
        return ends, np.array(self._sum) / np.maximum(np.array(self._count), 1)

    def line(self, start_ns: int, points: int = MAX_POINTS) -> tuple[I64, F64]:
        """Return the points to draw from ``start_ns`` on, about ``points`` at most.

        The points keep the lows and highs of the samples. In a telemetry gap there is a NaN, at which the line breaks.
        """
        # The stored samples suffice if they reach back to ``start_ns``, or if they are the whole session.
        enough = not self._time or self._time[0] <= start_ns or len(self._bucket) == 0 or self._oldest() >= self._time[0]
        if enough:
            return with_gaps(*self.since(start_ns), points)
        begin = np.array(self._bucket, np.int64) * self._bucket_ns
        first = int(np.searchsorted(begin, start_ns - self._bucket_ns))
        low, high = np.array(self._low)[first:], np.array(self._high)[first:]
        time = np.stack([begin[first:], begin[first:] + self._bucket_ns // 2], axis=1).ravel()
        return with_gaps(time, np.stack([low, high], axis=1).ravel(), points)

    def _oldest(self) -> int:
        return self._bucket[0] * self._bucket_ns

    def _into_buckets(self, time_ns: int, value: float) -> None:
        bucket = time_ns // self._bucket_ns
        if self._bucket and self._bucket[-1] == bucket:
            self._low[-1], self._high[-1] = min(self._low[-1], value), max(self._high[-1], value)
            self._sum[-1], self._count[-1] = self._sum[-1] + value, self._count[-1] + 1
            return
        self._bucket.append(bucket)
        self._low.append(value)
        self._high.append(value)
        self._sum.append(value)
        self._count.append(1)
        if len(self._bucket) > SESSION_BUCKETS:
            self._double()

    def _double(self) -> None:
        self._bucket_ns *= 2
        halved = np.array(self._bucket, np.int64) // 2
        starts = np.flatnonzero(np.diff(halved, prepend=halved[0] - 1))
        low, high = np.minimum.reduceat(np.array(self._low), starts), np.maximum.reduceat(np.array(self._high), starts)
        self._bucket, self._low, self._high = (
            array("q", halved[starts].tolist()),
            array("d", low.tolist()),
            array("d", high.tolist()),
        )
        self._sum = array("d", np.add.reduceat(np.array(self._sum), starts).tolist())
        self._count = array("q", np.add.reduceat(np.array(self._count), starts).tolist())


def thin(time: I64, value: F64, points: int = MAX_POINTS) -> tuple[I64, F64]:
    """Return about ``points`` samples: the lowest and the highest of each of equal parts, in their order."""
    if len(time) <= points:
        return time, value
    size = -(-len(time) // (points // 2))
    starts = np.arange(0, len(time), size)
    keep: list[int] = []
    for a in starts.tolist():
        part = value[a : a + size]
        keep += sorted({a + int(part.argmin()), a + int(part.argmax())})
    return time[keep], value[keep]


def with_gaps(time: I64, value: F64, points: int) -> tuple[I64, F64]:
    """Return the thinned line with a NaN in each gap, at which the line breaks.

    A gap is longer than GAP_PERIODS median periods, and longer than SHORTEST_GAP_NS.
    """
    if len(time) < 3:
        return time, value
    steps = np.diff(time)
    gap = steps > max(GAP_PERIODS * float(np.median(steps)), SHORTEST_GAP_NS)
    part = np.concatenate([[0], np.cumsum(gap)])
    kept_times, kept_values = thin(time, value, points)
    of = part[np.searchsorted(time, kept_times)]
    at = np.flatnonzero(np.diff(of) > 0) + 1
    return np.insert(kept_times, at, (kept_times[at - 1] + kept_times[at]) // 2), np.insert(kept_values, at, np.nan)

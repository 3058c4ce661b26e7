"""Utilization as short series: the last seconds for a thumbnail, the whole recording for a panorama."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.quantities.registry import BY_COLUMN, GAP_PERIODS

UTILIZATION = "util_pct"
SPARKLINE_SECONDS = 30  # Shows a dozen periods of a one-second sawtooth at 10 Hz, the rate of most samplers.
POINTS = 240  # A thumbnail has one point for each of its pixels.

# A panorama has one cell for about 1.4 pixels of a laptop's page. A minute at 10 Hz then shows each sample, like the page Telemetry.
CELLS = 600
MIN_CELL_COVERAGE = 0.5  # Share of a cell that samples must cover. Else the cell is a telemetry gap.


def panorama(telemetry: TelemetrySeries, column: str) -> list[tuple[float, float, float | None]]:
    """Return ``column`` over the whole recording, as at most CELLS spans.

    A span has its start and end (shares of the recording, 0 to 1) and its mean, None in a telemetry gap. A sample covers the time
    since the sample before it.
    """
    rows = telemetry.samples[telemetry.samples[column].notna()]
    times, values = rows["time_ns"].to_numpy(np.float64), rows[column].to_numpy(np.float64)
    if len(times) < 2 or times[-1] <= times[0]:
        return []
    lengths = np.diff(times)
    described = np.minimum(lengths, GAP_PERIODS * np.median(lengths))
    described[lengths > described] = np.median(lengths)  # After a gap, a sample describes one usual period.
    starts, ends, values = times[1:] - described, times[1:], values[1:]
    edges = np.linspace(times[0], times[-1], CELLS + 1)
    if len(ends) <= CELLS:
        edges = np.unique(np.concatenate([[times[0]], starts, ends]))
    knots = np.stack([starts, ends]).T.ravel()
    covered = np.interp(edges, knots, np.stack([np.cumsum(described) - described, np.cumsum(described)]).T.ravel())
    area = np.cumsum(values * described)
    summed = np.interp(edges, knots, np.stack([area - values * described, area]).T.ravel())
    length, weight = np.diff(edges), np.diff(covered)
    mean = np.diff(summed) / np.maximum(weight, 1.0)
    at = (edges - times[0]) / (times[-1] - times[0])
    return [
        (round(float(a), 5), round(float(b), 5), round(float(m), 1) if w >= MIN_CELL_COVERAGE * n else None)
        for a, b, m, w, n in zip(at[:-1], at[1:], mean, weight, length, strict=True)
        if n > 0
    ]


def recent_utilization(
    library: Library, manifest: Manifest, gpu: tuple[str, int] | None = None, column: str = UTILIZATION
) -> list[float | None]:
    """Return the run's last SPARKLINE_SECONDS of ``column`` as shares (0 to 1).

    ``column`` is a sampled quantity in percent. It is that of ``gpu`` (recording and number), or else of the first sampled device. None marks a telemetry gap. Empty
    without telemetry.
    """
    quantity = BY_COLUMN[column].column  # This name comes from the registry, never from a file.
    for ref in manifest.telemetry:
        if gpu is not None and ref.id != gpu[0]:
            continue
        ensure_derived(library.folder, ref.id)
        with library.open(ref.id) as recording:
            rows = recording.rows(
                f"""SELECT time_ns, {quantity} FROM samples
                   WHERE {quantity} IS NOT NULL AND device = coalesce(?, (SELECT min(device) FROM samples WHERE {quantity} IS NOT NULL))
                     AND time_ns >= (SELECT max(time_ns) FROM samples) - ? ORDER BY time_ns""",
                [gpu[1] if gpu is not None else None, SPARKLINE_SECONDS * 1_000_000_000],
            )
        if len(rows) > 1:
            return _with_gaps([(int(t), float(v) / 100) for t, v in rows])
    return []


def _with_gaps(samples: list[tuple[int, float]]) -> list[float | None]:
    stride = -(-len(samples) // POINTS)
    thinned = samples[::stride]
    steps = sorted(b[0] - a[0] for a, b in pairwise(thinned))
    median_step = steps[len(steps) // 2] if steps else 0
    line: list[float | None] = []
    for previous, (time_ns, value) in zip([None, *thinned], thinned, strict=False):
        if previous is not None and time_ns - previous[0] > GAP_PERIODS * median_step:
            line.append(None)
        line.append(value)
    return line

"""The last seconds of GPU utilization as a short series for a thumbnail."""

from __future__ import annotations

from itertools import pairwise

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.quantities.registry import GAP_PERIODS

SPARKLINE_SECONDS = 30  # shows a dozen periods of a one-second sawtooth at 10 Hz, the rate of most samplers
POINTS = 240  # one per pixel of the thumbnail


def recent_utilization(library: Library, manifest: Manifest) -> list[float | None]:
    """Return the run's last SPARKLINE_SECONDS of utilization as shares (0 to 1).

    The first sampled device is used. None marks a telemetry gap. Empty without telemetry.
    """
    for ref in manifest.telemetry:
        ensure_derived(library.folder, ref.id)
        with library.open(ref.id) as recording:
            rows = recording.rows(
                """SELECT time_ns, util_pct FROM samples
                   WHERE util_pct IS NOT NULL AND device = (SELECT min(device) FROM samples WHERE util_pct IS NOT NULL)
                     AND time_ns >= (SELECT max(time_ns) FROM samples) - ? ORDER BY time_ns""",
                [SPARKLINE_SECONDS * 1_000_000_000],
            )
        if len(rows) > 1:
            return _with_holes([(int(t), float(v) / 100) for t, v in rows])
    return []


def _with_holes(samples: list[tuple[int, float]]) -> list[float | None]:
    stride = -(-len(samples) // POINTS)
    kept = samples[::stride]
    steps = sorted(b[0] - a[0] for a, b in pairwise(kept))
    usual = steps[len(steps) // 2] if steps else 0
    out: list[float | None] = []
    for before, (time_ns, value) in zip([None, *kept], kept, strict=False):
        if before is not None and time_ns - before[0] > GAP_PERIODS * usual:
            out.append(None)
        out.append(value)
    return out

"""Long steps in which one rank stalls and the others wait, from step marks and telemetry.

Such steps are too rare for the few profiled steps. The marks of all ranks are long in them, so the marks do not show which rank
stalls. Telemetry shows it: the GPU of the rank that stalls is idle. The GPUs of the other ranks are active, because they wait
inside a collective, whose kernel is resident.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.metrics.step_time_evidence import LongSteps
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.clock import AS_RECORDED
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.summary import DeviceTelemetry, load_series

# SM activity is the shortest mean: NVML's utilization still counts the work before the stall.
COLUMNS = ("sm_active_pct", "gr_active_pct", "util_pct")
IDLE_PCT = 1.0  # At most this activity. The kernel of one waiting collective keeps more SMs active.
MIN_IDLE_SHARE = 0.4  # Of the samples in the long steps. These also contain a usual step, in which the rank works.
MAX_IDLE_SHARE = 0.1  # Of these samples on each GPU that waits.
MIN_SAMPLES = 6  # Samples of each GPU in the long steps. Fewer show no share.

Samples = tuple[NDArray[np.int64], NDArray[np.float64]]


def rare_stalls(library: Library, ranks: Sequence[RankResult], telemetry: RunTelemetry) -> Pauses | None:
    """Return the rare stalls of one rank as pauses in the job's steps; None without them.

    The pauses are the long steps in that rank's own marks. None also if not all ranks of the job were sampled.
    """
    sampled = [telemetry.of(rank.recording_id, rank.device) for rank in ranks]
    devices = [device for device in sampled if device is not None and not device.profiled]
    column = next((name for name in COLUMNS if all(name in device.period_s for device in devices)), None)
    if len(devices) < max(len(ranks), 2) or column is None:
        return None
    long_steps = [next((w.long_steps for w in rank.best.evidence if w.source == "marks"), None) for rank in ranks]
    if not any(long_steps):
        return None
    series = [_series(library, device, column, telemetry) for device in devices]
    for rank, steps, own in zip(ranks, long_steps, series, strict=True):
        other_gpus = [samples for samples in series if samples is not own]
        if steps is not None and rank.rank is not None and stalls_alone(steps, own, other_gpus):
            return Pauses("unknown", steps.steps, steps.ms, steps.step_count, in_step=True, ranks=(rank.rank,))
    return None


def stalls_alone(steps: LongSteps, own: Samples, other_gpus: Sequence[Samples]) -> bool:
    """Return whether a GPU is idle in the long steps while all ``other_gpus`` are active."""
    own_share, other_shares = _idle_share(steps, own), [_idle_share(steps, samples) for samples in other_gpus]
    if own_share is None or own_share < MIN_IDLE_SHARE:
        return False
    return all(share is not None and share <= MAX_IDLE_SHARE for share in other_shares)


def _idle_share(steps: LongSteps, samples: Samples) -> float | None:
    """Return the share of the samples in the long steps that show an idle GPU; None with few samples."""
    times, values = samples
    inside = np.zeros(len(times), bool)
    for start_ns, end_ns in steps.spans_ns:
        inside |= (times > start_ns) & (times <= end_ns)
    return float((values[inside] <= IDLE_PCT).mean()) if inside.sum() >= MIN_SAMPLES else None


def _series(library: Library, device: DeviceTelemetry, column: str, telemetry: RunTelemetry) -> Samples:
    with library.open(device.recording_id, derived=False) as recording:
        return load_series(recording, device.device, column, telemetry.clocks.get(device.recording_id, AS_RECORDED))

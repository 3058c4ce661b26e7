"""One GPU of several that is less or more busy than its peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation

MIN_GPUS = 4  # With fewer GPUs, it is not clear which of them is the unusual one.
WINDOWS = 20  # The time is divided into this many windows, and the GPUs are compared in each.
MIN_BUSY_PCT = 20.0  # Windows in which the peers are idle show nothing.
# A GPU differs from its peers by at least these percentage points and median absolute deviations.
MIN_POINTS = 10.0
MIN_DEVIATIONS = 6.0
MIN_TIME_SHARE = 0.8  # A GPU is unlike its peers if it differs in at least this share of the windows in which they work.
MAX_UNLIKE_SHARE = 1 / 3  # If more GPUs differ, they are a second group with another role or job.


def unlike_peers(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield GPUs whose share of busy time differs from that of their peers for most of the time."""
    gpus = [gpu for gpu in gpus if np.isfinite(gpu.busy).any()]
    if len(gpus) < MIN_GPUS:
        return
    start, end = max(int(g.times[0]) for g in gpus), min(int(g.times[-1]) for g in gpus)
    if end <= start:
        return
    edges = np.linspace(start, end, WINDOWS + 1).astype(np.int64)
    level = np.array([gpu.windows(None, edges) for gpu in gpus])
    complete = np.isfinite(level).all(axis=0)
    median_level = np.median(level[:, complete], axis=0)
    working = median_level >= MIN_BUSY_PCT
    if int(working.sum()) < WINDOWS / 4:
        return
    difference = level[:, complete][:, working] - median_level[working]
    middle = np.median(difference, axis=1)
    spread = float(np.median(np.abs(middle - np.median(middle))))
    least_difference = max(MIN_POINTS, MIN_DEVIATIONS * spread)
    unlike = [
        i
        for i in range(len(gpus))
        if abs(middle[i]) > least_difference and (np.sign(difference[i]) == np.sign(middle[i])).mean() >= MIN_TIME_SHARE
    ]
    if len(unlike) > MAX_UNLIKE_SHARE * len(gpus):
        return
    for i in unlike:
        gpu, own_pct, peers_pct = (
            gpus[i],
            float(np.median(level[i][complete][working])),
            float(np.median(median_level[working])),
        )
        less_busy = middle[i] < 0
        idle = own_pct < 2
        statement = f"GPU {gpu.device} does nothing" if idle else f"GPU {gpu.device} is busy {own_pct:.0f} % of the time"
        reason = (
            "a role of its own, smaller batches, or a job that does not use it"
            if less_busy
            else "more work than the other GPUs have"
        )
        windows = int(working.sum())
        yield Observation(
            kind="gpu-unlike-peers",
            devices=(gpu.device,),
            severity="warning",
            confidence="medium",
            unit="percentage points",
            value=own_pct - peers_pct,
            time_share=float(working.sum()) / WINDOWS,
            start_ns=start,
            end_ns=end,
            title=f"{statement}, its {len(gpus) - 1} peers {peers_pct:.0f} %",
            evidence=f"These are medians over {windows} of {WINDOWS} windows, in which the peers work. Samples do not show why: possible causes are {reason}.",
            action=(
                "Compare",
                f"the process on GPU {gpu.device} with the others",
                ": rank, batch size, data, and whether they are one job.",
            ),
            record_next=f"a profile of the process on GPU {gpu.device} and of one other: sawtooth run, or nsys profile",
            details={"busy_pct": own_pct, "peers_pct": peers_pct},
        )

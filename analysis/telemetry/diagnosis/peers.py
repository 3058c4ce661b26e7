"""One GPU of several that is less or more busy than its peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation

LEAST_GPUS, WINDOWS = 4, 20
BUSY_PEERS = 20.0  # percent: of idle peers nothing can be said
LEAST_POINTS, MADS = 10.0, 6.0
MOST_OF_TIME = 0.8  # of the windows in which the peers work
FEW = 1 / 3  # of the GPUs: more are another group, with a role or a job of its own


def unlike_peers(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield GPUs whose share of busy time differs from that of their peers for most of the time."""
    gpus = [gpu for gpu in gpus if np.isfinite(gpu.busy).any()]
    if len(gpus) < LEAST_GPUS:
        return
    start, end = max(int(g.times[0]) for g in gpus), min(int(g.times[-1]) for g in gpus)
    if end <= start:
        return
    edges = np.linspace(start, end, WINDOWS + 1).astype(np.int64)
    level = np.array([gpu.windows(None, edges) for gpu in gpus])
    known = np.isfinite(level).all(axis=0)
    usual = np.median(level[:, known], axis=0)
    working = usual >= BUSY_PEERS
    if int(working.sum()) < WINDOWS / 4:
        return
    away = level[:, known][:, working] - usual[working]
    middle = np.median(away, axis=1)
    spread = float(np.median(np.abs(middle - np.median(middle))))
    least = max(LEAST_POINTS, MADS * spread)
    odd = [
        i
        for i in range(len(gpus))
        if abs(middle[i]) > least and (np.sign(away[i]) == np.sign(middle[i])).mean() >= MOST_OF_TIME
    ]
    if len(odd) > FEW * len(gpus):
        return
    for i in odd:
        gpu, own, peers = gpus[i], float(np.median(level[i][known][working])), float(np.median(usual[working]))
        less = middle[i] < 0
        idle = own < 2
        says = f"GPU {gpu.device} does nothing" if idle else f"GPU {gpu.device} is busy {own:.0f} % of the time"
        reason = "a role of its own, smaller batches, or a job that does not use it" if less else "more work than the others'"
        times = int(working.sum())
        yield Observation(
            kind="gpu-unlike-peers",
            devices=(gpu.device,),
            severity="warning",
            confidence="medium",
            measure="percentage points",
            size=own - peers,
            share=float(working.sum()) / WINDOWS,
            start_ns=start,
            end_ns=end,
            title=f"{says}, its {len(gpus) - 1} peers {peers:.0f} %",
            seen=f"These are medians over {times} of {WINDOWS} windows, in which the peers work. Samples do not show why: possible causes are {reason}.",
            action=(
                "Compare",
                f"the process on GPU {gpu.device} with the others",
                ": rank, batch size, data, and whether they are one job.",
            ),
            record_next=f"a profile of the process on GPU {gpu.device} and of one other: sawtooth run, or nsys profile",
            details={"busy_pct": own, "peers_pct": peers},
        )

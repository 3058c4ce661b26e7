"""Time in which the GPUs wait: at the start, in the run, and at the end, with its cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, lowered, named, verb
from sawtooth.analysis.units import significant

IDLE_PCT = 5.0  # of a window: below, nothing of use runs
LEAST_SECONDS, LEAST_SHARE = 60.0, 0.02
EDGE = 0.02  # of the time: a stretch that begins or ends this close to the recording's start or end is there
WHOLE = 0.95  # of the time: then the run used the GPU at no time
SHORT_WORK_S = 5.0  # of work between two idle stretches: a process that starts, no training
SHORT_WORK_SHARE = 0.05  # of the joined stretch: with more of it, the work between is a part of the run
Stretch = tuple[int, int]


def idle_stretches(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield long idle stretches, those of several GPUs at one time together."""
    stretches = [(gpu, stretch) for gpu in gpus for stretch in _stretches(gpu)]
    while stretches:
        _, first = stretches[0]
        together = [(gpu, s) for gpu, s in stretches if _alike(s, first)]
        stretches = [(gpu, s) for gpu, s in stretches if not _alike(s, first)]
        yield _observation([gpu for gpu, _ in together], [s for _, s in together], len(gpus))


def _alike(a: Stretch, b: Stretch) -> bool:
    both = min(a[1], b[1]) - max(a[0], b[0])
    return both > 0.8 * max(a[1] - a[0], b[1] - b[0])


def _stretches(gpu: DeviceSamples) -> list[Stretch]:
    """Return the (start, end) times of long idle stretches."""
    known = np.isfinite(gpu.busy)
    if not known.any():
        return []
    times, idle = gpu.times[known], gpu.busy[known] < IDLE_PCT
    starts = times - gpu.weights[known].astype(np.int64)
    unsampled = starts[1:] - times[:-1] > SHORT_WORK_S * 1e9  # what the GPU did in them is not known
    apart = ~idle[1:] | ~idle[:-1] | unsampled
    first, last = np.flatnonzero(idle & np.append(True, apart)), np.flatnonzero(idle & np.append(apart, True))
    runs = [(int(starts[a]), int(times[b])) for a, b in zip(first, last, strict=True)]
    joined: list[Stretch] = []
    for run in runs:
        if joined and _interrupted_shortly(joined[-1], run):
            joined[-1] = (joined[-1][0], run[1])
        else:
            joined.append(run)
    whole = float(gpu.times[-1] - gpu.times[0])
    return [s for s in joined if s[1] - s[0] >= max(LEAST_SECONDS * 1e9, LEAST_SHARE * whole)]


def _interrupted_shortly(before: Stretch, after: Stretch) -> bool:
    work = after[0] - before[1]
    short = work < SHORT_WORK_S * 1e9 and work <= SHORT_WORK_SHARE * (after[1] - before[0])
    return short and min(after[1] - after[0], before[1] - before[0]) > 1e10


def _observation(gpus: Sequence[DeviceSamples], stretches: Sequence[Stretch], of: int) -> Observation:
    devices = tuple(gpu.device for gpu in gpus)
    start, end = min(s[0] for s in stretches), max(s[1] for s in stretches)
    seconds = float(np.mean([s[1] - s[0] for s in stretches])) / 1e9
    gpu = gpus[0]
    whole = float(gpu.times[-1] - gpu.times[0]) / 1e9
    share = min(seconds / whole, 1.0)
    cost = len(devices) * share * whole / 3600
    if share >= WHOLE:
        when, action = "", ("Check", "that the job uses this GPU", ": nothing ran on it.")
    elif start <= gpu.times[0] + EDGE * whole * 1e9:
        when, action = (
            "At the start ",
            ("Check", "what the start-up waits for", ": loading, compilation, or a recording that began before the job."),
        )
    elif end >= gpu.times[-1] - EDGE * whole * 1e9:
        when, action = "At the end ", ("Release", "the GPUs when the job ends", ", or stop the recording with the job.")
    else:
        when, action = (
            "",
            (
                "Check",
                "what the job did then",
                ": possible causes are an evaluation, a checkpoint, a restart, or data that did not come.",
            ),
        )
    who = lowered(named(devices, of)) if when else named(devices, of)
    lasts = "all the time" if share >= WHOLE else f"for {duration(seconds)} ({share:.0%} of the time)"
    return Observation(
        kind="idle-stretch",
        devices=devices,
        severity="warning" if share >= 0.1 else "info",
        confidence="high",
        measure="seconds",
        size=seconds,
        share=share,
        start_ns=start,
        end_ns=end,
        title=f"{when}{who} {verb(devices, 'is', 'are')} idle {lasts}",
        seen=f"Utilization stays below {IDLE_PCT:.0f} %. That is {significant(cost, 2)} of {significant(len(devices) * whole / 3600, 2)} GPU-hours. Samples do not show why.",
        action=action,
        record_next="step marks of the training (sawtooth run), which show whether the loop made steps at that time",
        details={"gpu_hours": cost, "hours_lost_per_hour": share},
    )  # fmt: skip

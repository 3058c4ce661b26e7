"""Long idle time of the GPUs at the start, within the run and at the end, with its cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, gpus_in_words, is_or_are, mid_sentence
from sawtooth.analysis.units import percent, significant

IDLE_PCT = 5.0  # Below this utilization, the GPU is idle.
# An idle stretch is reported if it lasts at least this many seconds and this share of the recording.
MIN_SECONDS = 60.0
MIN_SHARE = 0.02
EDGE_SHARE = 0.02  # A stretch is at the recording's start or end if it is within this share of the recording's time from it.
UNUSED_SHARE = 0.95  # If a GPU is idle for this share of the time, the run did not use it.
SHORT_WORK_S = 5.0  # Shorter work between two idle stretches is a process that starts, not training.
SHORT_WORK_SHARE = 0.05  # Work that takes a larger share of the joined stretch is part of the run.
Stretch = tuple[int, int]


def idle_stretches(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield long idle stretches; stretches of several GPUs at the same time are one observation."""
    stretches = [(gpu, stretch) for gpu in gpus for stretch in _stretches(gpu)]
    while stretches:
        _, first = stretches[0]
        same_time = [(gpu, s) for gpu, s in stretches if _same_time(s, first)]
        stretches = [(gpu, s) for gpu, s in stretches if not _same_time(s, first)]
        yield _observation([gpu for gpu, _ in same_time], [s for _, s in same_time], len(gpus))


def _same_time(a: Stretch, b: Stretch) -> bool:
    overlap_ns = min(a[1], b[1]) - max(a[0], b[0])
    return overlap_ns > 0.8 * max(a[1] - a[0], b[1] - b[0])


def _stretches(gpu: DeviceSamples) -> list[Stretch]:
    """Return the (start, end) times of long idle stretches."""
    is_sampled = np.isfinite(gpu.busy)
    if not is_sampled.any():
        return []
    times, idle = gpu.times[is_sampled], gpu.busy[is_sampled] < IDLE_PCT
    starts = times - gpu.weights[is_sampled].astype(np.int64)
    unsampled = starts[1:] - times[:-1] > SHORT_WORK_S * 1e9  # It is not known what the GPU did in these times.
    separate = ~idle[1:] | ~idle[:-1] | unsampled
    first, last = np.flatnonzero(idle & np.append(True, separate)), np.flatnonzero(idle & np.append(separate, True))
    runs = [(int(starts[a]), int(times[b])) for a, b in zip(first, last, strict=True)]
    joined: list[Stretch] = []
    for run in runs:
        if joined and _interrupted_shortly(joined[-1], run):
            joined[-1] = (joined[-1][0], run[1])
        else:
            joined.append(run)
    total_ns = float(gpu.times[-1] - gpu.times[0])
    return [s for s in joined if s[1] - s[0] >= max(MIN_SECONDS * 1e9, MIN_SHARE * total_ns)]


def _interrupted_shortly(previous: Stretch, following: Stretch) -> bool:
    work = following[0] - previous[1]
    short = work < SHORT_WORK_S * 1e9 and work <= SHORT_WORK_SHARE * (following[1] - previous[0])
    return short and min(following[1] - following[0], previous[1] - previous[0]) > 1e10


def _observation(gpus: Sequence[DeviceSamples], stretches: Sequence[Stretch], total: int) -> Observation:
    devices = tuple(gpu.device for gpu in gpus)
    start, end = min(s[0] for s in stretches), max(s[1] for s in stretches)
    seconds = float(np.mean([s[1] - s[0] for s in stretches])) / 1e9
    gpu = gpus[0]
    total_s = float(gpu.times[-1] - gpu.times[0]) / 1e9
    share = min(seconds / total_s, 1.0)
    gpu_hours = len(devices) * share * total_s / 3600
    if share >= UNUSED_SHARE:
        position, action = "", ("Check", "that the job uses this GPU", ": nothing ran on it.")
    elif start <= gpu.times[0] + EDGE_SHARE * total_s * 1e9:
        position, action = (
            "At the start ",
            ("Check", "what the start-up waits for", ": loading, compilation, or a recording that began before the job."),
        )
    elif end >= gpu.times[-1] - EDGE_SHARE * total_s * 1e9:
        position, action = "At the end ", ("Release", "the GPUs when the job ends", ", or stop the recording with the job.")
    else:
        position, action = (
            "",
            (
                "Check",
                "what the job did then",
                ": possible causes are an evaluation, a checkpoint, a restart, or data that did not come.",
            ),
        )
    gpu_names = mid_sentence(gpus_in_words(devices, total)) if position else gpus_in_words(devices, total)
    lasts = "all the time" if share >= UNUSED_SHARE else f"for {duration(seconds)} ({percent(share)} of the time)"
    return Observation(
        kind="idle-stretch",
        devices=devices,
        severity="warning" if share >= 0.1 else "info",
        confidence="high",
        unit="seconds",
        value=seconds,
        time_share=share,
        start_ns=start,
        end_ns=end,
        title=f"{position}{gpu_names} {is_or_are(devices)} idle {lasts}",
        evidence=f"Utilization stays below {IDLE_PCT:.0f} %. That is {significant(gpu_hours, 2)} of {significant(len(devices) * total_s / 3600, 2)} GPU-hours. Samples do not show why.",
        action=action,
        record_next="step marks of the training (sawtooth run), which show whether the loop made steps at that time",
        details={"gpu_hours": gpu_hours, "hours_lost_per_hour": share},
    )  # fmt: skip

"""Utilization that drifts over the run, and memory that grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, gpus_in_words, mid_sentence
from sawtooth.analysis.units import in_memory

F64 = NDArray[np.float64]
WINDOWS = 40  # The time is divided into this many windows. Each needs SAMPLES_PER_WINDOW samples for a mean.
MIN_WINDOWS = 20  # With fewer windows, a random level can look like a trend.
SAMPLES_PER_WINDOW = 3
# A drift below this share of the higher level, or below this many percentage points, is ordinary.
MIN_CHANGE = 0.10  # As a share of the higher level.
MIN_POINTS = 8.0  # In percentage points.
MIN_CORRELATION = 0.75  # Rank correlation of level and time. Without a trend, 40 windows stay below 0.5 in 999 of 1,000 runs.
MIN_LEVEL = 0.1  # Windows below this share of the highest level are a pause, start-up or the end.
STEP_FIT = 0.85  # The change is a step if two levels explain this share of the scatter.
MIN_LEVEL_WINDOWS = 4  # Each of the two levels lasts at least this long.
SUDDEN = "another job on the host, a lost worker, storage that slows down, or another phase of the training"
GRADUAL = "data that grows with each step, slower storage, or longer inputs"
LINE_FIT = 0.85  # If a line explains less of the scatter, the means of the first and last fifth are used.
MIN_CURVATURE_GAIN = 0.10  # If a parabola explains this much more of the scatter, a line does not describe the ends.
# If other GPUs drift, this share of the least drift is enough for a GPU whose drift is similar to their mean.
PEER_DRIFT = 0.7
PEER_DIFFERENCE = 0.4  # Similar drifts differ by at most this share of the mean.
MIN_MEMORY_LEVEL = 0.3  # Windows below this share of the highest level are start-up, pauses and the end.
# Memory grows if it gains this share and these bytes.
MIN_GROWTH = 0.05
MIN_BYTES = 256 << 20
STEADY_GROWTH = 0.9  # Smallest rank correlation of memory and time for steady growth.
LATER_GROWTH = 0.3  # The second half must grow at this share of the first half's rate.


def trends(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield trends of utilization and of memory; GPUs with the same trend are one observation."""
    drifting = [(gpu, drift) for gpu in gpus if (drift := _drift(gpu)) is not None]
    for falls in (True, False):
        same_trend = [(gpu, drift) for gpu, drift in drifting if (drift.end < drift.start) is falls]
        if same_trend:
            same_trend = _with_peers(same_trend, gpus)
            yield _utilization(same_trend, len(gpus), falls=falls)
    growing = [(gpu, growth) for gpu in gpus if (growth := _growth(gpu)) is not None]
    if growing:
        yield _memory(growing, len(gpus))


def _edges(gpu: DeviceSamples) -> NDArray[np.int64] | None:
    count = min(WINDOWS, len(gpu.times) // SAMPLES_PER_WINDOW)
    return np.linspace(gpu.times[0], gpu.times[-1] + 1, count + 1).astype(np.int64) if count >= MIN_WINDOWS else None


def order(values: F64) -> float:
    """Return the rank correlation of values with their order."""
    ranks = values.argsort(kind="stable").argsort(kind="stable").astype(np.float64)
    if len(values) < 3 or ranks.std() == 0 or float(values.std()) < 1e-9:
        return 0.0
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


class _Drift(NamedTuple):
    """A change of utilization in percent: its times, its windows, and ``at_ns`` if it was sudden."""

    start: float
    end: float
    first_ns: int
    last_ns: int
    windows: int
    at_ns: int | None


def _with_peers(drifting: Sequence[tuple[DeviceSamples, _Drift]], gpus: Sequence[DeviceSamples]) -> list[tuple[DeviceSamples, _Drift]]:  # fmt: skip
    """Return the drifting GPUs with those that drift nearly as much, in order."""
    mean_drift = float(np.mean([drift.end - drift.start for _, drift in drifting]))
    drifts = {gpu.device: drift for gpu, drift in drifting}
    for gpu in gpus:
        drift = _drift(gpu, PEER_DRIFT) if gpu.device not in drifts else None
        if drift is not None and abs(drift.end - drift.start - mean_drift) <= PEER_DIFFERENCE * abs(mean_drift):
            drifts[gpu.device] = drift
    return [(gpu, drifts[gpu.device]) for gpu in gpus if gpu.device in drifts]


def _drift(gpu: DeviceSamples, least: float = 1.0) -> _Drift | None:
    """Return how utilization drifts, or the time at which it changed permanently; None if it does neither.

    ``least`` scales the smallest change that counts.
    """
    edges = _edges(gpu)
    if edges is None:
        return None
    level = gpu.windows(None, edges)
    loop = np.isfinite(level) & (level >= MIN_LEVEL * float(np.nanmax(level, initial=0.0)))
    if int(loop.sum()) < MIN_WINDOWS:
        return None
    # The first and the last window contain start-up and end.
    inner = np.flatnonzero(loop)[1:-1]
    values = level[inner]
    line = np.polyfit(inner, values, 1)
    by_line = _explained_share(values, np.asarray(np.polyval(line, inner), np.float64))
    by_parabola = _explained_share(values, np.asarray(np.polyval(np.polyfit(inner, values, 2), inner), np.float64))
    at, by_step = _step(values)
    part = max(len(values) // 5, 1)
    stepped = by_step >= STEP_FIT and by_step > by_line
    if stepped:
        ends = float(values[:at].mean()), float(values[at:].mean())
    elif abs(order(values)) < MIN_CORRELATION:
        return None
    elif by_line >= LINE_FIT:
        ends = float(np.polyval(line, inner[0])), float(np.polyval(line, inner[-1]))
    else:
        ends = float(values[:part].mean()), float(values[-part:].mean())
    if abs(ends[1] - ends[0]) < least * max(MIN_POINTS, MIN_CHANGE * max(ends)):
        return None
    if not stepped and by_parabola - by_line < MIN_CURVATURE_GAIN:  # The drift continues in the outer windows.
        ends = float(np.polyval(line, inner[0] - 1.5)), float(np.polyval(line, inner[-1] + 1.5))
    return _Drift(
        *ends, int(edges[inner[0]]), int(edges[inner[-1] + 1]), len(inner), int(edges[inner[at]]) if stepped else None
    )


def _explained_share(values: F64, fit: F64) -> float:
    return 1 - float(((values - fit) ** 2).sum() / max(((values - values.mean()) ** 2).sum(), 1e-12))


def _step(values: F64) -> tuple[int, float]:
    """Return the index that best splits the values into two levels, and the scatter that it explains."""
    fits = [
        (at, _explained_share(values, np.where(np.arange(len(values)) < at, values[:at].mean(), values[at:].mean())))
        for at in range(MIN_LEVEL_WINDOWS, len(values) - MIN_LEVEL_WINDOWS + 1)
    ]
    return max(fits, key=lambda fit: fit[1])


def _utilization(same_trend: Sequence[tuple[DeviceSamples, _Drift]], total: int, *, falls: bool) -> Observation:
    devices = tuple(gpu.device for gpu, _ in same_trend)
    start = float(np.mean([drift.start for _, drift in same_trend]))
    end = float(np.mean([drift.end for _, drift in same_trend]))
    first, last = min(drift.first_ns for _, drift in same_trend), max(drift.last_ns for _, drift in same_trend)
    verb, windows = "falls" if falls else "rises", min(drift.windows for _, drift in same_trend)
    window = duration((last - first) / 1e9 / windows)
    steps = [drift.at_ns for _, drift in same_trend if drift.at_ns is not None]
    at = float(np.median(steps)) if len(steps) > len(same_trend) / 2 else None
    time_in_words = (
        f"after {duration((at - same_trend[0][0].times[0]) / 1e9)}"
        if at is not None
        else f"within {duration((last - first) / 1e9)}"
    )
    course = (
        f"It {verb} within a window of {window} and stays there"
        if at is not None
        else f"The means of {windows} windows of {window} {verb[:-1]} in order"
    )
    return Observation(
        kind="utilization-trend",
        devices=devices,
        severity="warning" if falls else "info",
        confidence="high" if falls else "medium",
        unit="percentage points",
        value=end - start,
        time_share=1.0,
        start_ns=int(at) if at is not None else first,
        end_ns=last,
        title=f"Utilization of {mid_sentence(gpus_in_words(devices, total))} {verb} from {start:.0f} to {end:.0f} % {time_in_words}",
        evidence=f"{course}. Samples do not show why.",
        action=("Compare", "a profile of the start with one of the end", f": possible causes are {SUDDEN if at is not None else GRADUAL}.") if falls
        else ("Measure", "from the time when the level is steady", ": warm-up, compilation or caches can raise it at first."),
        record_next="a profile at the start and one at the end of the run (sawtooth run), and samples of the host (sawtooth sample)",
        details={"from_pct": start, "to_pct": end},
    )  # fmt: skip


class _Growth(NamedTuple):
    """Memory in bytes at the start and the end of a growth, its times, and its rate in bytes per hour."""

    start: float
    end: float
    first_ns: int
    last_ns: int
    rate: float


def _growth(gpu: DeviceSamples) -> _Growth | None:
    """Return how memory grows from its first to its last window; None if it does not grow steadily."""
    edges = _edges(gpu)
    if edges is None or "mem_used_bytes" not in gpu:
        return None
    level = gpu.windows("mem_used_bytes", edges)
    working = np.flatnonzero(np.isfinite(level) & (level >= MIN_MEMORY_LEVEL * float(np.nanmax(level, initial=0.0))))[1:]
    values = level[working]
    if len(values) < MIN_WINDOWS or order(values) < STEADY_GROWTH:
        return None
    start, end, half = float(values[0]), float(values[-1]), len(values) // 2
    if end - start < max(MIN_GROWTH * start, MIN_BYTES):
        return None
    first_half, last_half = values[half] - start, end - values[half]
    if last_half < LATER_GROWTH * first_half or np.diff(values).max() > 0.5 * (end - start):
        return None  # Memory grew only at first, or in one jump.
    middles = (edges[:-1] + edges[1:]) // 2
    hours = float(edges[-1] - edges[0]) / 3.6e12 * (len(values) - 1) / (len(edges) - 1)  # Pauses are not counted.
    return _Growth(start, end, int(middles[working[0]]), int(middles[working[-1]]), (end - start) / max(hours, 1e-9))


def _memory(growing: Sequence[tuple[DeviceSamples, _Growth]], total: int) -> Observation:
    devices = tuple(gpu.device for gpu, _ in growing)
    start, end, rate = map(float, np.mean([(growth.start, growth.end, growth.rate) for _, growth in growing], axis=0))
    first, last = min(growth.first_ns for _, growth in growing), max(growth.last_ns for _, growth in growing)
    totals = [float(np.nanmax(gpu.values["mem_total_bytes"])) for gpu, _ in growing if "mem_total_bytes" in gpu]
    full = (
        f" At this rate the memory is full in {(min(totals) - end) / rate:.1f} h."
        if totals and rate > 0 and min(totals) > end
        else ""
    )
    length = duration((last - first) / 1e9)
    return Observation(
        kind="memory-growth",
        devices=devices,
        severity="warning",
        confidence="high",
        unit="bytes",
        value=end - start,
        time_share=1.0,
        start_ns=first,
        end_ns=last,
        title=f"Memory of {mid_sentence(gpus_in_words(devices, total))} grows from {in_memory(start)} to {in_memory(end)} within {length}",
        evidence=f"It grows in nearly every window and goes on to the end, by {in_memory(rate, 2)} per hour.{full}",
        action=("Find", "what keeps memory", ": possible causes are losses kept with their graphs, a growing cache, or longer inputs."),
        record_next="allocations in a profile (profile_memory=True), or torch.cuda.memory._record_memory_history()",
        details={"from_bytes": start, "to_bytes": end, "bytes_per_hour": rate},
    )  # fmt: skip

"""Utilization that drifts over the run, and memory that grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, duration, lowered, named
from sawtooth.analysis.units import significant

F64 = NDArray[np.float64]
WINDOWS, LEAST_WINDOWS, SAMPLES_PER_WINDOW = 40, 20, 3
CHANGE = 0.10  # of the level at the start: a smaller drift is ordinary
LEAST_POINTS = 8.0  # percentage points
ORDERED = 0.75  # rank correlation of level and time; without a trend, 40 windows stay below 0.5 in 999 of 1,000 runs
AT_WORK = 0.1  # of the highest level: lower windows are a pause, start-up or the end
STEPPED, LEAST_OF_LEVEL = 0.85, 4  # share of the scatter that two levels explain, and windows that one of them lasts
SUDDEN = "another job on the host, a lost worker, storage that slows down, or another phase of the training"
GRADUAL = "data that grows with each step, slower storage, or longer inputs"
STRAIGHT = 0.85  # share of the scatter that a line explains: else the means of first and last fifth decide
CURVED = 0.10  # share of the scatter that a parabola explains beyond a line: then a line does not describe the ends
# Beside drifting GPUs, BESIDE of the least drift is enough for one whose drift differs from their mean by at most LIKE of it.
BESIDE, LIKE = 0.7, 0.4
WORKING = 0.3  # of the highest level: windows below it are start-up, pauses and the end
GROWTH, LEAST_BYTES = 0.05, 256 << 20
STEADY_GROWTH = 0.9  # rank correlation; and the last half must grow too, at REMAINS of the first half's rate
REMAINS = 0.3


def trends(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield trends of utilization and of memory; GPUs with the same trend are one observation."""
    drifting = [(gpu, line) for gpu in gpus if (line := _drift(gpu)) is not None]
    for falls in (True, False):
        alike = [(gpu, line) for gpu, line in drifting if (line.end < line.start) is falls]
        if alike:
            alike = _with_peers(alike, gpus)
            yield _utilization(alike, len(gpus), falls=falls)
    growing = [(gpu, growth) for gpu in gpus if (growth := _growth(gpu)) is not None]
    if growing:
        yield _memory(growing, len(gpus))


def _edges(gpu: DeviceSamples) -> NDArray[np.int64] | None:
    count = min(WINDOWS, len(gpu.times) // SAMPLES_PER_WINDOW)
    return np.linspace(gpu.times[0], gpu.times[-1] + 1, count + 1).astype(np.int64) if count >= LEAST_WINDOWS else None


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
    usual = float(np.mean([line.end - line.start for _, line in drifting]))
    known = {gpu.device: line for gpu, line in drifting}
    for gpu in gpus:
        line = _drift(gpu, BESIDE) if gpu.device not in known else None
        if line is not None and abs(line.end - line.start - usual) <= LIKE * abs(usual):
            known[gpu.device] = line
    return [(gpu, known[gpu.device]) for gpu in gpus if gpu.device in known]


def _drift(gpu: DeviceSamples, least: float = 1.0) -> _Drift | None:
    """Return how utilization drifts, or the one time at which it changed for good; None without either.

    ``least`` scales the smallest change that counts.
    """
    edges = _edges(gpu)
    if edges is None:
        return None
    level = gpu.windows(None, edges)
    loop = np.isfinite(level) & (level >= AT_WORK * float(np.nanmax(level, initial=0.0)))
    if int(loop.sum()) < LEAST_WINDOWS:
        return None
    # start-up and the last window describe both sides of an edge
    inner = np.flatnonzero(loop)[1:-1]
    values = level[inner]
    line = np.polyfit(inner, values, 1)
    by_line = _explained(values, np.asarray(np.polyval(line, inner), np.float64))
    by_parabola = _explained(values, np.asarray(np.polyval(np.polyfit(inner, values, 2), inner), np.float64))
    at, by_step = _step(values)
    part = max(len(values) // 5, 1)
    stepped = by_step >= STEPPED and by_step > by_line
    if stepped:
        ends = float(values[:at].mean()), float(values[at:].mean())
    elif abs(order(values)) < ORDERED:
        return None
    elif by_line >= STRAIGHT:
        ends = float(np.polyval(line, inner[0])), float(np.polyval(line, inner[-1]))
    else:
        ends = float(values[:part].mean()), float(values[-part:].mean())
    if abs(ends[1] - ends[0]) < least * max(LEAST_POINTS, CHANGE * max(ends)):
        return None
    if not stepped and by_parabola - by_line < CURVED:  # the drift goes on in the outer windows
        ends = float(np.polyval(line, inner[0] - 1.5)), float(np.polyval(line, inner[-1] + 1.5))
    return _Drift(
        *ends, int(edges[inner[0]]), int(edges[inner[-1] + 1]), len(inner), int(edges[inner[at]]) if stepped else None
    )


def _explained(values: F64, fit: F64) -> float:
    """Return the share of the scatter that a fit explains."""
    return 1 - float(((values - fit) ** 2).sum() / max(((values - values.mean()) ** 2).sum(), 1e-12))


def _step(values: F64) -> tuple[int, float]:
    """Return where to split the values into two levels, and the share of the scatter that these explain."""
    fits = [
        (at, _explained(values, np.where(np.arange(len(values)) < at, values[:at].mean(), values[at:].mean())))
        for at in range(LEAST_OF_LEVEL, len(values) - LEAST_OF_LEVEL + 1)
    ]
    return max(fits, key=lambda fit: fit[1])


def _utilization(alike: Sequence[tuple[DeviceSamples, _Drift]], of: int, *, falls: bool) -> Observation:
    devices = tuple(gpu.device for gpu, _ in alike)
    start = float(np.mean([line.start for _, line in alike]))
    end = float(np.mean([line.end for _, line in alike]))
    first, last = min(line.first_ns for _, line in alike), max(line.last_ns for _, line in alike)
    changed, windows = "falls" if falls else "rises", min(line.windows for _, line in alike)
    window = duration((last - first) / 1e9 / windows)
    steps = [line.at_ns for _, line in alike if line.at_ns is not None]
    at = float(np.median(steps)) if len(steps) > len(alike) / 2 else None
    when = (
        f"after {duration((at - alike[0][0].times[0]) / 1e9)}" if at is not None else f"within {duration((last - first) / 1e9)}"
    )
    how = (
        f"It {changed} within a window of {window} and stays there"
        if at is not None
        else f"The means of {windows} windows of {window} {changed[:-1]} in order"
    )
    return Observation(
        kind="utilization-trend",
        devices=devices,
        severity="warning" if falls else "info",
        confidence="high" if falls else "medium",
        measure="percentage points",
        size=end - start,
        share=1.0,
        start_ns=int(at) if at is not None else first,
        end_ns=last,
        title=f"Utilization of {lowered(named(devices, of))} {changed} from {start:.0f} to {end:.0f} % {when}",
        seen=f"{how}. Samples do not show why.",
        action=("Compare", "a profile of the start with one of the end", f": possible causes are {SUDDEN if at is not None else GRADUAL}.") if falls
        else ("Measure", "from the time when the level is steady", ": warm-up, compilation or caches can raise it at first."),
        record_next="a profile at the start and one at the end of the run (sawtooth run), and samples of the host (sawtooth sample)",
        details={"from_pct": start, "to_pct": end},
    )  # fmt: skip


def _growth(gpu: DeviceSamples) -> tuple[float, float, float] | None:
    """Return memory at the start and at the end in bytes, and the growth per hour; None without creep."""
    edges = _edges(gpu)
    if edges is None or "mem_used_bytes" not in gpu:
        return None
    level = gpu.windows("mem_used_bytes", edges)
    working = np.isfinite(level) & (level >= WORKING * float(np.nanmax(level, initial=0.0)))
    values = level[working][1:]
    if len(values) < LEAST_WINDOWS or order(values) < STEADY_GROWTH:
        return None
    start, end, half = float(values[0]), float(values[-1]), len(values) // 2
    if end - start < max(GROWTH * start, LEAST_BYTES):
        return None
    first_half, last_half = values[half] - start, end - values[half]
    if last_half < REMAINS * first_half or np.diff(values).max() > 0.5 * (end - start):
        return None  # it grew at first only, or in one jump
    hours = float(edges[-1] - edges[0]) / 3.6e12
    return start, end, (end - start) / max(hours * len(values) / (len(edges) - 1), 1e-9)


def _memory(growing: Sequence[tuple[DeviceSamples, tuple[float, float, float]]], of: int) -> Observation:
    devices = tuple(gpu.device for gpu, _ in growing)
    start, end, rate = (float(np.mean([growth[i] for _, growth in growing])) for i in range(3))
    totals = [float(np.nanmax(gpu.values["mem_total_bytes"])) for gpu, _ in growing if "mem_total_bytes" in gpu]
    full = (
        f" At this rate the memory is full in {(min(totals) - end) / rate:.1f} h."
        if totals and rate > 0 and min(totals) > end
        else ""
    )
    length = duration((growing[0][0].times[-1] - growing[0][0].times[0]) / 1e9)
    gib = 1 << 30
    return Observation(
        kind="memory-growth",
        devices=devices,
        severity="warning",
        confidence="high",
        measure="bytes",
        size=end - start,
        share=1.0,
        start_ns=int(growing[0][0].times[0]),
        end_ns=int(growing[0][0].times[-1]),
        title=f"Memory of {lowered(named(devices, of))} grows from {start / gib:.1f} to {end / gib:.1f} GiB within {length}",
        seen=f"It grows in nearly every window and goes on to the end, by {significant(rate / gib, 2)} GiB an hour.{full}",
        action=("Find", "what keeps memory", ": possible causes are losses kept with their graphs, a growing cache, or longer inputs."),
        record_next="allocations in a profile (profile_memory=True), or torch.cuda.memory._record_memory_history()",
        details={"from_bytes": start, "to_bytes": end, "bytes_per_hour": rate},
    )  # fmt: skip

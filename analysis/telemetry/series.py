"""Telemetry as lines for a chart: thinned without losing peaks, and broken at telemetry gaps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.signal.dropouts import COUNTERS, dropouts
from sawtooth.analysis.telemetry.signal.energy import Energy, energy
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.registry import QUANTITIES
from sawtooth.ingest.quantities.throttling import HOLDING_BITS, holding_reasons

STRETCH_PARTS = 10  # The lowest stretch covers a tenth of the samples.
MIN_STRETCH_SAMPLES = 5  # The mean of a stretch with fewer samples is mostly noise.
TROUGH_RATIO = 0.8  # A stretch above this share of the mean level is not a trough.
MAX_POINTS = 2000  # Points of a line. A screen has about 1,500 pixels, and the browser draws 4,000 points in 40 ms.
OF_HOST = tuple(quantity.column for quantity in HOST if quantity.panel)
SAME_TICK_NS = 1_000_000  # One tick of the sampler reads the GPUs and the host.
CHART_COLUMNS = tuple(quantity.column for quantity in QUANTITIES if quantity.panel)  # Quantities that a chart may show.


@dataclass(frozen=True)
class TelemetrySeries:
    """One device of one telemetry recording in a span of time.

    It has the samples (time_ns and a column per quantity), the telemetry gaps and the times of throttling.
    """

    device: int
    name: str | None
    clock: SampleClock
    span: TimelineSpan
    samples: pd.DataFrame
    gaps: pd.DataFrame
    throttles: pd.DataFrame
    recording_id: str = ""

    def has(self, column: str) -> bool:
        """Return whether the quantity was measured at least once."""
        return column in self.samples and bool(self.samples[column].notna().any())

    @property
    def interval_s(self) -> float | None:
        """Median time between samples; None if there are fewer than two."""
        if len(self.samples) < 2:
            return None
        return float(np.median(np.diff(self.samples["time_ns"].to_numpy())) / 1e9)


def devices(recording: Recording) -> list[tuple[int, str | None]]:
    """Return the sampled devices and their names."""
    return recording.rows(
        "SELECT s.device, any_value(d.name) FROM (SELECT DISTINCT device FROM samples) s LEFT JOIN devices d USING (device) GROUP BY 1 ORDER BY 1"
    )


def telemetry(recording: Recording, device: int, clock: SampleClock = AS_RECORDED) -> TelemetrySeries:
    """Read one device's telemetry, with times on ``clock``."""
    columns = recording.select_list("samples", (*CHART_COLUMNS, "energy_j"))
    samples = recording.frame(
        f"SELECT time_ns, {columns}, clock_event_mask FROM samples WHERE device = ? ORDER BY time_ns", [device]
    )
    if len(dropped := dropouts(recording, device)):
        samples.loc[samples["time_ns"].isin(dropped), [c for c in COUNTERS if c in samples]] = np.nan
    samples = _with_host(recording, samples)
    gaps = recording.frame("SELECT start_ns, end_ns, reason FROM sample_gaps WHERE device = ? ORDER BY start_ns", [device])
    name = recording.rows("SELECT any_value(name) FROM devices WHERE device = ?", [device])[0][0]
    for table, column in ((samples, "time_ns"), (gaps, "start_ns"), (gaps, "end_ns")):
        table[column] = clock.times(table[column].to_numpy(np.int64))
    times = samples["time_ns"]
    covered = TimelineSpan(int(times.min()), int(times.max()) + 1) if len(times) else TimelineSpan(0, 1)
    return TelemetrySeries(
        device=device,
        name=name,
        clock=clock,
        span=covered,
        samples=samples,
        gaps=gaps,
        throttles=throttled_times(samples),
        recording_id=recording.id,
    )


def _with_host(recording: Recording, samples: pd.DataFrame) -> pd.DataFrame:
    """Return ``samples`` with the host quantities for charts, joined at equal times.

    Older recordings have no table for them.
    """
    with contextlib.suppress(duckdb.CatalogException):
        host = recording.frame(
            f"SELECT time_ns, {recording.select_list('host_samples', OF_HOST)} FROM host_samples ORDER BY time_ns"
        )
        if len(host) and len(samples):
            return pd.merge_asof(samples, host, on="time_ns", tolerance=SAME_TICK_NS)
    return samples


def last_seconds(telemetry: TelemetrySeries, seconds: float) -> TelemetrySeries:
    """Return the last ``seconds`` of the telemetry."""
    start = max(telemetry.span.end_ns - round(seconds * 1e9), telemetry.span.start_ns)
    return cut_to(telemetry, TimelineSpan(start, telemetry.span.end_ns))


def cut_to(telemetry: TelemetrySeries, span: TimelineSpan) -> TelemetrySeries:
    """Return the part of the telemetry inside ``span``."""
    times = telemetry.samples["time_ns"]
    samples = telemetry.samples[(times >= span.start_ns) & (times <= span.end_ns)].reset_index(drop=True)
    gaps = telemetry.gaps[(telemetry.gaps["start_ns"] < span.end_ns) & (telemetry.gaps["end_ns"] > span.start_ns)]
    bands = telemetry.throttles[
        (telemetry.throttles["start_ns"] < span.end_ns) & (telemetry.throttles["end_ns"] > span.start_ns)
    ]
    return TelemetrySeries(
        device=telemetry.device,
        name=telemetry.name,
        clock=telemetry.clock,
        span=span,
        samples=samples,
        gaps=gaps.reset_index(drop=True),
        throttles=bands.reset_index(drop=True),
        recording_id=telemetry.recording_id,
    )


def with_neighbours(telemetry: TelemetrySeries, span: TimelineSpan) -> TelemetrySeries:
    """Return the samples of ``span`` and one more on each side, so that a line reaches both borders."""
    times = telemetry.samples["time_ns"].to_numpy()
    first = max(int(np.searchsorted(times, span.start_ns, side="right")) - 1, 0)
    last_ = min(int(np.searchsorted(times, span.end_ns, side="left")), len(times) - 1)
    if not len(times):
        return telemetry
    return cut_to(telemetry, TimelineSpan(min(int(times[first]), span.start_ns), max(int(times[last_]), span.end_ns)))


def seconds_span(view: tuple[float, float], origin_ns: int) -> TimelineSpan:
    """Return the span between two times in seconds after ``origin_ns``."""
    return TimelineSpan(origin_ns + round(view[0] * 1e9), origin_ns + round(view[1] * 1e9))


def throttled_times(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the times of reduced clocks: start_ns, end_ns, reason; a band ends when the reasons change."""
    columns = ["start_ns", "end_ns", "reason"]
    mask = samples["clock_event_mask"] if "clock_event_mask" in samples else pd.Series(dtype=float)
    if mask.notna().sum() == 0:
        return pd.DataFrame(columns=columns)
    bits = mask.fillna(0).astype("int64").to_numpy() & HOLDING_BITS
    time = samples["time_ns"].to_numpy()
    edges = np.flatnonzero(np.diff(bits)) + 1
    starts, ends = np.concatenate(([0], edges)), np.concatenate((edges, [len(bits)]))
    rows = [
        (time[max(a - 1, 0)], time[b - 1], ", ".join(reason.label for reason in holding_reasons(int(bits[a]))))
        for a, b in zip(starts, ends, strict=True)
        if bits[a]
    ]
    return pd.DataFrame(rows, columns=columns)


def line(telemetry: TelemetrySeries, column: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return times and values of a quantity for a line, at most about MAX_POINTS.

    A NaN between two points is a telemetry gap. MinMaxLTTB thins the samples and keeps extremes, so a peak of one sample
    remains.
    """
    rows = telemetry.samples[telemetry.samples[column].notna()]
    time, value = rows["time_ns"].to_numpy(np.int64), rows[column].to_numpy(np.float64)
    if len(time) > MAX_POINTS:
        keep = MinMaxLTTBDownsampler().downsample(time, value, n_out=MAX_POINTS)  # type: ignore[no-untyped-call]
        time, value = time[keep], value[keep]
    for start, end in zip(telemetry.gaps["start_ns"], telemetry.gaps["end_ns"], strict=True):
        at = int(np.searchsorted(time, start, side="right"))
        time, value = np.insert(time, at, (int(start) + int(end)) // 2), np.insert(value, at, np.nan)
    return time, value


def _rises(time: NDArray[np.int64], value: NDArray[np.float64], middle: float) -> NDArray[np.int64]:
    """Return the times of the samples that are the first above ``middle``."""
    above = value > middle
    return time[1:][above[1:] & ~above[:-1]]


def one_period(telemetry: TelemetrySeries, period_s: float, low: float, high: float, column: str) -> TimelineSpan | None:
    """Return one period of a sawtooth near the middle of the span; None if the signal does not rise.

    It starts where the signal rises through the middle of its range.
    """
    rows = telemetry.samples[telemetry.samples[column].notna()]
    time, value = rows["time_ns"].to_numpy(np.int64), rows[column].to_numpy(np.float64)
    starts = _rises(time, value, (low + high) / 2)
    if not len(starts):
        return None
    middle = (telemetry.span.start_ns + telemetry.span.end_ns) // 2
    start = int(starts[np.argmin(np.abs(starts - middle))])
    end = start + round(period_s * 1e9)
    return TimelineSpan(start, end) if end <= telemetry.span.end_ns else None


FOLD_BINS = 48  # Bins of one period. In most recordings, each bin has some samples.
FOLD_BEFORE = 0.15  # Share of a period that the chart shows before the rise.


def fold(telemetry: TelemetrySeries, period_s: float, low: float, high: float, column: str) -> pd.DataFrame:
    """Return all periods of a sawtooth, aligned at their rises: after_s (from the rise), p10, median, p90.

    A loop's period varies, so multiples of the mean period would not align. Empty if the signal does not rise.
    """
    rows = telemetry.samples[telemetry.samples[column].notna()]
    time, value = rows["time_ns"].to_numpy(np.int64), rows[column].to_numpy(np.float64)
    rises = _rises(time, value, (low + high) / 2)
    if not len(rises):
        return pd.DataFrame(columns=["after_s", "p10", "median", "p90"])
    begin, end = -FOLD_BEFORE * period_s, period_s
    first, past = (np.searchsorted(time, rises + round(edge * 1e9)) for edge in (begin, end))
    around_rises = list(zip(rises, map(slice, first, past), strict=True))
    after_ns = np.concatenate([time[period] - rise for rise, period in around_rises])
    table = pd.DataFrame({"after_s": after_ns / 1e9, "value": np.concatenate([value[period] for _, period in around_rises])})
    width = (end - begin) / FOLD_BINS
    table["after_s"] = begin + (np.floor((table["after_s"] - begin) / width) + 0.5) * width
    spread = table.groupby("after_s")["value"].quantile([0.1, 0.5, 0.9]).unstack()
    return spread.set_axis(["p10", "median", "p90"], axis=1).reset_index()


def overlap(telemetry: TelemetrySeries, other: TimelineSpan, trace_clock: str) -> bool:
    """Return whether telemetry and a trace share a clock and overlap in time."""
    return (
        telemetry.clock.shares(trace_clock)
        and telemetry.span.start_ns < other.end_ns
        and telemetry.span.end_ns > other.start_ns
    )


def facts(telemetry: TelemetrySeries, column: str) -> dict[str, float]:
    """Return mean, p5 and p95 of a quantity.

    In the mean, a sample counts by the time since the sample before it. After a gap, it counts as one usual sampling period.
    """
    rows = telemetry.samples[telemetry.samples[column].notna()]
    if rows.empty:
        return {}
    value = rows[column].to_numpy(np.float64)
    weight = weights_ns(rows["time_ns"].to_numpy(np.int64))
    mean = float(np.average(value, weights=weight)) if weight.sum() else float(value.mean())
    return {"mean": mean, "p5": float(np.percentile(value, 5)), "p95": float(np.percentile(value, 95))}


def energy_of(telemetry: TelemetrySeries) -> Energy | None:
    """Return the energy that the GPU used while it was sampled; None if it is not known."""
    energies = []
    for column in ("energy_j", "power_w"):
        rows = telemetry.samples[telemetry.samples[column].notna()] if telemetry.has(column) else telemetry.samples[:0]
        value = rows[column].to_numpy(np.float64) if len(rows) else np.empty(0)
        energies.append((rows["time_ns"].to_numpy(np.int64), value))
    return energy(energies[0], energies[1], telemetry.span.ns)


def lowest_stretch(telemetry: TelemetrySeries, column: str) -> tuple[TimelineSpan, float] | None:
    """Return the consecutive tenth of the samples with the lowest mean, and that mean.

    None if there are too few samples or if the mean is hardly below the overall mean.
    """
    rows = telemetry.samples[telemetry.samples[column].notna()]
    value, count = rows[column].to_numpy(np.float64), len(rows) // STRETCH_PARTS
    if count < MIN_STRETCH_SAMPLES:
        return None
    means = np.convolve(value, np.full(count, 1 / count), mode="valid")
    at = int(np.argmin(means))
    if means[at] > TROUGH_RATIO * value.mean():
        return None
    time = rows["time_ns"].to_numpy(np.int64)
    return TimelineSpan(int(time[at]), int(time[at + count - 1])), max(float(means[at]), 0.0)

"""Telemetry of a run, per device: means over its steady part, sawtooth, phases and throttling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY
from sawtooth.analysis.telemetry.diagnosis.jobs import job_spans
from sawtooth.analysis.telemetry.phases import Phase, ThrottleBand, phases, throttle_bands
from sawtooth.analysis.telemetry.signal.dropouts import COUNTERS, dropouts, zeros_at_work
from sawtooth.analysis.telemetry.signal.means import Mean, counter_rate, mean_over, weighted_mean
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth, find_sawtooth
from sawtooth.analysis.telemetry.signal.steady import SteadyPart, find_steady, profile_shadow, weights_ns
from sawtooth.ingest.quantities.registry import BY_COLUMN, QUANTITIES

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Series = dict[str, tuple[I64, F64]]  # Times (ns) and values of each recorded column of ``samples``.


class UtilizationSignal(NamedTuple):
    """A signal of the GPU's activity; ``tiles``: each sample is the mean since the sample before it."""

    column: str
    label: str
    tiles: bool


# Best first. SM activity shows the period of the sawtooth as well as GPU activity does. It is a worse measure of the share of time
# in which the GPU works, because it is a mean over the SMs.
ACTIVITY = tuple(
    UtilizationSignal(column, BY_COLUMN[column].label, tile)
    for column, tile in (("gr_active_pct", True), ("sm_active_pct", True), ("util_pct", False))
)
# Columns for the share of time in which the GPU works, best first.
SHARES_AT_WORK = ("gr_active_pct", "util_pct", "sm_active_pct")
MEANS = tuple(quantity.column for quantity in QUANTITIES if quantity.mean)
POWER_CAP = 0x4  # This bit of NVML's clock event reasons says that the power limit lowers the clock.
SM_ACTIVITY = ACTIVITY[1]


@dataclass(frozen=True)
class DeviceTelemetry:
    """One device of one telemetry recording.

    Means are over the steady part outside the profiles, in the units of the columns; the mean power is that of the energy counter,
    if there is one. ``at_work`` is, by column, the share of time
    in which the GPU works, with its confidence interval. ``counted_power_w`` is the mean power from the energy counter, which also
    covers the time between power samples. ``capped`` means that the power cap reduced clocks in that time. ``profiled`` means that
    the profiler itself took the samples, so all of them are from the profiled time. ``pids`` are the processes that the sampler
    saw on the device. ``zeros_at_work`` is the share of samples with utilization 0 among those whose power shows work; if it is
    above 0, ``at_work`` has no utilization. ``profiles`` is the number of profiles whose time is not included in the means.
    """

    recording_id: str
    device: int
    name: str | None
    uuid: str | None
    first_ns: int
    last_ns: int
    period_s: dict[str, float]
    coverage: float
    steady: SteadyPart
    means: dict[str, float]
    memory_peak_bytes: float | None
    memory_total_bytes: float | None
    signal: str | None
    signal_column: str | None
    sawtooth: Sawtooth
    phases: tuple[Phase, ...]
    throttling: tuple[ThrottleBand, ...]
    host: str | None = None
    at_work: dict[str, Mean] = field(default_factory=dict)
    counted_power_w: float | None = None
    capped: bool = False
    profiled: bool = False
    pids: tuple[int, ...] = ()
    zeros_at_work: float = 0.0
    profiles: int = 0

    @property
    def works_pct(self) -> float | None:
        """The share of time in which the GPU works, in percent, over the steady part."""
        return next((self.means[c] for c in SHARES_AT_WORK if c in self.means), None)

    @property
    def clock_note(self) -> str:
        """The time over which the mean SM clock was computed, in words."""
        if self.steady.start_ns is None or self.steady.end_ns is None:
            return "the whole telemetry, which has no steady part"
        if not self.profiles and (mean := self.at_work.get("util_pct")) is not None:
            return f"{mean.seconds:.1f} s of steady telemetry"
        profiler_in_words = "under the profiler" if self.profiled else "outside the profile"
        return f"{(self.steady.end_ns - self.steady.start_ns) / 1e9:.1f} s of steady telemetry {profiler_in_words}"


def load_series(recording: Recording, device: int, column: str, clock: SampleClock = AS_RECORDED) -> tuple[I64, F64]:
    """Return the times (ns on ``clock``) and recorded values of one column of ``samples``, in order.

    Values at which a counter dropped out are omitted.
    """
    columns = recording.cursor.execute(
        f'SELECT time_ns, "{column}"::DOUBLE AS value FROM samples WHERE device = ? AND "{column}" IS NOT NULL ORDER BY time_ns',
        [device],
    ).fetchnumpy()
    times, values = np.asarray(columns["time_ns"], np.int64), np.asarray(columns["value"], np.float64)
    if column in COUNTERS and len(dropped := dropouts(recording, device)):
        read = ~np.isin(times, dropped)
        times, values = times[read], values[read]
    return clock.times(times), values


def summarize(
    recording: Recording,
    profiles: Sequence[tuple[int, int]] = (),
    clock: SampleClock = AS_RECORDED,
    marked: tuple[int, int] | None = None,
) -> list[DeviceTelemetry]:
    """Summarize every device of a telemetry recording.

    ``profiles`` are (first, last) times of the run's traces on ``clock``; the means do not include samples under the profiler.
    ``marked`` is the time of the marked steps; samples outside it do not belong to the loop. Without marks or a profile, the
    means of a log of several jobs are those of its longest job.
    """
    devices = recording.rows(
        "SELECT DISTINCT s.device, d.name, d.uuid FROM samples s LEFT JOIN devices d USING (device) ORDER BY 1"
    )
    return [
        _summary(recording=recording, device=int(d), name=name, uuid=uuid, clock=clock, profiles=profiles, marked=marked)
        for d, name, uuid in devices
    ]


def _summary(
    *,
    recording: Recording,
    device: int,
    name: str | None,
    uuid: str | None,
    clock: SampleClock,
    profiles: Sequence[tuple[int, int]],
    marked: tuple[int, int] | None,
) -> DeviceTelemetry:
    series = _all_series(recording, device, clock)
    times = np.unique(np.concatenate([t for t, _ in series.values()])) if series else np.empty(0, np.int64)
    first_ns, last_ns = (int(times[0]), int(times[-1])) if len(times) else (0, 0)
    rhythm = _rhythm(series, profiles, marked if marked or profiles else _longest_job(series))
    signal, steady, sawtooth_found = rhythm.signal, rhythm.steady, rhythm.sawtooth
    averaged = SteadyPart(first_ns - 1, last_ns) if steady.why_none is not None and len(times) else steady
    zeros = zeros_at_work(series["util_pct"], series["power_w"]) if {"util_pct", "power_w"} <= series.keys() else 0.0
    at_work = ("gr_active_pct",) if zeros else ("util_pct", "gr_active_pct")
    means = {c: weighted_mean(*series[c], averaged, rhythm.shadows) for c in MEANS if c in series}
    counted_w = counter_rate(*series["energy_j"], averaged, rhythm.shadows) if "energy_j" in series else None
    if counted_w is not None and "power_w" in means:
        means["power_w"] = counted_w  # Otherwise pages would show two mean powers of the same time.
    return DeviceTelemetry(
        recording_id=recording.id,
        device=device,
        name=name,
        uuid=uuid,
        first_ns=first_ns,
        last_ns=last_ns,
        period_s={c: float(np.median(np.diff(t))) / 1e9 for c, (t, _) in series.items() if len(t) > 1},
        coverage=_coverage(recording, device, times, clock.stretch),
        steady=steady,
        means={c: m for c, m in means.items() if m is not None},
        memory_peak_bytes=_maximum(series, "mem_used_bytes"),
        memory_total_bytes=_maximum(series, "mem_total_bytes"),
        signal=signal.label if signal else None,
        signal_column=signal.column if signal else None,
        sawtooth=sawtooth_found,
        phases=tuple(phases(*series[signal.column], steady, sawtooth_found.period_s)) if signal else (),
        throttling=tuple(_throttling_seconds(series)),
        at_work={c: mean for c in at_work if c in series and (mean := mean_over(*series[c], steady))},
        counted_power_w=counted_w,
        capped=_is_capped(series, steady),
        zeros_at_work=zeros,
        profiles=len(profiles),
    )


def _all_series(recording: Recording, device: int, clock: SampleClock) -> Series:
    columns = [row[0] for row in recording.rows("SELECT column_name FROM (DESCRIBE samples)")]
    series = {c: load_series(recording, device, c, clock) for c in columns if c not in ("device", "time_ns")}
    return {column: (times, values) for column, (times, values) in series.items() if len(times)}


def _longest_job(series: Series) -> tuple[int, int] | None:
    """Return the time of the longest of several jobs; None if there is only one job."""
    busy = next((column for column in BUSY if column in series), None)
    if busy is None or "mem_used_bytes" not in series:
        return None
    times, values = series[busy]
    at, used = series["mem_used_bytes"]
    indices = np.searchsorted(at, times, side="right") - 1
    spans = job_spans(times, values, np.where(indices >= 0, used[np.maximum(indices, 0)], np.nan))
    weights = weights_ns(times)
    return max(spans, key=lambda span: int(weights[(times >= span[0]) & (times <= span[1])].sum())) if len(spans) > 1 else None


def _maximum(series: Series, column: str) -> float | None:
    return float(series[column][1].max()) if column in series else None


class _DeviceRhythm(NamedTuple):
    """The activity of a device over time, by the ``signal`` that shows it best.

    ``shadows`` are the (first, last) times in ns that a profile affects.
    """

    signal: UtilizationSignal | None
    shadows: tuple[tuple[int, int], ...]
    steady: SteadyPart
    sawtooth: Sawtooth


def _rhythm(series: Series, profiles: Sequence[tuple[int, int]], marked: tuple[int, int] | None) -> _DeviceRhythm:
    signal = next((s for s in ACTIVITY if s.column in series), None)
    if signal is None:
        no_sawtooth = Sawtooth(None, "no signal that shows GPU activity was recorded", None)
        return _DeviceRhythm(None, (), SteadyPart(None, None, "no activity was recorded"), no_sawtooth)
    times, values = series[signal.column]
    shadows = tuple(profile_shadow(times, values, profile) for profile in profiles)
    steady = find_steady(times, values, shadows, marked)
    sawtooth_found = _sawtooth(series, steady, shadows, signal)
    # With only a few SMs at work, the mean over all SMs is almost zero.
    if signal == SM_ACTIVITY and sawtooth_found.period_s is None and "util_pct" in series:
        by_util = _sawtooth(series, steady, shadows, ACTIVITY[-1])
        if by_util.period_s is not None:
            sawtooth_found, signal = by_util, ACTIVITY[-1]
    return _DeviceRhythm(signal, shadows, steady, sawtooth_found)


def _sawtooth(series: Series, steady: SteadyPart, profiles: Sequence[tuple[int, int]], signal: UtilizationSignal) -> Sawtooth:
    times, values = series[signal.column]
    if steady.why_none is not None:
        return Sawtooth(None, steady.why_none, None)
    keep = steady.mask(times)
    for start, end in profiles:
        keep &= (times < start) | (times > end)
    return find_sawtooth(times[keep], values[keep], windows_tile=signal.tiles, bursts=steady.periods)


def _coverage(recording: Recording, device: int, times: I64, stretch: float) -> float:
    """Return the share of the recording's time outside telemetry gaps."""
    if len(times) < 2:
        return 0.0
    gap_ns = recording.rows("SELECT coalesce(sum(end_ns - start_ns), 0) FROM sample_gaps WHERE device = ?", [device])[0][0]
    return max(0.0, 1 - float(gap_ns) * stretch / float(times[-1] - times[0]))


def _is_capped(series: Series, steady: SteadyPart) -> bool:
    """Return whether the power cap reduced clocks in part of the steady time."""
    if "clock_event_mask" not in series:
        return False
    times, mask = series["clock_event_mask"]
    return bool((mask[steady.mask(times)].astype(np.int64) & POWER_CAP).any())


def _throttling_seconds(series: Series) -> list[ThrottleBand]:
    if "clock_event_mask" not in series:
        return []
    times, mask = series["clock_event_mask"]
    clock_times, clock = series.get("clock_sm_mhz", (times[:0], np.empty(0)))
    at = np.full(len(times), np.nan)
    indices = np.searchsorted(times, clock_times)
    matches = (
        (indices < len(times)) & (times[np.minimum(indices, len(times) - 1)] == clock_times)
        if len(times)
        else np.zeros(0, bool)
    )
    at[indices[matches]] = clock[matches]
    return throttle_bands(times, mask, at)

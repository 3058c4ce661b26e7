"""What telemetry says of a run, per device: means over its steady part, the sawtooth, phases, throttling, memory, and how much is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.changes import Phase, ThrottleBand, phases, throttle_bands
from analysis.metrics import Reading, Trust, missing
from analysis.recordings import Recording
from analysis.sample_clock import AS_RECORDED, SampleClock
from analysis.sawtooth import Sawtooth, find_sawtooth
from analysis.steady import Steady, find_steady, profile_shadow, weighted_mean

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# Signals that show when the GPU works, best first: name of the column, its label, and whether its windows cover all time. SM activity shows
# the rhythm as well as GPU activity, yet it is the mean over the SMs: it says less than how much of the time the GPU works.
ACTIVITY = (
    ("gr_active_pct", "GPU activity", True),
    ("sm_active_pct", "SM activity", True),
    ("util_pct", "GPU utilization (NVML)", False),
)
SHARES_AT_WORK = (
    "gr_active_pct",
    "util_pct",
    "sm_active_pct",
)  # which column says how much of the time the GPU works, best first
MEANS = (
    "util_pct", "mem_busy_pct", "power_w", "temp_c", "clock_sm_mhz", "clock_mem_mhz", "gr_active_pct", "sm_active_pct", "sm_occupancy_pct",
    "tensor_active_pct", "tensor_hmma_pct", "dram_active_pct", "fp32_pct", "pcie_tx_bps", "pcie_rx_bps", "nvlink_tx_bps", "nvlink_rx_bps",
)  # fmt: skip
FAINT = ACTIVITY[1]
LOW_COVERAGE = 0.9  # below it a mean leaves out more than a tenth of the time, and says so
RARE_PERIOD_S = 2.0  # telemetry this slow cannot show steps; W&B's 15 s and scrapes of 30 s are the usual case
NO_TELEMETRY = "No telemetry is attached. Record some with `sawtooth sample` and drop it on the run."


@dataclass(frozen=True)
class DeviceTelemetry:
    """One device of one telemetry recording. Means are over the steady part outside the profiles, in the units of the columns."""

    recording_id: str
    device: int
    name: str | None
    uuid: str | None
    first_ns: int
    last_ns: int
    period_s: dict[str, float]
    coverage: float
    steady: Steady
    means: dict[str, float]
    memory_peak_bytes: float | None
    memory_total_bytes: float | None
    energy_j: float | None
    signal: str | None
    signal_column: str | None
    sawtooth: Sawtooth
    phases: tuple[Phase, ...]
    throttling: tuple[ThrottleBand, ...]
    profile_shadows: tuple[tuple[int, int], ...] = ()
    host: str | None = None

    @property
    def works_pct(self) -> float | None:
        """How much of the time the GPU works, in percent, over the steady part."""
        return next((self.means[c] for c in SHARES_AT_WORK if c in self.means), None)

    @property
    def clock_note(self) -> str:
        """Say over which time the mean SM clock was taken."""
        if self.steady.start_ns is None or self.steady.end_ns is None:
            return "the whole telemetry, which has no steady part"
        return f"telemetry's steady {(self.steady.end_ns - self.steady.start_ns) / 1e9:.1f} s, outside the profile"


def load_series(recording: Recording, device: int, column: str, clock: SampleClock = AS_RECORDED) -> tuple[I64, F64]:
    """Return times (ns on ``clock``) and values of one column of ``samples``, in order, where it was recorded."""
    found = recording.cursor.execute(
        f'SELECT time_ns, "{column}"::DOUBLE AS value FROM samples WHERE device = ? AND "{column}" IS NOT NULL ORDER BY time_ns',
        [device],
    ).fetchnumpy()
    return clock.times(np.asarray(found["time_ns"], np.int64)), np.asarray(found["value"], np.float64)


def summarize(
    recording: Recording, profiles: Sequence[tuple[int, int]] = (), clock: SampleClock = AS_RECORDED
) -> list[DeviceTelemetry]:
    """Summarize every device of a telemetry recording.

    ``profiles`` are (first, last) times of the run's traces on ``clock``: what was sampled under the profiler is left out of the means.
    """
    devices = recording.rows(
        "SELECT DISTINCT s.device, d.name, d.uuid FROM samples s LEFT JOIN devices d USING (device) ORDER BY 1"
    )
    return [_summary(recording, int(d), name, uuid, clock, profiles) for d, name, uuid in devices]


def device_of(found: Sequence[DeviceTelemetry], name: str | None, device: int, devices_in_trace: int) -> DeviceTelemetry | None:
    """Return the telemetry of a trace's device: the only one, else the one of the same ordinal and name.

    A trace knows ordinals as CUDA_VISIBLE_DEVICES leaves them, telemetry knows all GPUs of the host: with several of them and one in the
    trace, the busiest of that name is the one that ran.
    """
    same = [t for t in found if not (name and t.name) or t.name == name] or list(found)
    if len(same) <= 1:
        return same[0] if same else None
    if devices_in_trace <= 1:
        return max(same, key=lambda t: t.means.get("util_pct", t.means.get("gr_active_pct", 0.0)))
    return next((t for t in same if t.device == device), None)


def readings(found: DeviceTelemetry | None) -> dict[str, Reading]:
    """Return the metrics that telemetry alone gives: utilization, measured tensor activity, the sawtooth's period."""
    keys = ("nvml_gpu_util_mean", "tensor_active_measured", "sawtooth_period_s")
    if found is None:
        return {key: missing(NO_TELEMETRY) for key in keys}
    notes = _notes(found)
    trust: Trust = "caution" if found.coverage < LOW_COVERAGE or found.steady.why_none else "ok"
    out: dict[str, Reading] = {}
    for key, column, absent in (
        ("nvml_gpu_util_mean", "util_pct", "The telemetry has no NVML utilization (MIG instances have none)."),
        (
            "tensor_active_measured",
            "tensor_active_pct",
            "The telemetry has no tensor activity: NVML measures it from the Hopper generation on (GPM), DCGM on older data-centre GPUs.",
        ),
    ):
        mean = found.means.get(column)
        out[key] = Reading(mean / 100, trust=trust, notes=notes) if mean is not None else missing(absent)
    out["sawtooth_period_s"] = _period_reading(found)
    return out


def sentence(tooth: Sawtooth, signal: str | None, works_pct: float | None) -> str:
    """Say in one sentence what the sawtooth is, or why none is reported; ``works_pct`` is how much of the time the GPU works."""
    if tooth.period_s is None:
        limit = f" Rhythms faster than {tooth.shortest_visible_s:.2g} s cannot be seen." if tooth.shortest_visible_s else ""
        return f"No sawtooth: {signal or 'activity'}: {tooth.why_none}.{limit}"
    if works_pct is None:
        return f"{signal or 'Activity'} rises and falls every {tooth.period_s:.3g} s."
    busy = works_pct / 100 * tooth.period_s
    return f"The GPU works {works_pct:.0f} % of each {tooth.period_s:.3g} s ({busy * 1e3:.0f} ms) and waits for the rest."


def _summary(
    recording: Recording,
    device: int,
    name: str | None,
    uuid: str | None,
    clock: SampleClock,
    profiles: Sequence[tuple[int, int]],
) -> DeviceTelemetry:
    series = {column: load_series(recording, device, column, clock) for column in _columns(recording)}
    series = {column: pair for column, pair in series.items() if len(pair[0])}
    signal = next((s for s in ACTIVITY if s[0] in series), None)
    times = np.unique(np.concatenate([t for t, _ in series.values()])) if series else np.empty(0, np.int64)
    nothing = Steady(None, None, "no activity was recorded")
    steady = find_steady(*series[signal[0]]) if signal else nothing
    shadows = tuple(profile_shadow(*series[signal[0]], p) for p in profiles) if signal else ()
    tooth = _sawtooth(series, steady, shadows, signal)
    # A few SMs at work are next to none on the mean of all.
    if signal == FAINT and tooth.period_s is None and "util_pct" in series:
        by_util = _sawtooth(series, steady, shadows, ACTIVITY[-1])
        tooth, signal = (by_util, ACTIVITY[-1]) if by_util.period_s is not None else (tooth, signal)
    whole = Steady(int(times[0]) - 1, int(times[-1])) if len(times) else steady
    means = {c: weighted_mean(*series[c], steady if steady.why_none is None else whole, shadows) for c in MEANS if c in series}
    used, total = (series.get(c, (times[:0], np.empty(0)))[1] for c in ("mem_used_bytes", "mem_total_bytes"))
    return DeviceTelemetry(
        recording.id,
        device,
        name,
        uuid,
        int(times[0]) if len(times) else 0,
        int(times[-1]) if len(times) else 0,
        {c: float(np.median(np.diff(t))) / 1e9 for c, (t, _) in series.items() if len(t) > 1},
        _coverage(recording, device, times, clock.stretch),
        steady,
        {c: m for c, m in means.items() if m is not None},
        float(used.max()) if len(used) else None,
        float(total.max()) if len(total) else None,
        _energy(series.get("energy_j"), steady),
        signal[1] if signal else None,
        signal[0] if signal else None,
        tooth,
        tuple(phases(*series[signal[0]], steady, tooth.period_s)) if signal else (),
        tuple(_throttling(series)),
        shadows,
    )


def _columns(recording: Recording) -> list[str]:
    columns = [row[0] for row in recording.rows("SELECT column_name FROM (DESCRIBE samples)")]
    return [c for c in columns if c not in ("device", "time_ns")]


def _sawtooth(
    series: dict[str, tuple[I64, F64]],
    steady: Steady,
    profiles: Sequence[tuple[int, int]],
    signal: tuple[str, str, bool] | None,
) -> Sawtooth:
    if signal is None:
        return Sawtooth(None, "nothing that shows when the GPU works was recorded", None)
    column, _, tile = signal
    times, values = series[column]
    if steady.why_none is not None:
        return Sawtooth(None, steady.why_none, None)
    keep = steady.mask(times)
    for start, end in profiles:
        keep &= (times < start) | (times > end)
    return find_sawtooth(times[keep], values[keep], windows_tile=tile)


def _coverage(recording: Recording, device: int, times: I64, stretch: float) -> float:
    """Return the share of the recording's time that is not in a hole."""
    if len(times) < 2:
        return 0.0
    lost = recording.rows("SELECT coalesce(sum(end_ns - start_ns), 0) FROM sample_gaps WHERE device = ?", [device])[0][0]
    return max(0.0, 1 - float(lost) * stretch / float(times[-1] - times[0]))


def _energy(series: tuple[I64, F64] | None, steady: Steady) -> float | None:
    """Return the joules the counter grew by over the steady part; None where it was read less than twice in it, or was reset."""
    if series is None:
        return None
    values = series[1][steady.mask(series[0])]
    return float(values[-1] - values[0]) if len(values) > 1 and (np.diff(values) >= 0).all() else None


def _throttling(series: dict[str, tuple[I64, F64]]) -> list[ThrottleBand]:
    if "clock_event_mask" not in series:
        return []
    times, mask = series["clock_event_mask"]
    clock_times, clock = series.get("clock_sm_mhz", (times[:0], np.empty(0)))
    at = np.full(len(times), np.nan)
    same = np.searchsorted(times, clock_times)
    known = (same < len(times)) & (times[np.minimum(same, len(times) - 1)] == clock_times) if len(times) else np.zeros(0, bool)
    at[same[known]] = clock[known]
    return throttle_bands(times, mask, at)


def _notes(found: DeviceTelemetry) -> tuple[str, ...]:
    notes = [f"Mean over {found.clock_note}."]
    if found.steady.why_none:
        notes.append(f"No steady part: {found.steady.why_none}.")
    if found.coverage < LOW_COVERAGE:
        notes.append(f"{1 - found.coverage:.0%} of the time was not sampled and is left out.")
    return tuple(notes)


def _period_reading(found: DeviceTelemetry) -> Reading:
    tooth, signal = found.sawtooth, found.signal
    if tooth.period_s is None:
        rare = found.period_s.get("util_pct", 0.0) > RARE_PERIOD_S
        more = " Sample ten times a second with `sawtooth sample` to see steps." if rare else ""
        return missing(sentence(tooth, signal, None) + more)
    notes = [
        sentence(tooth, signal, found.works_pct),
        f"Seen in {signal}, {tooth.cycles:.0f} periods, confidence {tooth.confidence}.",
    ]
    if tooth.alias_periods_s:
        faster = ", ".join(f"{p:.3g}" for p in tooth.alias_periods_s[:2])
        notes.append(f"Samples are too far apart to rule out a faster one that looks the same ({faster} s).")
    return Reading(tooth.period_s, trust="ok" if tooth.confidence == "high" else "caution", notes=tuple(notes))

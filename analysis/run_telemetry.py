"""The telemetry attached to a run, brought onto its traces' clock, and what it says about each device of the traces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import representative, trust
from analysis.metrics import Reading
from analysis.mfu import Clock
from analysis.recordings import Library
from analysis.representative import Representativeness
from analysis.sample_clock import Origin, SampleClock, origin_of, place
from analysis.telemetry import DeviceTelemetry, device_of, load_series, readings, summarize
from ingest.schema import Manifest

UTILIZATION = (
    "util_pct",
    "gr_active_pct",
)  # what a step time is told from: NVML's where it is there, as the calibration used it
ANOTHER_RUN_NS = 60_000_000_000  # samples that end a minute before the trace, or begin one after it, show some other time


@dataclass(frozen=True)
class RunTelemetry:
    """Summaries of every sampled device, and the utilization samples they were made from (by recording and device).

    All times are on the traces' clock where ``clocks`` (by recording) could bring them there; ``origins`` say what the recordings told of it.
    """

    devices: tuple[DeviceTelemetry, ...]
    utilization: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.float64]]]
    clocks: dict[str, SampleClock] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)

    def of(self, name: str | None, device: int, devices_in_trace: int) -> DeviceTelemetry | None:
        """Return the summary of a trace's device, None where nothing was sampled for it."""
        return device_of(self.devices, name, device, devices_in_trace)


def load(manifest: Manifest, library: Library, traces: Iterable[dict[str, Any]]) -> RunTelemetry:
    """Read the run's telemetry, brought onto the clock of its traces, whose rows of ``recording`` are given."""
    traces = list(traces)
    origins: dict[str, Origin] = {}
    for ref in manifest.telemetry:
        with library.open(ref.id, derived=False) as recording:
            origins[ref.id] = origin_of(recording)
    clocks = place(manifest.telemetry, origins, traces)
    found: list[DeviceTelemetry] = []
    series: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    for ref in manifest.telemetry:
        with library.open(ref.id, derived=False) as recording:
            clock = clocks[ref.id]
            for device in summarize(recording, _profiles(traces, clock), clock):
                found.append(replace(device, host=ref.host))
                column = next((c for c in UTILIZATION if c in device.period_s), None)
                if column is not None:
                    series[ref.id, device.device] = load_series(recording, device.device, column, clock)
    return RunTelemetry(tuple(found), series, clocks, origins)


def _profiles(traces: Iterable[dict[str, Any]], clock: SampleClock) -> list[tuple[int, int]]:
    """Return (first, last) times of the traces that are of one clock with the telemetry."""
    return [
        (int(t["first_ns"]), int(t["last_ns"]))
        for t in traces
        if clock.shares(str(t["clock"])) and not pd.isna(t["first_ns"]) and not pd.isna(t["last_ns"])
    ]


def clock_of(found: DeviceTelemetry | None) -> Clock | None:
    """Return the mean SM clock for the MFU's factors."""
    mhz = found.means.get("clock_sm_mhz") if found else None
    return Clock(mhz, found.clock_note) if found and mhz else None


def represents(
    telemetry: RunTelemetry,
    found: DeviceTelemetry | None,
    profile_ns: tuple[int, int] | None,
    kernel_ns_per_step: float,
    kernels_per_step: float,
    estimate_ns: float | None,
) -> Representativeness | None:
    """Tell whether the profiled steps speak for the run; None without utilization samples of the device."""
    samples = telemetry.utilization.get((found.recording_id, found.device)) if found else None
    if found is None or samples is None:
        return None
    if away := elsewhere(found, profile_ns):
        return Representativeness(None, None, None, away)
    times, values = samples
    for start, end in found.profile_shadows:
        values = np.where((times > start) & (times <= end), np.nan, values)
    return representative.judge(times, values, profile_ns, kernel_ns_per_step, kernels_per_step, estimate_ns)


def elsewhere(found: DeviceTelemetry | None, profile_ns: tuple[int, int] | None) -> str | None:
    """Return a sentence where a device was sampled ANOTHER_RUN_NS and more away from the trace; None where it was not or clocks differ."""
    if found is None or profile_ns is None:
        return None
    before, after = profile_ns[0] - found.last_ns, found.first_ns - profile_ns[1]
    if max(before, after) < ANOTHER_RUN_NS:
        return None
    when = f"ends {_apart(before)} before" if before > after else f"begins {_apart(after)} after"
    return f"The telemetry {when} the trace: it may be of another run, so it says nothing about the profiled steps."


def _apart(ns: int) -> str:
    minutes = ns / 6e10
    return (
        f"{minutes:.2g} minutes"
        if minutes < 100
        else f"{minutes / 60:.0f} hours"
        if minutes < 6000
        else f"{minutes / 1440:,.0f} days"
    )


def metrics_of(found: DeviceTelemetry | None, allocated: Reading, away: str | None = None) -> dict[str, Reading]:
    """Return the metrics telemetry gives, with its peak memory where the allocator's is not recorded. ``away`` is ``elsewhere``'s sentence."""
    out = readings(found)
    if allocated.value is None and found is not None and found.memory_peak_bytes:
        note = "Device memory in use as telemetry saw it, by every process and with the caching allocator's reserve."
        out["peak_memory_bytes"] = Reading(found.memory_peak_bytes, trust="caution", notes=(note,))
    return {key: trust.lowered(r, "caution", away) if r.value is not None else r for key, r in out.items()} if away else out

"""The telemetry of a run on its traces' clock, and the step time evidence for each traced device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry.attribution import (
    attribute,
    candidates,
    marked_ns,
    metadata_of,
    trace_devices,
    unassigned_sentence,
)
from sawtooth.analysis.telemetry.clock import ClockOrigin, SampleClock, origin_of, place
from sawtooth.analysis.telemetry.dispatch_law import by_telemetry
from sawtooth.analysis.telemetry.host import HostLoad, host_load
from sawtooth.analysis.telemetry.signal.period_evidence import with_period
from sawtooth.analysis.telemetry.summary import DeviceTelemetry, summarize
from sawtooth.analysis.units import significant
from sawtooth.ingest.manifest import SAME_TIME_NS, Manifest

# Columns from which a step time can be computed.
UTILIZATION = ("util_pct", "gr_active_pct")


class SampledOwner(NamedTuple):
    """A traced device, and the index of its sampled device."""

    recording_id: str
    device: int
    sampled: int


@dataclass(frozen=True)
class RunTelemetry:
    """Summaries of every sampled device.

    Times are on the traces' clock where ``clocks`` (by recording) could convert them. ``origins`` are the recordings' own data about
    their clocks. ``host`` is the host load of the first recording that has one. ``owners`` assign traced devices (recording and
    ordinal) to ``devices`` by index. ``possible`` are the indices of devices that may be a traced device. ``unknown`` is a sentence
    about traced devices without an assignment.
    """

    devices: tuple[DeviceTelemetry, ...]
    clocks: dict[str, SampleClock] = field(default_factory=dict)
    origins: dict[str, ClockOrigin] = field(default_factory=dict)
    host: HostLoad | None = None
    owners: tuple[SampledOwner, ...] = ()
    possible: tuple[int, ...] = ()
    unknown: str | None = None

    def of(self, recording_id: str, device: int) -> DeviceTelemetry | None:
        """Return the summary of a trace's device; None if no samples of it are known."""
        return next(
            (self.devices[o.sampled] for o in self.owners if (o.recording_id, o.device) == (recording_id, device)), None
        )

    def profile_ns(self, sampled: DeviceTelemetry | None, trace: RecordingRow) -> tuple[int, int] | None:
        """Return a trace's first and last times on the clock of ``sampled``; None without a common clock."""
        clock = self.clocks.get(sampled.recording_id) if sampled is not None else None
        return trace.span_ns if clock is not None and clock.shares(trace.clock) else None

    @property
    def busiest(self) -> DeviceTelemetry | None:
        """The device with the most work; None without telemetry. A run without traces shows this device."""
        return max(self.devices, key=lambda t: t.means.get("util_pct", t.means.get("gr_active_pct", 0.0)), default=None)


def load(manifest: Manifest, library: Library, traces: Sequence[RecordingRow]) -> RunTelemetry:
    """Read the run's telemetry, converted to the clock of its traces."""
    origins: dict[str, ClockOrigin] = {}
    for ref in manifest.telemetry:
        with library.open(ref.id, derived=False) as recording:
            origins[ref.id] = origin_of(recording)
    clocks = place(manifest.telemetry, origins, traces)
    marked = marked_ns(manifest, library) if manifest.telemetry else None
    sampled: list[DeviceTelemetry] = []
    host: HostLoad | None = None
    for ref in manifest.telemetry:
        with library.open(ref.id, derived=False) as recording:
            clock, from_profiler = clocks[ref.id], ref.kind == "trace"
            pids = metadata_of(recording).get("processes")
            profiles, steps = (
                ([], None) if from_profiler else (_profiles(traces, clock), marked if clock.shares("unix") else None)
            )
            for device in summarize(recording, profiles, clock, steps):
                ran = pids.get(str(device.device), ()) if isinstance(pids, dict) else ()
                sampled.append(replace(device, host=ref.host or origins[ref.id].host, profiled=from_profiler, pids=tuple(ran)))
            steady_parts = [device.steady for device in sampled if device.recording_id == ref.id]
            host = host or host_load(recording, steady_parts[0] if steady_parts else None, clock)
    if not sampled:
        return RunTelemetry((), clocks, origins, host)
    devices = trace_devices(manifest, library, traces)
    outside = [t for t in sampled if not t.profiled]
    owned = attribute(sampled, devices)
    index_of = {(t.recording_id, t.device): i for i, t in enumerate(sampled)}
    return RunTelemetry(
        tuple(sampled),
        clocks,
        origins,
        host,
        owners=tuple(SampledOwner(*key, index_of[owner.recording_id, owner.device]) for key, owner in owned.items()),
        possible=tuple(index_of[t.recording_id, t.device] for t in candidates(outside, devices)),
        unknown=unassigned_sentence(devices, outside, owned),
    )


def _profiles(traces: Iterable[RecordingRow], clock: SampleClock) -> list[tuple[int, int]]:
    """Return (first, last) times of the traces that share a clock with the telemetry."""
    return [trace.span_ns for trace in traces if clock.shares(trace.clock) and trace.span_ns is not None]


def telemetry_evidence(
    sampled: DeviceTelemetry | None, profile_ns: tuple[int, int] | None, work: StepWork
) -> StepTimeEvidence | str | None:
    """Return telemetry's step time evidence, or why there is none; None without samples of the device."""
    if sampled is None or not any(column in sampled.period_s for column in UTILIZATION):
        return None
    if sampled.profiled:
        return "The samples were taken under the profiler, so they do not show the step time without it."
    if (note := other_time_note(sampled, profile_ns)) is not None:
        return note
    by_law = by_telemetry(work, sampled)
    return (
        with_period(by_law, sampled.sawtooth, sampled.signal or "activity") if isinstance(by_law, StepTimeEvidence) else by_law
    )


def other_time_note(sampled: DeviceTelemetry | None, profile_ns: tuple[int, int] | None) -> str | None:
    """Return a note if telemetry and trace are at least SAME_TIME_NS apart; else None.

    None also if the clocks cannot be compared.
    """
    if sampled is None or profile_ns is None:
        return None
    ns_before, ns_after = profile_ns[0] - sampled.last_ns, sampled.first_ns - profile_ns[1]
    if max(ns_before, ns_after) < SAME_TIME_NS:
        return None
    relation = f"ends {_in_words(ns_before)} before" if ns_before > ns_after else f"begins {_in_words(ns_after)} after"
    return f"The telemetry {relation} the trace: it may belong to another run, so it is not used for the profiled steps."


def _in_words(ns: int) -> str:
    minutes = ns / 6e10
    if minutes < 99.5:
        number = significant(minutes, 2)
        return f"{number} minute{'' if number == '1' else 's'}"
    return f"{minutes / 60:.0f} hours" if minutes < 6000 else f"{minutes / 1440:,.0f} days"

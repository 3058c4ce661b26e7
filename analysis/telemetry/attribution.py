"""Assignment of sampled GPUs to the devices of a trace.

A trace numbers its GPUs as its process sees them, telemetry as the host does. So a device is identified by its UUID if both
recorded it. Otherwise it is the GPU on which the sampler saw the process, or the only GPU that remains. If several GPUs work and
nothing identifies one, none is assigned, because the telemetry of another rank's GPU would be misleading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.ingest.manifest import Manifest

Value = TypeVar("Value")

PID = re.compile(r"[0-9]{1,10}")
MAX_IDLE_RATIO = 0.1  # A GPU with less than this share of the busiest GPU's utilization is idle or only drives a display.


@dataclass(frozen=True)
class TraceDevice:
    """One device of a trace, and the values that identify it in telemetry."""

    recording_id: str
    device: int
    name: str | None = None
    host: str | None = None
    uuid: str | None = None
    pids: frozenset[int] = frozenset()


def process_ids(rows: Iterable[tuple[Any, ...]]) -> set[int]:
    """Return the numbers among a trace's process ids, which may also be names or contain non-ASCII digits."""
    return {int(pid) for (pid,) in rows if PID.fullmatch(str(pid))}


Key = tuple[str, int]  # Recording and device.


def trace_devices(manifest: Manifest, library: Library, traces: Iterable[RecordingRow]) -> list[TraceDevice]:
    """Return the devices of ``traces`` with GPU work."""
    marks = marked_gpus(manifest, library)
    traced = []
    for trace in traces:
        with library.open(trace.id) as recording:
            names_and_uuids = {
                int(d): (name, uuid) for d, name, uuid in recording.rows("SELECT device, name, uuid FROM devices")
            }
            devices = [int(d) for (d,) in recording.rows("SELECT DISTINCT device FROM windows ORDER BY device")]
            rows = recording.rows("SELECT DISTINCT pid FROM threads JOIN runtime_calls USING (thread_id)")
        pids = process_ids(rows)
        by_marks = marks.get(trace.rank) if len(devices) == 1 else None
        for device in devices:
            name, uuid = names_and_uuids.get(device, (None, None))
            traced.append(TraceDevice(trace.id, device, name, trace.host, uuid or by_marks, frozenset(pids)))
    return traced


def _each_marks(manifest: Manifest, library: Library, read: Callable[[Recording], Value]) -> list[tuple[int | None, Value]]:
    """Return, for each file of step marks, its rank and what ``read`` returns for its recording."""
    results = []
    for ref in manifest.recordings:
        if ref.kind == "marks":
            with library.open(ref.id, derived=False) as recording:
                results.append((ref.rank, read(recording)))
    return results


def marked_gpus(manifest: Manifest, library: Library) -> dict[int | None, str | None]:
    """Return, by rank, the UUID that the process wrote with its step marks."""
    return {rank: metadata.get("gpu") for rank, metadata in _each_marks(manifest, library, metadata_of)}


def machine_of(manifest: Manifest, library: Library) -> str | None:
    """Return what identifies the machine from its start to its next restart, from the step marks.

    None if no marks have it.
    """
    boots = (metadata.get("boot") for _, metadata in _each_marks(manifest, library, metadata_of))
    return next((boot for boot in boots if isinstance(boot, str) and boot), None)


def has_marked_gpus(manifest: Manifest, library: Library) -> bool:
    """Return whether a process wrote the UUID of its GPU with its step marks."""
    return any(marked_gpus(manifest, library).values())


def marked_ns(manifest: Manifest, library: Library) -> tuple[int, int] | None:
    """Return the times of the run's first and last step mark in Unix ns; None without marks."""
    spans = [span for _, spans in _each_marks(manifest, library, _span_of_marks) for span in spans]
    return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None


def _span_of_marks(recording: Recording) -> list[tuple[int, int]]:
    """Return the times of the first and the last step mark in ns, in a list that is empty without marks."""
    return recording.rows("SELECT min(end_ns), max(end_ns) FROM step_marks HAVING count(*) > 0")


def metadata_of(recording: Recording) -> dict[str, Any]:
    """Return the metadata of a recording's source; empty if it is damaged."""
    try:
        metadata = json.loads(recording.rows("SELECT metadata FROM recording")[0][0] or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def attribute(sampled: Sequence[DeviceTelemetry], devices: Sequence[TraceDevice]) -> dict[Key, DeviceTelemetry]:
    """Return the telemetry of each trace device for which it is known."""
    inside = {(t.recording_id, t.device): t for t in sampled if t.profiled}  # Counters in a trace belong to its own devices.
    sampled = [t for t in sampled if not t.profiled]
    owned: dict[Key, DeviceTelemetry] = {}
    for device in devices:
        matches = _by_identity(device, _possible_gpus(sampled, device))
        if matches is not None:
            owned[device.recording_id, device.device] = matches
    assigned = {(t.recording_id, t.device) for t in owned.values()}
    unassigned = [d for d in devices if (d.recording_id, d.device) not in owned]
    for device in unassigned:
        free = [t for t in _possible_gpus(sampled, device) if (t.recording_id, t.device) not in assigned]
        rivals = [d for d in unassigned if _may_share_host(d, device)]
        match = _only(device, free, rivals)
        if match is not None:
            owned[device.recording_id, device.device] = match
    return {**inside, **owned}


def unassigned_sentence(
    devices: Sequence[TraceDevice], sampled: Sequence[DeviceTelemetry], owned: Mapping[Key, DeviceTelemetry]
) -> str | None:
    """Return a sentence about devices without known telemetry; None if there are none, or no telemetry."""
    missing = sum((d.recording_id, d.device) not in owned for d in devices)
    if not missing or not sampled:
        return None
    if not candidates(sampled, devices):
        return "The telemetry is of another GPU or host than the run's traces: it may be of another job, so it is not used."
    subject = "the traced GPU" if len(devices) == 1 else f"{missing} of {len(devices)} traced GPUs"
    return (
        f"No telemetry is used for {subject}, because the traces do not say which of the {len(sampled)} sampled GPUs they are from. "
        "Traces of `sawtooth.capture` name their GPU."
    )


def candidates(sampled: Sequence[DeviceTelemetry], devices: Sequence[TraceDevice]) -> list[DeviceTelemetry]:
    """Return the sampled GPUs that may be one of the ``devices``."""
    possible = {(t.recording_id, t.device) for device in devices for t in _possible_gpus(sampled, device)}
    return [t for t in sampled if (t.recording_id, t.device) in possible]


def _by_identity(device: TraceDevice, possible: Sequence[DeviceTelemetry]) -> DeviceTelemetry | None:
    """Return the GPU with the device's UUID or process."""
    if device.uuid is not None and (
        same_uuid := [t for t in possible if t.uuid is not None and _bare(t.uuid) == _bare(device.uuid)]
    ):
        return same_uuid[0]
    ran = [t for t in possible if device.pids & set(t.pids)]
    return ran[0] if len(ran) == 1 else None


def _possible_gpus(sampled: Sequence[DeviceTelemetry], device: TraceDevice) -> list[DeviceTelemetry]:
    """Return the GPUs of the device's model on its host; those with another UUID are excluded."""
    return [
        t
        for t in sampled
        if (device.name is None or t.name is None or t.name == device.name)
        and (device.host is None or t.host is None or t.host == device.host)
        and (device.uuid is None or t.uuid is None or _bare(t.uuid) == _bare(device.uuid))
    ]


def _only(device: TraceDevice, free: Sequence[DeviceTelemetry], rivals: Sequence[TraceDevice]) -> DeviceTelemetry | None:
    """Return the GPU that remains for ``device``; None if it is not unique.

    It is the only free GPU, the one with its ordinal if the job has one GPU for each device, or the only one that works.
    """
    works = [t for t in free if _level(t) > MAX_IDLE_RATIO * max(map(_level, free))] if len(free) > 1 else free
    if len(rivals) == 1:
        return works[0] if len(works) == 1 else None
    if len({t.recording_id for t in works}) == 1 and sorted(t.device for t in works) == sorted(d.device for d in rivals):
        return next(t for t in works if t.device == device.device)
    return None


def _may_share_host(a: TraceDevice, b: TraceDevice) -> bool:
    return a.host is None or b.host is None or a.host == b.host


def _level(sampled: DeviceTelemetry) -> float:
    return sampled.means.get("util_pct", sampled.means.get("gr_active_pct", 0.0))


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")

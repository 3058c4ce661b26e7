"""Implementation of ``--replay``, which sends a recording to sinks as if it were sampled now."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.loop import RecordSink
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import decode_line, find_segments
from sawtooth.ingest.sampler.sinks import PLAIN_KEYS


class ReplayError(Exception):
    """The file cannot be replayed. The message gives the reason."""


@dataclass
class ReplayedRecording:
    """Devices and ticks of a recording. A tick is (wall-clock ns, rows in COLUMNS' order, driver buffers)."""

    gpus: list[dict[str, Any]]
    ticks: list[tuple[int, list[list[Any] | None], list[list[Any]]]] = field(default_factory=list)

    @property
    def duration_ns(self) -> int:
        """Return the time from the first to the last tick."""
        return self.ticks[-1][0] - self.ticks[0][0]


def read_recording(path: Path) -> ReplayedRecording:
    """Read a session folder or a plain JSONL file. Raises ReplayError."""
    try:
        recording = _read_session(path) if path.is_dir() else _read_plain(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ReplayError(f"{path.name} cannot be read: {error}.") from None
    if len(recording.ticks) < 2:
        raise ReplayError(f"{path.name} has no samples. --replay takes a session folder or the sampler's JSON lines.")
    return recording


def _read_session(folder: Path) -> ReplayedRecording:
    recording = ReplayedRecording([])
    columns: list[str] = []
    for segment in find_segments(folder).values():
        for line in segment.read_bytes().split(b"\n"):
            record = decode_line(line)
            if record is None:
                continue
            if record["k"] == "head":
                columns, recording.gpus = record["columns"], record["devices"]
            elif record["k"] == "tick":
                rows = [_row_in_order(row, columns) for row in record["g"]]
                recording.ticks.append((record["w"], rows, record.get("s", [])))
    return recording


def _row_in_order(row: list[Any] | None, columns: list[str]) -> list[Any] | None:
    """Return the values of a GPU's ``row`` in the order of COLUMNS; None for a lost GPU."""
    if row is None:
        return None
    return [row[columns.index(column)] if column in columns else None for column in COLUMNS]


def _read_plain(path: Path) -> ReplayedRecording:
    gpus: dict[int, dict[str, Any]] = {}
    ticks: dict[int, dict[int, list[Any]]] = {}
    meta: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # The last line is incomplete.
        if not isinstance(row, dict):
            continue
        if row.get("meta"):
            meta = row
        elif isinstance(row.get("t_ns"), int) and "event" not in row and "machine" not in row:
            device = int(row.get("gpu", 0))
            gpus.setdefault(device, _plain_gpu(device, meta, row))
            ticks.setdefault(row["t_ns"], {})[device] = [_plain_value(row, column) for column in COLUMNS]
    devices = sorted(gpus)
    recording = ReplayedRecording([gpus[device] | {"device": number} for number, device in enumerate(devices)])
    recording.ticks = [(time, [ticks[time].get(device) for device in devices], []) for time in sorted(ticks)]
    for gpu in recording.gpus:
        recorded_columns = {
            column
            for _, rows, _ in recording.ticks
            for column, value in zip(COLUMNS, rows[gpu["device"]] or (), strict=False)
            if value is not None
        }
        known, unknown = {"source": "recording", "reason": None}, {"source": None, "reason": "not in the recording"}
        gpu["capabilities"] = {column: dict(known if column in recorded_columns else unknown) for column in COLUMNS}
    return recording


def _plain_gpu(device: int, meta: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    description: dict[str, Any] = next((gpu for gpu in meta.get("gpus", []) if gpu.get("gpu") == device), {})
    name = description.get("name") or meta.get("name") or "GPU"
    return {
        "device": device,
        "uuid": description.get("uuid") or f"replay-{device}",
        "name": name,
        "memory_bytes": row.get("mem_total"),
    }


_KEYS_BY_COLUMN = {column: (key, factor) for key, (column, factor) in PLAIN_KEYS.items()}


def _plain_value(row: dict[str, Any], column: str) -> Any:
    key, factor = _KEYS_BY_COLUMN[column]
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # Only NaN differs from itself.
        return None
    return value * factor


def _copied_gpus(recording: ReplayedRecording, copies: int) -> list[dict[str, Any]]:
    count = len(recording.gpus)
    return [
        gpu | {"device": copy * count + gpu["device"], "uuid": gpu["uuid"] + (f"-copy{copy}" if copy else "")}
        for copy in range(copies)
        for gpu in recording.gpus
    ]


class Replay:
    """Plays a recording at ``speed`` times the recorded speed. Distances between timestamps do not change."""

    def __init__(
        self,
        recording: ReplayedRecording,
        sinks: list[RecordSink],
        *,
        clock: SamplerClock,
        stop: threading.Event,
        speed: float = 1.0,
        copies: int = 1,
    ) -> None:
        self.recording = recording
        self.sinks = sinks
        self.clock = clock
        self.stop = stop
        self.speed = speed
        self.copies = copies

    def run(self, *, loop: bool = False, seconds: float | None = None) -> str:
        """Play the recording once, or repeatedly with ``loop``; return the reason for the end."""
        started = self.clock.monotonic_ns()
        # If the replay is faster than the recording, the timestamps begin in the past, so that no timestamp is in the future.
        lead_ns = int(self.recording.duration_ns * (1 - 1 / self.speed)) if not loop else 0
        wall_start_ns = self.clock.wall_ns() - lead_ns
        for sink in self.sinks:
            sink.devices(_copied_gpus(self.recording, self.copies), started, wall_start_ns)
        reason = "end of the recording"
        for offset, record in self._records(loop, wall_start_ns, started):
            while (
                not self.stop.is_set() and (remaining_ns := started + int(offset / self.speed) - self.clock.monotonic_ns()) > 0
            ):
                self.clock.wait(self.stop, remaining_ns / 1e9)
            if self.stop.is_set() or (seconds is not None and self.clock.monotonic_ns() - started >= seconds * 1e9):
                reason = "stopped" if self.stop.is_set() else "time"
                break
            for sink in self.sinks:
                sink.write(record)
        monotonic_ns, wall_ns = self.clock.monotonic_ns(), self.clock.wall_ns()
        for sink in self.sinks:
            sink.write({"k": "end", "m": monotonic_ns, "w": wall_ns, "reason": reason})
            sink.close()
        return reason

    def _records(self, loop: bool, wall_start_ns: int, monotonic_start_ns: int) -> Iterator[tuple[int, dict[str, Any]]]:
        first, base = self.recording.ticks[0][0], 0
        count = len(self.recording.gpus)
        period = self.recording.duration_ns // (len(self.recording.ticks) - 1)
        while True:
            for wall_ns, rows, series in self.recording.ticks:
                offset = base + wall_ns - first
                record: dict[str, Any] = {
                    "k": "tick",
                    "m": monotonic_start_ns + offset,
                    "w": wall_start_ns + offset,
                    "g": rows * self.copies,
                }
                if series:
                    shift = (wall_start_ns + offset - wall_ns) // 1000
                    record["s"] = [
                        [copy * count + device, column, [time + shift for time in times], values]
                        for copy in range(self.copies)
                        for device, column, times, values in series
                    ]
                yield offset, record
            if not loop:
                return
            base += self.recording.duration_ns + period

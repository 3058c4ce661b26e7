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
from sawtooth.ingest.sampler.segments import decode_line, segments_of
from sawtooth.ingest.sampler.sinks import PLAIN_KEYS


class ReplayError(Exception):
    """The file is not a recording; the message says why."""


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
    for segment in segments_of(folder).values():
        for line in segment.read_bytes().split(b"\n"):
            record = decode_line(line)
            if record is None:
                continue
            if record["k"] == "head":
                columns, recording.gpus = record["columns"], record["devices"]
            elif record["k"] == "tick":
                place = [columns.index(c) if c in columns else None for c in COLUMNS]
                rows = [None if row is None else [None if i is None else row[i] for i in place] for row in record["g"]]
                recording.ticks.append((record["w"], rows, record.get("s", [])))
    return recording


def _read_plain(path: Path) -> ReplayedRecording:
    gpus: dict[int, dict[str, Any]] = {}
    ticks: dict[int, dict[int, list[Any]]] = {}
    meta: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # an incomplete last line
        if not isinstance(row, dict):
            continue
        if row.get("meta"):
            meta = row
        elif isinstance(row.get("t_ns"), int) and "event" not in row and "machine" not in row:
            device = int(row.get("gpu", 0))
            gpus.setdefault(device, _plain_gpu(device, meta, row))
            ticks.setdefault(row["t_ns"], {})[device] = [_plain_value(row, column) for column in COLUMNS]
    order = sorted(gpus)
    recording = ReplayedRecording([gpus[d] | {"device": i} for i, d in enumerate(order)])
    recording.ticks = [(t, [ticks[t].get(d) for d in order], []) for t in sorted(ticks)]
    for gpu in recording.gpus:
        seen = {
            c
            for _, rows, _ in recording.ticks
            for c, v in zip(COLUMNS, rows[gpu["device"]] or (), strict=False)
            if v is not None
        }
        gpu["capabilities"] = {
            c: {"source": "recording", "reason": None} if c in seen else {"source": None, "reason": "not in the recording"}
            for c in COLUMNS
        }
    return recording


def _plain_gpu(device: int, meta: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = next((g for g in meta.get("gpus", []) if g.get("gpu") == device), {})
    name = named.get("name") or meta.get("name") or "GPU"
    return {
        "device": device,
        "uuid": named.get("uuid") or f"replay-{device}",
        "name": name,
        "memory_bytes": row.get("mem_total"),
    }


_KEY_OF = {column: (key, factor) for key, (column, factor) in PLAIN_KEYS.items()}


def _plain_value(row: dict[str, Any], column: str) -> Any:
    key, factor = _KEY_OF[column]
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN
        return None
    return value * factor


def _copied_gpus(recording: ReplayedRecording, copies: int) -> list[dict[str, Any]]:
    n = len(recording.gpus)
    return [
        g | {"device": k * n + g["device"], "uuid": g["uuid"] + (f"-copy{k}" if k else "")}
        for k in range(copies)
        for g in recording.gpus
    ]


class Replay:
    """Plays a recording at ``speed`` times its recorded speed; timestamps keep their recorded distances."""

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
        """Play the recording once, or repeatedly with ``loop``; return why the replay ended."""
        started = self.clock.monotonic_ns()
        # If the replay is faster than the recording, its timestamps begin in the past and end now, so that no timestamp is in the future.
        ahead = int(self.recording.duration_ns * (1 - 1 / self.speed)) if not loop else 0
        w0 = self.clock.wall_ns() - ahead
        for sink in self.sinks:
            sink.devices(_copied_gpus(self.recording, self.copies), started, w0)
        reason = "end of the recording"
        for offset, record in self._records(loop, w0, started):
            while not self.stop.is_set() and (early := started + int(offset / self.speed) - self.clock.monotonic_ns()) > 0:
                self.clock.wait(self.stop, early / 1e9)
            if self.stop.is_set() or (seconds is not None and self.clock.monotonic_ns() - started >= seconds * 1e9):
                reason = "stopped" if self.stop.is_set() else "time"
                break
            for sink in self.sinks:
                sink.write(record)
        m, w = self.clock.monotonic_ns(), self.clock.wall_ns()
        for sink in self.sinks:
            sink.write({"k": "end", "m": m, "w": w, "reason": reason})
            sink.close()
        return reason

    def _records(self, loop: bool, w0: int, m0: int) -> Iterator[tuple[int, dict[str, Any]]]:
        first, base = self.recording.ticks[0][0], 0
        count = len(self.recording.gpus)
        period = self.recording.duration_ns // (len(self.recording.ticks) - 1)
        while True:
            for w, rows, series in self.recording.ticks:
                offset = base + w - first
                record: dict[str, Any] = {"k": "tick", "m": m0 + offset, "w": w0 + offset, "g": rows * self.copies}
                if series:
                    shift = (w0 + offset - w) // 1000
                    record["s"] = [
                        [k * count + device, column, [t + shift for t in times], values]
                        for k in range(self.copies)
                        for device, column, times, values in series
                    ]
                yield offset, record
            if not loop:
                return
            base += self.recording.duration_ns + period

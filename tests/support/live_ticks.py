"""Live sessions of ticks, as the sampler writes them and as unknown clients push them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import SegmentWriter

START = 1_800_000_000_000_000_000
STEP = 100_000_000


def write_ticks(
    folder: Path, values: list[float], *, gpus: int = 1, writer: SegmentWriter | None = None, at: int = 0, end: bool = False
):
    """Write ticks whose GPU activity is ``values``; other columns are constants."""
    devices = [{"device": d, "name": "NVIDIA H200", "uuid": f"GPU-{d}", "memory_bytes": 100e9} for d in range(gpus)]
    meta = {"v": 1, "session": folder.name, "host": "node7", "started_m": 0, "started_w": START, "interval_ns": STEP}
    writer = writer or SegmentWriter(folder, {**meta, "columns": list(COLUMNS), "devices": devices, "name": "my job", "pid": 1})
    for i, value in enumerate(values, start=at):
        values_of_tick = {"gr_active_pct": value, "power_w": 100 + value, "clock_sm_mhz": 1980, "mem_used_bytes": 40e9}
        row = [values_of_tick.get(column) for column in COLUMNS]
        m = i * STEP
        writer.write({"k": "tick", "m": m, "w": START + m, "g": [row] * gpus})
    if end:
        writer.write({"k": "end", "m": (at + len(values)) * STEP, "w": START, "reason": "time"})
    writer.sync(0)
    return writer


def starved(samples: int, period: int = 10, busy: int = 2) -> list[float]:
    """Return a GPU that works ``busy`` of each ``period`` samples."""
    return [100.0 if i % period < busy else 0.0 for i in range(samples)]


def pushed(folder: Path, meta: dict[str, object], records: list[dict[str, object]]) -> None:
    """Write a session as an unknown client with the push token can, with NaN values."""
    folder.mkdir(parents=True)
    (folder / "push.json").write_text("{}")
    complete_meta = {
        "started_m": 0,
        "started_w": START,
        "columns": ["util_pct", "power_w"],
        "devices": [{"device": 0, "name": "G"}],
        **meta,
    }
    (folder / "meta.json").write_text(json.dumps(complete_meta))
    bodies = [json.dumps(record).encode()[:-1] for record in records]
    lines = [b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body)) for body in bodies]
    (folder / "samples-0001.jsonl").write_bytes(b"".join(lines))

"""Sinks for records: a session folder, or a plain JSONL file."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.sampler import FORMAT_VERSION
from sawtooth.ingest.sampler.clock import boot_id
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import SegmentWriter
from sawtooth.installation import default_data_folder, recorder_version

DISK_RETRY_NS = 10 * 10**9  # Time between attempts to begin a new segment after a full disk. The sampler continues meanwhile.

# The column and the factor to the column's unit, by key of plain lines. PCIe and NVLink are in MiB/s, as GPM reports them.
PLAIN_KEYS = {key: (column, factor) for key, (column, factor) in names_in("nvml_jsonl").items() if column in COLUMNS}


def default_folder() -> Path:
    """Return the default folder for sessions, which is live/ in the data folder."""
    return default_data_folder() / "live"


def new_session_id(wall_ns: int, host: str | None = None) -> str:
    """Return a new session id, such as ``20261121T050405Z-node7-a1b2c3d4e5f60718``.

    Without the random part, the id could be guessed from the host and the time.
    """
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_ns / 1e9))
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in (host or socket.gethostname()))[:40].strip("-")
    return f"{when}-{name or 'host'}-{secrets.token_hex(8)}"


class SessionSink:
    """Writes a session folder under ``parent``.

    If the disk is full, samples are lost, but the sampler continues. The sink records the gap once the disk has space again.
    """

    def __init__(
        self, parent: Path, interval_s: float, announce: Callable[[Path], None] = lambda _: None, **facts: Any
    ) -> None:
        self.parent = parent
        self.announce = announce
        self.interval_ns = int(interval_s * 1e9)
        self.facts = facts
        self.writer: SegmentWriter | None = None
        self._failed_at_ns: int | None = None
        self._retry_at_ns = 0

    @property
    def folder(self) -> Path | None:
        """The session's folder, once the devices are known."""
        return self.writer.folder if self.writer else None

    def devices(self, gpus: list[dict[str, Any]], monotonic_ns: int, wall_ns: int) -> None:
        """Begin the session, or a new segment if the devices have changed."""
        if self.writer is not None:
            self.writer.meta |= {"devices": gpus}  # The next segment has these devices, even if a full disk delays the segment.
            try:
                self.writer.start_segment(monotonic_ns, wall_ns)
            except OSError:
                self._fail(monotonic_ns)
            return
        session = new_session_id(wall_ns)
        meta = {
            "v": FORMAT_VERSION,
            "session": session,
            "host": socket.gethostname(),
            "boot": boot_id(),
            "pid": os.getpid(),
            "started_m": monotonic_ns,
            "started_w": wall_ns,
            "interval_ns": self.interval_ns,
            "columns": list(COLUMNS),
            "devices": gpus,
            **self.facts,
        }
        self.writer = SegmentWriter(self.parent / session, meta)
        self.announce(self.writer.folder)

    def write(self, record: dict[str, Any]) -> None:
        """Append a record."""
        assert self.writer is not None
        monotonic_ns = int(record["m"])
        if self._failed_at_ns is not None and monotonic_ns < self._retry_at_ns:
            return
        try:
            if self._failed_at_ns is not None:
                self.writer.start_segment(monotonic_ns, int(record["w"]))
                gap = {"e": "gap", "from_m": self._failed_at_ns, "to_m": monotonic_ns, "reason": "the disk was full"}
                self.writer.write({"k": "event", "m": monotonic_ns, "w": record["w"], **gap})
                self._failed_at_ns = None
            self.writer.write(record)
        except OSError:
            self._fail(monotonic_ns)

    def _fail(self, monotonic_ns: int) -> None:
        if self._failed_at_ns is None:
            self._failed_at_ns = monotonic_ns
        self._retry_at_ns = monotonic_ns + DISK_RETRY_NS

    def close(self) -> None:
        """Sync and close."""
        if self.writer is not None:
            try:
                self.writer.close()
            except OSError:
                return


class PlainSink:
    """Writes JSON lines for scripts: about the devices, per GPU and tick, and per event.

    Missing values are left out.
    """

    def __init__(self, open_file: Callable[[], BinaryIO], interval_s: float, driver_version: str | None = None) -> None:
        self._open_file = open_file
        self._file: BinaryIO | None = None
        self._interval_s = interval_s
        self.driver_version = driver_version
        self._gpus: list[dict[str, Any]] = []

    def devices(self, gpus: list[dict[str, Any]], monotonic_ns: int, wall_ns: int) -> None:
        """Write the line about the devices."""
        self._gpus = gpus
        self._file = self._file or self._open_file()
        first = gpus[0]
        self._line(
            {
                "meta": True,
                "name": first["name"],
                "driver": self.driver_version,
                "gpm": first["capabilities"]["sm_active_pct"]["source"] is not None,
                "hz": round(1 / self._interval_s, 3),
                "gpus": [
                    {"gpu": g["device"], "uuid": g["uuid"], "name": g["name"]}
                    | ({"power_limit_w": g["power_limit_w"]} if g.get("power_limit_w") else {})
                    for g in gpus
                ],
                "host": socket.gethostname(),
                "recorder": recorder_version(),
            }
        )

    def write(self, record: dict[str, Any]) -> None:
        """Write the lines of a tick without driver buffers, or an event as a line with the key ``event``."""
        if record["k"] != "tick":
            if record["k"] == "event" and record["e"] not in ("overhead", "capability"):
                self._line(
                    {
                        "event": record["e"],
                        "t_ns": record["w"],
                        **{k: record[k] for k in ("device", "code", "reason") if k in record},
                    }
                )
            return
        index = {column: i for i, column in enumerate(COLUMNS)}
        for device, row in enumerate(record["g"]):
            if row is None:
                continue
            line: dict[str, Any] = {"t_ns": record["w"], "gpu": device, "mem_total": self._gpus[device].get("memory_bytes")}
            for key, (column, factor) in PLAIN_KEYS.items():
                if (value := row[index[column]]) is not None:
                    line[key] = value if factor == 1 else value / factor
            self._line(line)
        if "h" in record:
            self._line({"t_ns": record["w"], "machine": record["h"]})
        self._flush()

    def close(self) -> None:
        """Flush and close."""
        if self._file is not None:
            self._flush()
            self._file.close()

    def _line(self, record: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")

    def _flush(self) -> None:
        assert self._file is not None
        self._file.flush()

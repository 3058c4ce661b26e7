"""Telemetry: a registry of readers, and what every format needs done once (clock order, gaps, storing)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.decode import I64, NULL
from ingest.errors import SourceError
from ingest.source import Source
from ingest.store import Writer

GAP_PERIODS = 3  # a pause of more than three periods is a hole, as sample_gaps says
READ_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    csv.Error,
)  # of readers given nonsense
INTEGER_COLUMNS = ("device", "time_ns", "mem_used_bytes", "mem_total_bytes", "clock_event_mask")


@dataclass
class Telemetry:
    """What a reader returns.

    ``columns`` holds equally long arrays by the names of table ``samples``: int64 with NULL (ingest.decode.NULL) for
    INTEGER_COLUMNS, else float64 with NaN, for what was not recorded; ``device`` and ``time_ns`` are required. ``devices``
    are rows of table ``devices``; ``diagnostics`` rows of that table; ``gaps`` rows of ``sample_gaps`` the source names itself.
    """

    columns: dict[str, NDArray[Any]]
    devices: list[dict[str, Any]] = field(default_factory=list)
    host: str | None = None
    metadata: str = "{}"
    truncated: bool = False
    clock: str = "unix"
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    gaps_complete: bool = False  # the reader found every hole itself: rows of several rates hide or feign them


@dataclass(frozen=True)
class Reader:
    """One telemetry format. ``sniff`` looks at the first uncompressed bytes; ``read`` gets the lines of the whole source."""

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Iterator[bytes]], Telemetry]


def readers() -> list[Reader]:
    """Return every reader; a new format is a module under ``ingest.formats`` and its line here."""
    from ingest.formats import (
        dcgmi_dmon,
        nvidia_smi_csv,
        nvidia_smi_dmon,
        nvml_jsonl,
        prometheus_json,
        sampler_session,
        wandb_events,
    )

    return [
        sampler_session.READER,
        nvml_jsonl.READER,
        nvidia_smi_dmon.READER,
        dcgmi_dmon.READER,
        nvidia_smi_csv.READER,
        prometheus_json.READER,
        wandb_events.READER,
    ]


def reader_for(head: bytes) -> Reader | None:
    """Return the reader that knows ``head``, None where it is no telemetry."""
    return next((reader for reader in readers() if reader.sniff(head)), None)


def lines(source: Source) -> Iterator[bytes]:
    """Yield the lines of ``source`` without their ends."""
    rest = b""
    for piece in source.pieces():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
        if len(rest) > source.limits.event_bytes:
            raise SourceError(
                "E-TOKEN", f"A line is longer than {source.limits.event_bytes >> 20} MB; no telemetry has such lines."
            )
    if rest:
        yield rest


def store(reader: Reader, source: Source, writer: Writer, about: dict[str, Any]) -> dict[str, Any]:
    """Read ``source``, write its tables, return the recording row. Raises SourceError where it holds no sample."""
    try:
        found = reader.read(lines(source))
    except READ_ERRORS as error:
        raise SourceError(
            "E-JSON", f"This begins like {reader.name} but goes on as something else ({error}). Record or copy it again."
        ) from error
    columns = found.columns
    if not columns or not len(columns["time_ns"]):
        raise SourceError(
            "E-NOEV", f"This {reader.name} file holds no samples. Let the sampler run for a while and give the file again."
        )
    order = np.lexsort((columns["time_ns"], columns["device"]))
    columns = {name: values[order] for name, values in columns.items()}
    same = (np.diff(columns["device"]) == 0) & (np.diff(columns["time_ns"]) == 0)
    if same.any():  # delivered twice
        keep = np.concatenate([[True], ~same])
        columns = {name: values[keep] for name, values in columns.items()}
        found.diagnostics.append(
            {
                "key": "samples_twice",
                "severity": "info",
                "sentence": "Samples with the same device and time were kept once.",
                "count": int(same.sum()),
            }
        )
    writer.insert("samples", columns)
    for device in found.devices:
        writer.insert_row("devices", device)
    inferred = [] if found.gaps_complete else _gaps(columns["device"], columns["time_ns"])
    for gap in [*inferred, *found.gaps]:
        writer.insert_row("sample_gaps", gap)
    for row in found.diagnostics:
        writer.insert_row("diagnostics", row)
    for key in source.damage:
        writer.insert_row(
            "diagnostics",
            {
                "key": key,
                "severity": "data_loss",
                "sentence": "The gzip file is damaged; what could be read is here.",
                "count": 1,
            },
        )
    return {
        **about,
        "kind": "telemetry",
        "event_count": len(columns["time_ns"]),
        "clock": found.clock,
        "first_ns": int(columns["time_ns"].min()),
        "last_ns": int(columns["time_ns"].max()),
        "truncated": found.truncated or bool(source.damage),
        "host": found.host,
        "driver_version": next((d["driver"] for d in found.devices if d.get("driver")), None),
        "vendor": vendor_of(found.devices),
        "metadata": found.metadata,
    }


def vendor_of(devices: list[dict[str, Any]]) -> str | None:
    """Return the maker of the devices where a name tells."""
    names = " ".join(str(d.get("name") or "") for d in devices).lower()
    makers = {"nvidia": "nvidia", "tesla": "nvidia", "geforce": "nvidia", "amd": "amd", "instinct": "amd", "intel": "intel"}
    return next((maker for sign, maker in makers.items() if sign in names), None)


def _gaps(device: I64, time_ns: I64) -> Iterator[dict[str, Any]]:
    """Yield the holes of samples that are ordered by (device, time)."""
    for number in np.unique(device):
        times = time_ns[device == number]
        steps = np.diff(times)
        if len(steps) < 2:
            continue
        for i in np.flatnonzero(steps > GAP_PERIODS * np.median(steps)):
            yield {"device": int(number), "start_ns": int(times[i]), "end_ns": int(times[i + 1]), "reason": None}


def column(values: list[Any], name: str) -> NDArray[Any]:
    """Return ``values`` (numbers or None) as the array that column ``name`` needs."""
    if name in INTEGER_COLUMNS:
        return np.array([NULL if v is None or abs(v) >= 1 << 63 else round(v) for v in values], np.int64)
    return np.array([np.nan if v is None else v for v in values], np.float64)

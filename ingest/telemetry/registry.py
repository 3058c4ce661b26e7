"""The registry of telemetry readers, and the steps that all formats share: sorting, gaps, storing."""

from __future__ import annotations

import csv
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from sawtooth.ingest.decode import I64
from sawtooth.ingest.errors import ImportDiagnostic, SourceError, as_shown
from sawtooth.ingest.source import Source
from sawtooth.ingest.telemetry.encoding import as_utf8, decode_pieces, find_encoding
from sawtooth.ingest.telemetry.formats import (
    dcgmi_dmon,
    gpustat_json,
    gpustat_text,
    jtop_csv,
    long_csv,
    mlflow_metrics,
    nvidia_smi_csv,
    nvidia_smi_dmon,
    nvidia_smi_query,
    nvidia_smi_tables,
    nvml_jsonl,
    prometheus_json,
    prometheus_text,
    rocm_json,
    rocm_smi_tables,
    sampler_session,
    spaced_tables,
    table_csv,
    tegrastats,
    wandb_events,
)
from sawtooth.ingest.telemetry.line_prefix import find_prefix, prefix_end, reader_without_prefix
from sawtooth.ingest.telemetry.reader import Reader, SampleGap, TelemetryTables
from sawtooth.ingest.telemetry.table import find_gaps
from sawtooth.ingest.writer import Writer

# Readers raise these errors if the content is invalid.
READ_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, csv.Error)


def readers() -> list[Reader]:
    """Return every reader.

    A new format is a module in ``sawtooth.ingest.telemetry.formats`` and one line here.
    """
    return [
        sampler_session.READER,
        nvml_jsonl.READER,
        nvidia_smi_dmon.READER,
        nvidia_smi_tables.READER,
        nvidia_smi_query.READER,
        gpustat_text.READER,
        rocm_smi_tables.READER,
        dcgmi_dmon.READER,
        nvidia_smi_csv.READER,
        prometheus_json.READER,
        mlflow_metrics.READER,
        wandb_events.READER,
        gpustat_json.READER,
        rocm_json.READER,
        tegrastats.READER,
        prometheus_text.READER,
        jtop_csv.READER,
        spaced_tables.READER,
        table_csv.READER,
        long_csv.READER,
    ]


def reader_for(head: bytes) -> Reader | None:
    """Return the reader that recognizes ``head``, without a log collector's prefix; None for other files."""
    text = as_utf8(head)
    prefix = find_prefix(text)
    if prefix is not None and not spaced_tables.sniff(text):  # The reader of these tables uses the time before each line.
        bare = b"\n".join(line[prefix_end(prefix, line) :] for line in text.split(b"\n"))
        if (reader := _find_reader(bare)) is not None:
            return reader_without_prefix(reader, prefix)
    return _find_reader(text)


def _find_reader(text: bytes) -> Reader | None:
    return next((reader for reader in readers() if reader.sniff(text)), None)


def lines(source: Source) -> Generator[bytes]:
    """Yield the lines of ``source`` without their ends.

    Close the generator if it is not read to its end.
    """
    rest, encoding = b"", find_encoding(source.head())
    with closing(source.pieces()) as pieces:
        for piece in decode_pieces(pieces, encoding):
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r")
            if len(rest) > source.limits.event_bytes:
                raise SourceError(
                    "E-TOKEN",
                    f"A line is longer than {source.limits.event_bytes >> 20} MB, so the file is damaged or not telemetry. Copy or record it again.",
                )
    if rest:
        yield rest


def _without_duplicates(columns: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Return samples sorted by device and time without duplicates, and the number of duplicates."""
    order = np.lexsort((columns["time_ns"], columns["device"]))
    columns = {name: values[order] for name, values in columns.items()}
    same = (np.diff(columns["device"]) == 0) & (np.diff(columns["time_ns"]) == 0)
    if same.any():
        keep = np.concatenate([[True], ~same])
        columns = {name: values[keep] for name, values in columns.items()}
    return columns, int(same.sum())


def store(reader: Reader, source: Source, writer: Writer, recording: dict[str, Any]) -> dict[str, Any]:
    """Read ``source``, write its tables, and return the row ``recording`` with telemetry's columns added.

    Raises SourceError if ``source`` has no sample.
    """
    try:
        with closing(lines(source)) as text:
            telemetry = reader.read(text)
    except READ_ERRORS as error:
        raise SourceError(
            "E-JSON", f"This file begins like {reader.name}, but its content is invalid ({error}). Record or copy it again."
        ) from error
    columns = telemetry.columns
    times = columns["time_ns"] if columns else np.empty(0, np.int64)
    if not len(times) and telemetry.host_columns:  # The host has no GPU.
        times = telemetry.host_columns["time_ns"]
    if not len(times):
        raise SourceError("E-NOEV", _no_samples_message(reader, telemetry))
    columns, duplicates = _without_duplicates(columns)
    if duplicates:
        telemetry.diagnostics.append(
            ImportDiagnostic(
                "samples_twice", "info", "Of samples with the same device and time, only the first was stored.", duplicates
            )
        )
    writer.insert("samples", columns)
    writer.insert("host_samples", telemetry.host_columns)
    for device in telemetry.devices:
        writer.insert_row("devices", device)
    inferred = [] if telemetry.gaps_complete else _gaps(columns["device"], columns["time_ns"])
    for gap in [*inferred, *telemetry.gaps]:
        writer.insert_row("sample_gaps", gap._asdict())
    damage = [
        ImportDiagnostic(key, "data_loss", "The gzip file is damaged. The part before the damage was read.")
        for key in source.damage
    ]
    for row in [*telemetry.diagnostics, *damage]:
        writer.insert_row("diagnostics", vars(row))
    return {
        **recording,
        "kind": "telemetry",
        "event_count": len(times),
        "clock": telemetry.clock,
        "first_ns": int(times.min()),
        "last_ns": int(times.max()),
        "truncated": telemetry.truncated or bool(source.damage),
        "host": telemetry.host,
        "driver_version": next((d["driver"] for d in telemetry.devices if d.get("driver")), None),
        "vendor": vendor_of(telemetry.devices),
        "metadata": telemetry.metadata,
    }


def _no_samples_message(reader: Reader, telemetry: TelemetryTables) -> str:
    """Return the error message for a file without rows, or without a row with a usable value."""
    unusable = next(
        (d for d in telemetry.diagnostics if d.key in ("line_unreadable", "blank_value", "instances_left_out")), None
    )
    if unusable is None:
        return f"This {reader.name} file has no samples. Record for a longer time, and give the new file."
    example = f" The first is {as_shown(unusable.example)}." if unusable.example else ""
    return (
        f"This {reader.name} file has {unusable.count:,} rows, but none has a usable value.{example} "
        "Record it again with utilization, power, clocks and temperature."
    )


def vendor_of(devices: list[dict[str, Any]]) -> str | None:
    """Return the manufacturer of the devices, from their names; None if unknown."""
    names = " ".join(str(d.get("name") or "") for d in devices).lower()
    makers = {"nvidia": "nvidia", "tesla": "nvidia", "geforce": "nvidia", "amd": "amd", "instinct": "amd", "intel": "intel"}
    return next((maker for sign, maker in makers.items() if sign in names), None)


def _gaps(device: I64, time_ns: I64) -> Iterator[SampleGap]:
    """Yield the telemetry gaps of samples that are sorted by (device, time)."""
    for number in np.unique(device):
        for start, end in find_gaps(time_ns[device == number]):
            yield SampleGap(int(number), start, end)

"""``nvidia-smi --query-gpu=… --format=csv``: any columns in any order, with or without units."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.telemetry.delimited import read_delimited
from sawtooth.ingest.telemetry.find_header import find_header, text_of
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables

NAME = "nvidia-smi CSV"


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines is a header with a field of nvidia-smi."""
    header, _ = find_header(text_of(iter(head.split(b"\n"))))
    return header is not None and header.by_nvidia_smi


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows.

    Raises SourceError if there is no timestamp column.
    """
    telemetry = read_delimited(lines, NAME)
    if "assumed_interval_ns" in json.loads(telemetry.metadata):  # The file has no times.
        sentence = "This nvidia-smi log has no timestamp column. Record it with nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1."
        raise SourceError("E-TYPE", sentence)
    return telemetry


READER = Reader(NAME, sniff, read)

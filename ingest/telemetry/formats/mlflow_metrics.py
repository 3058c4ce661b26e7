"""System metrics of MLflow (``system/gpu_0_utilization_percentage``), as JSON of the metrics' history.

The file is JSON lines, a list, or the response of ``metrics/get-history``. Each record has key, value and timestamp (ms since
1970). MLflow samples every 10 s by default. Its megabytes are 10^6 bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.values import finite_number

FIELDS = names_in("mlflow")  # The column and the factor, by the text after ``gpu_<i>_``.
_KEY = re.compile(r"(?:system/)?gpu_(\d{1,4})_(\w+)")
_SIGNATURE = re.compile(rb'"key"\s*:\s*"system/')


def sniff(head: bytes) -> bool:
    """Return whether the head has records of MLflow's system metrics."""
    return (
        head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
        and _SIGNATURE.search(head) is not None
        and b"traceEvents" not in head
    )


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the records. Raises SourceError if none has a metric of a GPU."""
    table = SampleTable()
    for record in _records(lines, table):
        match = _KEY.fullmatch(str(record.get("key")))
        value, time_ms = finite_number(record.get("value")), finite_number(record.get("timestamp"))
        if match is None or match.group(2) not in FIELDS:
            continue
        if value is None or time_ms is None:
            table.note("line_unreadable", "data_loss", "Records without a value or a time were left out.")
            continue
        column, factor = FIELDS[match.group(2)]
        device = int(match.group(1))
        table.devices.setdefault(device, {})
        table.add(device, round(time_ms * 1000) * 1000, {column: value * factor})
    if table.is_empty():
        raise SourceError(
            "E-NOEV",
            "The export has no GPU metrics (system/gpu_0_utilization_percentage). Install nvidia-ml-py in the training's environment.",
        )
    return table.telemetry()


def _records(lines: Iterator[bytes], table: SampleTable) -> Iterator[dict[str, Any]]:
    """Yield the records of a file that is one JSON text, or JSON lines."""
    text = [line.decode("utf-8", errors="replace").lstrip("\ufeff") for line in lines]
    try:
        yield from _records_in(json.loads("\n".join(text)))
        return
    except (ValueError, RecursionError):
        pass
    for line in text:
        if not line.strip():
            continue
        try:
            yield from _records_in(json.loads(line))
        except (ValueError, RecursionError):
            table.note("line_unreadable", "data_loss", "Lines that are not whole records were left out.", example=line)


def _records_in(content: Any) -> Iterator[dict[str, Any]]:
    entries: Iterable[Any] = content if isinstance(content, list) else [content]
    for entry in entries:
        if isinstance(entry, dict):
            history = entry.get("metrics")
            if isinstance(history, list):
                yield from (record for record in history if isinstance(record, dict))
            else:
                yield entry


READER = Reader("MLflow system metrics", sniff, read)

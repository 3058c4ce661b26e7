"""System metrics of Weights & Biases: ``run.history(stream="events")`` as CSV, JSON or JSON lines.

By default, W&B samples every 15 s, and ``history`` reduces the rows to 500 unless ``samples`` is larger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.quantities.quantity import RATIO
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.values import cells, finite_number

FIELDS = names_in("wandb")  # The column and the factor, by the text after ``gpu.<i>.``.
_KEY = re.compile(r"(?:^|.* - )(?:system[./])?gpu\.(?:process\.)?(\d+)\.(\w+)(?:/l:.*)?$")
_SIGNATURE = re.compile(rb'(?:^|[",{\[ /.-])(?:system[./])?gpu\.(?:process\.)?\d+\.\w+')
TIME_KEYS = ("_timestamp", "timestamp")
RELATIVE_KEYS = ("_runtime", "Relative Time (Process)", "Relative Time (Wall)")
THINNED_ROWS = 500  # History() returns at most this many rows by default.
MAX_RATIO = 1.5  # Larger values are percentages. Ratios exceed 1 only by rounding.


def sniff(head: bytes) -> bool:
    """Return whether the header or first record has ``gpu.<i>.<metric>`` columns."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    part = first.split(b"\n", 1)[0] if not first.startswith((b"{", b"[")) else first[:8192]
    return _SIGNATURE.search(part) is not None and b'"traceEvents"' not in head


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the records.

    Values of ``gpu.process`` are used only if the GPU's own values are missing.
    """
    table, shares = SampleTable(), _Shares()
    count = 0
    for record in _records(lines, table):
        count += 1
        if count == 1 and len(runs := sorted({key.rpartition(" - ")[0] for key in record if _KEY.match(key)})) > 1:
            names = " and ".join(as_shown(run) for run in runs[:2])
            raise SourceError(
                "E-TYPE", f"The export has columns of {len(runs)} runs ({names}), each with its own GPUs. Export one run."
            )
        time_ns = _time(record, table)
        if time_ns is None:
            table.note("line_unreadable", "data_loss", "Records without a time were left out.")
            continue
        for process in (False, True):
            for key, value in record.items():
                match = _KEY.match(key)
                if match and ("gpu.process." in key) is process:
                    _add(
                        table=table,
                        shares=shares,
                        device=int(match.group(1)),
                        time_ns=time_ns,
                        name=match.group(2),
                        value=value,
                    )
    shares.add_to(table)
    if count == THINNED_ROWS:
        note = "The export has exactly 500 rows, so history() has probably left rows out. Export with run.history(stream='events', samples=100000)."
        table.note("thinned", "data_loss", note)
    if table.is_empty():
        raise SourceError(
            "E-NOEV", "The export has no GPU metrics (system.gpu.0.gpu and the like). Export with stream='events'."
        )
    return table.telemetry()


class _Shares:
    """Activities of DCGM and GPM. W&B's version decides whether they are ratios or percentages.

    The values are ratios if the largest value is at most MAX_RATIO.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, float]] = []

    def add_to(self, table: SampleTable) -> None:
        largest = max((row[3] for row in self.rows), default=0.0)
        factor = RATIO if largest <= MAX_RATIO else 1
        for device, time_ns, column, value in self.rows:
            table.add(device, time_ns, {column: value * factor})
        if self.rows:
            unit = "ratios from 0 to 1" if factor == RATIO else "percent"
            table.note(
                "scale_inferred",
                "info",
                f"SM, tensor and DRAM activity were read as {unit}, because their largest value is {largest:g}.",
            )


def _add(table: SampleTable, shares: _Shares, device: int, time_ns: int, name: str, value: Any) -> None:
    number = finite_number(value)
    if number is None or name not in FIELDS:
        return
    column, factor = FIELDS[name]
    table.devices.setdefault(device, {})
    if factor == RATIO:
        shares.rows.append((device, time_ns, column, number))
    else:
        table.add(device, time_ns, {column: number * factor})


def _records(lines: Iterator[bytes], table: SampleTable) -> Iterator[dict[str, Any]]:
    text = (line.decode("utf-8", errors="replace").lstrip("\ufeff") for line in lines)
    first = next((line for line in text if line.strip()), "")
    if first.lstrip().startswith("["):
        yield from _json_list("\n".join([first, *text]))
    elif first.lstrip().startswith("{"):
        yield from _json_lines(first, text, table)
    else:
        names = cells(first)
        for line in text:
            if line.strip():
                yield dict(zip(names, cells(line), strict=False))


def _json_list(content: str) -> Iterator[dict[str, Any]]:
    try:
        records = json.loads(content)
    except (ValueError, RecursionError):
        raise SourceError("E-JSON", "The export is incomplete. Save it again.") from None
    yield from (record for record in records if isinstance(record, dict))


def _json_lines(first: str, text: Iterator[str], table: SampleTable) -> Iterator[dict[str, Any]]:
    try:
        whole = json.loads(first)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and whole and all(isinstance(column, dict) for column in whole.values()):
        yield from _transpose(whole)  # This is pandas' default orient: column → row → value.
        return
    for line in (first, *text):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            table.note("line_unreadable", "data_loss", "Lines that are not whole records were left out.", example=line)
            continue
        if isinstance(record, dict):
            yield record


def _transpose(columns: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    rows = dict.fromkeys(key for column in columns.values() for key in column)
    for row in rows:
        yield {name: column.get(row) for name, column in columns.items()}


def _time(record: dict[str, Any], table: SampleTable) -> int | None:
    for key in TIME_KEYS:
        if (seconds := finite_number(record.get(key))) is not None:
            scale = 1e-3 if seconds > 1e11 else 1.0  # pandas writes milliseconds if it read the column as dates.
            return round(seconds * scale * 1e6) * 1000
    for key in RELATIVE_KEYS:
        if (seconds := finite_number(record.get(key))) is not None:
            table.clock = "unknown"
            if "no_times" not in table.diagnostics:
                note = "The export has only times since the run's start. Export _timestamp, or enter the start to show the samples with a trace."
                table.note("no_times", "info", note)
            return round(seconds * 1e6) * 1000
    return None


READER = Reader("W&B system metrics", sniff, read)

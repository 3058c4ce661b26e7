"""JSON lines of NVML samples. The first line describes the device, and each further line is a sample.

NaN means not recorded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from sawtooth.ingest.errors import ImportDiagnostic
from sawtooth.ingest.quantities.registry import names_in, possible_ones, possible_value
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables, column
from sawtooth.ingest.telemetry.table import BLANK_NOTE, SampleTable, host_columns

FIELDS = names_in("nvml_jsonl")  # The column and the factor, by the file's field.
END_NS = 1 << 62  # This time is in the year 2116. Later times are impossible.
MAX_DEVICES = 1024  # Larger device numbers are damage.
UNREADABLE = "Lines that are not samples were left out."
SIGNATURE = re.compile(rb'"t_ns"\s*:')


def sniff(head: bytes) -> bool:
    """Return whether ``head`` begins with the device line or a sample of this format."""
    first, _, rest = head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")
    begins_with_sample = SIGNATURE.search(first[:64]) is not None
    samples_follow = not rest.strip() or SIGNATURE.search(rest[:4096]) is not None
    return begins_with_sample or (b'"meta"' in first and samples_follow)


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the samples.

    Lines that are not samples are counted. An incomplete last line marks the file as truncated.
    """
    rows: list[dict[str, Any]] = []
    meta: dict[str, Any] = {}
    host = SampleTable()
    cut_off, unreadable, example = False, 0, ""
    for line in filter(bytes.strip, lines):
        try:
            record = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            unreadable, cut_off, example = unreadable + 1, True, example or line[:200].decode(errors="replace")
            continue
        cut_off = False
        if not isinstance(record, dict):
            unreadable += 1
        elif record.get("meta"):
            meta = record
        elif "event" in record:
            continue  # An event describes the sampler, not the GPU.
        elif isinstance(record.get("machine"), dict):
            _add_host(host, record)
        elif _is_sample(record):
            rows.append(record)
        else:
            unreadable += 1
    columns, impossible = _columns(rows)
    result = TelemetryTables(
        columns, metadata=json.dumps({k: v for k, v in meta.items() if k not in ("meta", "name", "driver")}), truncated=cut_off
    )
    result.host_columns = host_columns(host.host_series)
    result.devices = _devices(meta, sorted({int(d) for d in columns["device"]}), rows)
    result.host = _text(meta.get("host"))
    if impossible:
        counts = ", ".join(f"{name}: {count}" for name, count in impossible.items())
        result.diagnostics.append(ImportDiagnostic(*BLANK_NOTE, sum(impossible.values()), counts))
    if unreadable:
        sentence = f"{UNREADABLE} The last line was cut off." if cut_off else UNREADABLE
        result.diagnostics.append(ImportDiagnostic("line_unreadable", "data_loss", sentence, unreadable, example or None))
    return result


def _is_sample(record: dict[str, Any]) -> bool:
    """Return whether a line has a possible time and device."""
    return 0 <= (_number(record.get("t_ns")) or -1) < END_NS and 0 <= _device(record) < MAX_DEVICES


def _add_host(host: SampleTable, record: dict[str, Any]) -> None:
    time_ns = _number(record.get("t_ns"))
    if time_ns is not None:
        host.add_host(int(time_ns), {column: _number(value) for column, value in record["machine"].items()})


def _columns(rows: list[dict[str, Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    """Return the columns of the samples, and the number of impossible values per column."""
    columns = {"device": column([_device(r) for r in rows], "device")}
    columns["time_ns"] = column([int(r["t_ns"]) for r in rows], "time_ns")
    impossible: dict[str, int] = {}
    for key, (name, factor) in FIELDS.items():
        if any(key in row for row in rows):
            numbers = [_number(row.get(key)) for row in rows]
            values = [None if number is None else number * factor for number in numbers]
            possible_values, impossible_count = possible_ones(name, values)
            columns[name] = column(possible_values, name)
            if impossible_count:
                impossible[name] = impossible_count
    return columns, impossible


def _devices(meta: dict[str, Any], numbers: list[int], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    memory: dict[int, float | int] = {}
    for row in rows:
        total = _number(row.get("mem_total"))
        if total and possible_value("mem_total_bytes", total):
            memory.setdefault(_device(row), total)
    gpus = meta["gpus"] if isinstance(meta.get("gpus"), list) else []
    devices = []
    for number in numbers:
        description = next((gpu for gpu in gpus if isinstance(gpu, dict) and gpu.get("gpu") == number), {})
        name, uuid, driver = description.get("name") or meta.get("name"), description.get("uuid"), meta.get("driver")
        texts = {"name": _text(name), "uuid": _text(uuid), "driver": _text(driver)}
        devices.append({"device": number, **texts, "memory_bytes": memory.get(number)})
    return devices


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _device(row: dict[str, Any]) -> int:
    return int(_number(row.get("gpu", row.get("device"))) or 0)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


READER = Reader("NVML JSONL", sniff, read)

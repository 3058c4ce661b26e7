"""JSON lines of NVML samples: the first line describes the device, then one sample per line.

A bare NaN means not recorded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from sawtooth.ingest.quantities.registry import names_in, possible, possible_ones
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables, column
from sawtooth.ingest.telemetry.table import BLANK, SampleTable, host_columns

FIELDS = names_in("nvml_jsonl")  # field of the file → column of samples, factor; GPM gives PCIe and NVLink traffic in MiB/s
LAST_NS = 1 << 62  # the largest valid time, in the year 2116
MOST_DEVICES = 1024  # GPUs of one host
UNREADABLE = "Lines that are not samples were left out."
SIGN = re.compile(rb'"t_ns"\s*:')


def sniff(head: bytes) -> bool:
    """Return whether ``head`` begins with the device line or a sample of this format."""
    first, _, rest = head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")
    return (b'"meta"' in first and (not rest.strip() or SIGN.search(rest[:4096]) is not None)) or SIGN.search(
        first[:64]
    ) is not None


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the samples.

    Lines that are not samples are counted. An incomplete last line marks the file as truncated.
    """
    rows: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    host = SampleTable()
    torn, bad, example = False, 0, ""
    for line in filter(bytes.strip, lines):
        try:
            record = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            bad, torn, example = bad + 1, True, example or line[:200].decode(errors="replace")
            continue
        torn = False
        if not isinstance(record, dict):
            bad += 1
        elif record.get("meta"):
            about = record
        elif "event" in record:
            continue  # an event of the sampler, not of the GPU
        elif isinstance(record.get("machine"), dict):
            _add_host(host, record)
        elif _is_sample(record):
            rows.append(record)
        else:
            bad += 1
    columns, impossible = _columns(rows)
    result = TelemetryTables(
        columns, metadata=json.dumps({k: v for k, v in about.items() if k not in ("meta", "name", "driver")}), truncated=torn
    )
    result.host_columns = host_columns(host.of_host)
    result.devices = _devices(about, sorted({int(d) for d in columns["device"]}), rows)
    result.host = _text(about.get("host"))
    if impossible:
        counts = ", ".join(f"{name}: {count}" for name, count in impossible.items())
        result.diagnostics.append({**BLANK, "count": sum(impossible.values()), "example": counts})
    if bad:
        sentence = UNREADABLE.removesuffix(".") + "; the last one was cut off." if torn else UNREADABLE
        result.diagnostics.append(
            {"key": "line_unreadable", "severity": "data_loss", "sentence": sentence, "count": bad, "example": example or None}
        )
    return result


def _is_sample(record: dict[str, Any]) -> bool:
    """Return whether a line has a possible time and device."""
    return 0 <= (_number(record.get("t_ns")) or -1) < LAST_NS and 0 <= _device(record) < MOST_DEVICES


def _add_host(host: SampleTable, record: dict[str, Any]) -> None:
    """Add a line about the host."""
    time_ns = _number(record.get("t_ns"))
    if time_ns is not None:
        host.add_host(int(time_ns), {column: _number(value) for column, value in record["machine"].items()})


def _columns(rows: list[dict[str, Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    """Return the columns of the samples, and the number of impossible values per column."""
    columns = {"device": column([_device(r) for r in rows], "device")}
    columns["time_ns"] = column([int(r["t_ns"]) for r in rows], "time_ns")
    impossible: dict[str, int] = {}
    for key, (name, factor) in FIELDS.items():
        if any(key in r for r in rows):
            kept, refused = possible_ones(name, [None if (v := _number(r.get(key))) is None else v * factor for r in rows])
            columns[name] = column(kept, name)
            if refused:
                impossible[name] = refused
    return columns, impossible


def _devices(about: dict[str, Any], numbers: list[int], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    memory: dict[int, float | int] = {}
    for row in rows:
        total = _number(row.get("mem_total"))
        if total and possible("mem_total_bytes", total):
            memory.setdefault(_device(row), total)
    gpus = about["gpus"] if isinstance(about.get("gpus"), list) else []
    devices = []
    for number in numbers:
        named = next((g for g in gpus if isinstance(g, dict) and g.get("gpu") == number), {})
        name, uuid, driver = named.get("name") or about.get("name"), named.get("uuid"), about.get("driver")
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

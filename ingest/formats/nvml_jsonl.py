"""Plain JSONL of NVML samples: the first line is about the device, then one sample a line; a bare NaN is not recorded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from ingest.formats.reader import Reader, Telemetry, column

MEBIBYTE = 1 << 20  # GPM reports PCIe and NVLink throughput in MiB/s
FIELDS: dict[str, tuple[str, float]] = {  # field of the file -> column of samples, factor
    "gpu_util": ("util_pct", 1),
    "mem_util": ("mem_busy_pct", 1),
    "mem_used": ("mem_used_bytes", 1),
    "mem_total": ("mem_total_bytes", 1),
    "power_w": ("power_w", 1),
    "energy_j": ("energy_j", 1),
    "temp_c": ("temp_c", 1),
    "mem_temp_c": ("mem_temp_c", 1),
    "sm_mhz": ("clock_sm_mhz", 1),
    "mem_mhz": ("clock_mem_mhz", 1),
    "throttle": ("clock_event_mask", 1),
    "gpm_graphics": ("gr_active_pct", 1),
    "gpm_sm": ("sm_active_pct", 1),
    "gpm_occupancy": ("sm_occupancy_pct", 1),
    "gpm_tensor_any": ("tensor_active_pct", 1),
    "gpm_tensor_hmma": ("tensor_hmma_pct", 1),
    "gpm_tensor_imma": ("tensor_imma_pct", 1),
    "gpm_tensor_dfma": ("tensor_dfma_pct", 1),
    "gpm_integer": ("integer_pct", 1),
    "gpm_dram_bw": ("dram_active_pct", 1),
    "gpm_fp64": ("fp64_pct", 1),
    "gpm_fp32": ("fp32_pct", 1),
    "gpm_fp16": ("fp16_pct", 1),
    "gpm_pcie_tx": ("pcie_tx_bps", MEBIBYTE),
    "gpm_pcie_rx": ("pcie_rx_bps", MEBIBYTE),
    "gpm_nvlink_tx": ("nvlink_tx_bps", MEBIBYTE),
    "gpm_nvlink_rx": ("nvlink_rx_bps", MEBIBYTE),
}
LAST_NS = 1 << 62  # of a time that is one: the year 2116
MOST_DEVICES = 1024  # of one host
SIGN = re.compile(rb'"t_ns"\s*:')


def sniff(head: bytes) -> bool:
    """Tell whether ``head`` begins with the device line or a sample of this format."""
    first, _, rest = head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")
    return (b'"meta"' in first and (not rest.strip() or SIGN.search(rest[:4096]) is not None)) or SIGN.search(
        first[:64]
    ) is not None


def read(lines: Iterator[bytes]) -> Telemetry:
    """Read samples; lines that are no sample are counted, a torn last line marks the file truncated."""
    rows: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    torn, bad, example = False, 0, ""
    for line in lines:
        if not line.strip():
            continue
        try:
            found = json.loads(line.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            bad, torn, example = bad + 1, True, example or line[:200].decode(errors="replace")
            continue
        torn = False
        if not isinstance(found, dict):
            bad += 1
        elif found.get("meta"):
            about = found
        elif "event" in found:
            continue  # what happened to the sampler, not what the GPU did
        elif not 0 <= (_number(found.get("t_ns")) or -1) < LAST_NS or not 0 <= _device(found) < MOST_DEVICES:
            bad += 1
        else:
            rows.append(found)
    columns = {"device": column([_device(r) for r in rows], "device")}
    columns["time_ns"] = column([int(r["t_ns"]) for r in rows], "time_ns")
    for key, (name, factor) in FIELDS.items():
        if any(key in r for r in rows):
            values = [_number(r.get(key)) for r in rows]
            columns[name] = column([None if v is None else v * factor for v in values], name)
    result = Telemetry(
        columns, metadata=json.dumps({k: v for k, v in about.items() if k not in ("meta", "name", "driver")}), truncated=torn
    )
    memory = next((m for r in rows if (m := _number(r.get("mem_total")))), None)
    gpus = about["gpus"] if isinstance(about.get("gpus"), list) else []
    for number in sorted({int(d) for d in columns["device"]}):
        named = next((g for g in gpus if isinstance(g, dict) and g.get("gpu") == number), {})
        result.devices.append(
            {
                "device": number,
                "name": _text(named.get("name") or about.get("name")),
                "uuid": _text(named.get("uuid")),
                "driver": _text(about.get("driver")),
                "memory_bytes": memory if memory is None or memory < 1 << 63 else None,
            }
        )
    result.host = _text(about.get("host"))
    if bad:
        sentence = (
            "Lines that are no sample were left out."
            if not torn
            else "Lines that are no sample were left out; the last one was cut off."
        )
        result.diagnostics.append(
            {"key": "line_unreadable", "severity": "data_loss", "sentence": sentence, "count": bad, "example": example or None}
        )
    return result


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _device(row: dict[str, Any]) -> int:
    return int(_number(row.get("gpu", row.get("device"))) or 0)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


READER = Reader("NVML JSONL", sniff, read)

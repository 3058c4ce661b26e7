"""Prometheus' answer to a range query (``/api/v1/query_range``) over dcgm-exporter, nvitop-exporter or our own ``--prometheus``.

Several answers, one per line or in one list, are read as one recording.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from ingest.errors import SourceError
from ingest.formats.reader import Reader, Telemetry
from ingest.formats.table import SampleTable
from ingest.formats.values import MIB

# Metric name → column and factor
FIELDS: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("util_pct", 1),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("mem_busy_pct", 1),
    "DCGM_FI_DEV_FB_USED": ("mem_used_bytes", MIB),
    "DCGM_FI_DEV_FB_TOTAL": ("mem_total_bytes", MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "DCGM_FI_DEV_GPU_TEMP": ("temp_c", 1),
    "DCGM_FI_DEV_MEMORY_TEMP": ("mem_temp_c", 1),
    "DCGM_FI_DEV_SM_CLOCK": ("clock_sm_mhz", 1),
    "DCGM_FI_DEV_MEM_CLOCK": ("clock_mem_mhz", 1),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("clock_event_mask", 1),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("clock_event_mask", 1),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gr_active_pct", 100),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_pct", 100),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_pct", 100),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_pct", 100),
    "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": ("tensor_hmma_pct", 100),
    "DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE": ("tensor_imma_pct", 100),
    "DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE": ("tensor_dfma_pct", 100),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_pct", 100),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_pct", 100),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_pct", 100),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("fp16_pct", 100),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bps", 1),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bps", 1),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bps", 1),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bps", 1),
    "gpu_utilization": ("util_pct", 1),
    "gpu_memory_utilization": ("mem_busy_pct", 1),
    "gpu_memory_used": ("mem_used_bytes", MIB),
    "gpu_memory_total": ("mem_total_bytes", MIB),
    "gpu_power_usage": ("power_w", 1),
    "gpu_temperature": ("temp_c", 1),
    "gpu_clock_sm": ("clock_sm_mhz", 1),
    "gpu_clock_memory": ("clock_mem_mhz", 1),
    "gpu_pcie_tx_throughput": ("pcie_tx_bps", MIB),
    "gpu_pcie_rx_throughput": ("pcie_rx_bps", MIB),
    "gpu_nvlink_total_tx_throughput": ("nvlink_tx_bps", MIB),
    "gpu_nvlink_total_rx_throughput": ("nvlink_rx_bps", MIB),
    "sawtooth_gpu_utilization_ratio": ("util_pct", 100),
    "sawtooth_gpu_memory_busy_ratio": ("mem_busy_pct", 100),
    "sawtooth_gpu_memory_used_bytes": ("mem_used_bytes", 1),
    "sawtooth_gpu_power_watts": ("power_w", 1),
    "sawtooth_gpu_temperature_celsius": ("temp_c", 1),
    "sawtooth_gpu_memory_temperature_celsius": ("mem_temp_c", 1),
    "sawtooth_gpu_sm_clock_hertz": ("clock_sm_mhz", 1e-6),
    "sawtooth_gpu_memory_clock_hertz": ("clock_mem_mhz", 1e-6),
    "sawtooth_gpu_clock_event_reasons": ("clock_event_mask", 1),
    "sawtooth_gpu_energy_joules_total": ("energy_j", 1),
    "sawtooth_gpu_graphics_active_ratio": ("gr_active_pct", 100),
    "sawtooth_gpu_sm_active_ratio": ("sm_active_pct", 100),
    "sawtooth_gpu_sm_occupancy_ratio": ("sm_occupancy_pct", 100),
    "sawtooth_gpu_tensor_active_ratio": ("tensor_active_pct", 100),
    "sawtooth_gpu_tensor_hmma_active_ratio": ("tensor_hmma_pct", 100),
    "sawtooth_gpu_tensor_imma_active_ratio": ("tensor_imma_pct", 100),
    "sawtooth_gpu_tensor_dfma_active_ratio": ("tensor_dfma_pct", 100),
    "sawtooth_gpu_integer_active_ratio": ("integer_pct", 100),
    "sawtooth_gpu_dram_active_ratio": ("dram_active_pct", 100),
    "sawtooth_gpu_fp64_active_ratio": ("fp64_pct", 100),
    "sawtooth_gpu_fp32_active_ratio": ("fp32_pct", 100),
    "sawtooth_gpu_fp16_active_ratio": ("fp16_pct", 100),
    "sawtooth_gpu_pcie_sent_bytes_per_second": ("pcie_tx_bps", 1),
    "sawtooth_gpu_pcie_received_bytes_per_second": ("pcie_rx_bps", 1),
    "sawtooth_gpu_nvlink_sent_bytes_per_second": ("nvlink_tx_bps", 1),
    "sawtooth_gpu_nvlink_received_bytes_per_second": ("nvlink_rx_bps", 1),
}
# prometheus_client appends a metric's unit to its name, as nvitop-exporter's gpu_utilization_Percentage
UNIT_SUFFIX = re.compile(r"_(?:Percentage|MiB|MHz|W|C|MiBps)$")
HOST_LABELS = ("Hostname", "hostname", "kubernetes_node", "node", "instance")
INDEX_LABELS = ("gpu", "index", "minor_number")
UUID_LABELS = ("UUID", "uuid")
NAME_LABELS = ("modelName", "devicename", "name")
SIGN = re.compile(rb'"resultType"\s*:\s*"(\w+)"')


def sniff(head: bytes) -> bool:
    """Tell whether ``head`` is an answer of Prometheus' query interface."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n[").startswith(b"{") and SIGN.search(head) is not None


def read(lines: Iterator[bytes]) -> Telemetry:
    """Read every known series. Raises SourceError for an instant query and where no series is known."""
    content = b"\n".join(lines)
    table = SampleTable()
    numbers: dict[tuple[str, str], int] = {}
    unknown: set[str] = set()
    for answer in _answers(content):
        data = answer.get("data")
        if not isinstance(data, dict) or data.get("resultType") != "matrix":
            said = "This is no range query of Prometheus (resultType matrix). Ask /api/v1/query_range with start, end and step."
            raise SourceError("E-TYPE", said)
        for series in data.get("result") or []:
            _read_series(series, table, numbers, unknown)
    if unknown:
        table.note(
            "series_unknown",
            "info",
            "Series of no use here were left out.",
            example=", ".join(sorted(unknown)),
            count=len(unknown),
        )
    if table.is_empty():
        named = ", ".join(sorted(unknown)[:4]) or "none at all"
        raise SourceError(
            "E-NOEV", f"The answer holds no GPU series of dcgm-exporter, nvitop-exporter or Sawtooth (it has: {named})."
        )
    if len({host for host, _ in numbers}) > 1:
        table.host = None
        table.note("several_hosts", "info", "The answer holds several hosts; their GPUs are numbered one after the other.")
    return table.telemetry()


def _answers(content: bytes) -> list[dict[str, Any]]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        try:
            found = [json.loads(line) for line in content.split(b"\n") if line.strip()]
        except (ValueError, RecursionError):
            raise SourceError("E-JSON", "The answer of Prometheus is not whole. Save it again.") from None
    answers = found if isinstance(found, list) else [found]
    return [a for a in answers if isinstance(a, dict)]


def _read_series(series: Any, table: SampleTable, numbers: dict[tuple[str, str], int], unknown: set[str]) -> None:
    if not isinstance(series, dict) or not isinstance(series.get("metric"), dict):
        return
    labels = {str(k): str(v) for k, v in series["metric"].items()}
    name = labels.get("__name__", "")
    name = name if name in FIELDS else UNIT_SUFFIX.sub("", name)
    if name not in FIELDS:
        unknown.add(name or "a series without __name__ (an expression)")
        return
    if "link" in labels or labels.get("GPU_I_ID") or "MIG" in labels.get("devicename", ""):
        table.note(
            "instances_left_out",
            "info",
            "Series of MIG instances and single links were left out; those of whole GPUs are here.",
        )
        return
    device = _device(labels, table, numbers)
    column, factor = FIELDS[name]
    for pair in series.get("values") or []:
        try:
            seconds, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, LookupError, OverflowError):
            table.note("line_unreadable", "data_loss", "Values that are no number were left out.", example=str(pair))
            continue
        if math.isfinite(value) and math.isfinite(seconds):
            table.add(device, round(seconds * 1000) * 1_000_000, {column: value * factor})


def _device(labels: dict[str, str], table: SampleTable, numbers: dict[tuple[str, str], int]) -> int:
    def first(names: tuple[str, ...]) -> str | None:
        return next((labels[n] for n in names if n in labels), None)

    host, uuid, index = first(HOST_LABELS) or "", first(UUID_LABELS), first(INDEX_LABELS)
    key = (host, uuid or index or "")
    if key not in numbers:
        wanted = int(index) if index is not None and index.isdecimal() else len(numbers)
        numbers[key] = wanted if wanted not in numbers.values() else max(numbers.values()) + 1
        table.devices[numbers[key]] = {"name": first(NAME_LABELS), "uuid": uuid}
        table.host = host or None
    return numbers[key]


READER = Reader("Prometheus range query", sniff, read)

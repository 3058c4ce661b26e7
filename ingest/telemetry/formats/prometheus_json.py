"""Prometheus' response to a range query on an exporter of GPU metrics.

The exporters are dcgm-exporter, nvidia_gpu_exporter, nvitop-exporter and ``sawtooth sample --prometheus``. The query is
``/api/v1/query_range``. Several responses in one file, one per line or in a list, become one recording.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.quantity import MHZ, RATIO
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import MAX_DEVICES, SampleTable

FIELDS = names_in("dcgm_exporter", "nvitop", "sawtooth_exporter")  # Metric name → column and factor.
# prometheus_client appends a metric's unit to its name, as in nvitop-exporter's gpu_utilization_Percentage.
_UNIT_SUFFIX = re.compile(r"_(?:Percentage|MiB|MHz|W|C|MiBps)$")
# nvidia_gpu_exporter names its metrics after nvidia-smi's fields, in basic units: nvidia_smi_clocks_current_sm_clock_hz.
_SMI_FIELDS = {f"nvidia_smi_{name.replace('.', '_')}": known for name, known in names_in("nvidia_smi").items()}
_SMI_UNITS = {"_ratio": RATIO, "_bytes": 1.0, "_watts": 1.0, "_clock_hz": MHZ, "": None}
GPU_INFO = "nvidia_smi_gpu_info"  # Its labels have the GPU's name.
HOST_LABELS = ("Hostname", "hostname", "kubernetes_node", "node", "instance")
INDEX_LABELS = ("gpu", "index", "minor_number")
UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
NAME_LABELS = ("modelName", "model_name", "devicename", "name")
SPLIT_UTIL_PCT = 1.0  # If the utilization of a GPU with MIG instances is always below this, it was not measured.
WITHOUT_NAME = "a series without __name__ (an expression)"
SIGNATURE = re.compile(rb'"resultType"\s*:\s*"(\w+)"')


def sniff(head: bytes) -> bool:
    """Return whether ``head`` is a response of Prometheus' query interface."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n[").startswith(b"{") and SIGNATURE.search(head) is not None


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every known series.

    Raises SourceError for an instant query, and if no series is known.
    """
    content = b"\n".join(lines)
    table = SampleTable()
    numbers: dict[tuple[str, str], int] = {}
    unknown: set[str] = set()
    for response in _responses(content):
        data = response.get("data")
        if not isinstance(data, dict) or data.get("resultType") != "matrix":
            sentence = "This is not a range query of Prometheus (resultType matrix). Query /api/v1/query_range with start, end and step."
            raise SourceError("E-TYPE", sentence)
        for series in data.get("result") or []:
            read_series(series, table, numbers, unknown)
    leave_out_split(table)
    if unknown:
        table.note(
            "series_unknown",
            "info",
            "Series that Sawtooth does not use were left out.",
            example=", ".join(sorted(unknown)),
            count=len(unknown),
        )
    if table.is_empty() and unknown == {WITHOUT_NAME}:
        raise SourceError(
            "E-NOEV",
            "The series of this response have no names, because an expression such as avg by (gpu) (…) made them. "
            "Query a metric by itself, for example DCGM_FI_DEV_GPU_UTIL, so that its series keep __name__.",
        )
    if table.is_empty():
        names = ", ".join(sorted(unknown)[:4]) or "no series"
        raise SourceError(
            "E-NOEV",
            f"The response has no GPU series of dcgm-exporter, nvidia_gpu_exporter, nvitop-exporter or Sawtooth, but {names}. Query these exporters.",
        )
    if len({host for host, _ in numbers}) > 1:
        table.host = None
        table.note("several_hosts", "info", "The response has several hosts. Their GPUs are numbered one after the other.")
    return table.telemetry()


def find_field(name: str) -> tuple[str, float] | None:
    """Return a metric's column and factor; None if the metric is unknown."""
    if name.startswith("nvidia_smi_"):
        unit = next(unit for unit in _SMI_UNITS if name.endswith(unit))
        column, factor = _SMI_FIELDS.get(name.removesuffix(unit), ("", 1.0))
        return (column, _SMI_UNITS[unit] or factor) if column else None
    return FIELDS.get(name) or FIELDS.get(_UNIT_SUFFIX.sub("", name))


def _responses(content: bytes) -> list[dict[str, Any]]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        try:
            document = [json.loads(line) for line in content.split(b"\n") if line.strip()]
        except (ValueError, RecursionError):
            raise SourceError("E-JSON", "The response of Prometheus is incomplete. Save it again.") from None
    responses = document if isinstance(document, list) else [document]
    return [response for response in responses if isinstance(response, dict)]


def read_series(series: Any, table: SampleTable, numbers: dict[tuple[str, str], int], unknown: set[str]) -> None:
    """Add one series to ``table``.

    ``numbers`` are the GPU numbers by (host, UUID or index). Names of unknown series are added to ``unknown``.
    """
    if not isinstance(series, dict) or not isinstance(series.get("metric"), dict):
        return
    labels = {str(k): str(v) for k, v in series["metric"].items()}
    name = labels.get("__name__", "")
    if name == GPU_INFO:
        table.devices[_device(labels, table, numbers)]["name"] = labels.get("name")
        return
    field = find_field(name)
    if field is None:
        unknown.add(name or WITHOUT_NAME)
        return
    if "link" in labels or labels.get("GPU_I_ID") or "MIG" in labels.get("devicename", ""):
        table.note(
            "instances_left_out",
            "info",
            "Series of MIG instances and single links were left out. Only series of whole GPUs were read.",
        )
        if "link" not in labels:
            split = table.metadata.setdefault("split_gpus", [])
            split += [device] if (device := _device(labels, table, numbers)) not in split else []
        return
    device = _device(labels, table, numbers)
    column, factor = field
    for pair in series.get("values") or []:
        try:
            seconds, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, LookupError, OverflowError):
            table.note("line_unreadable", "data_loss", "Values that are not numbers were left out.", example=str(pair))
            continue
        if math.isfinite(value) and math.isfinite(seconds):
            table.add(device, round(seconds * 1000) * 1_000_000, {column: value * factor})


def leave_out_split(table: SampleTable) -> None:
    """Remove the utilization of GPUs with MIG instances, because it is 0 even while the instances work."""
    for device in table.metadata.get("split_gpus", ()):
        util = table.polled.get((device, "util_pct"))
        if util is not None and max(util.values) < SPLIT_UTIL_PCT:
            del table.polled[device, "util_pct"]
            note = "The driver reports no utilization for GPUs with MIG instances. Record DCGM_FI_PROF_GR_ENGINE_ACTIVE for the activity of each instance."
            table.note("split_gpu", "info", note)


def _device(labels: dict[str, str], table: SampleTable, numbers: dict[tuple[str, str], int]) -> int:
    def first(names: tuple[str, ...]) -> str | None:
        return next((labels[n] for n in names if n in labels), None)

    host, uuid, index = first(HOST_LABELS) or "", first(UUID_LABELS), first(INDEX_LABELS)
    key = (host, uuid or index or "")
    if key not in numbers:
        if len(numbers) >= MAX_DEVICES:
            raise SourceError("E-LIMIT", f"The response has more than {MAX_DEVICES:,} GPUs. Query only the run's GPUs.")
        number = int(index) if index is not None and index.isdecimal() else len(numbers)
        numbers[key] = number if number not in table.devices else len(table.devices)
        while numbers[key] in table.devices:
            numbers[key] += 1
        table.devices[numbers[key]] = {"name": first(NAME_LABELS), "uuid": uuid}
        table.host = host or None
        table.places[numbers[key]] = (host, index or uuid or "")
    return numbers[key]


READER = Reader("Prometheus range query", sniff, read)

"""Output of ``nvidia-smi -q`` in a loop, as text or as XML."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.quantities.throttling import THROTTLE_REASONS
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.table import SampleTable
from sawtooth.ingest.telemetry.timestamps import Timestamps
from sawtooth.ingest.telemetry.values import number

NAME = "nvidia-smi -q"
FIELDS = names_in("nvidia_smi")
ElementPath = tuple[str, ...]
# Fields of --query-gpu, by (section, name) in text and in XML. If several fields have one quantity, the first with a value is used.
FIELD_OF_ELEMENT = {
    ("utilization", "gpu"): "utilization.gpu", ("utilization", "gpu_util"): "utilization.gpu",
    ("utilization", "memory"): "utilization.memory", ("utilization", "memory_util"): "utilization.memory",
    ("fb_memory_usage", "used"): "memory.used", ("fb_memory_usage", "total"): "memory.total",
    ("temperature", "gpu_current_temp"): "temperature.gpu", ("temperature", "gpu_temp"): "temperature.gpu",
    ("temperature", "memory_current_temp"): "temperature.memory", ("temperature", "memory_temp"): "temperature.memory",
    ("clocks", "sm"): "clocks.sm", ("clocks", "sm_clock"): "clocks.sm",
    ("clocks", "memory"): "clocks.mem", ("clocks", "mem_clock"): "clocks.mem",
    ("max_clocks", "sm"): "clocks.max.sm", ("max_clocks", "sm_clock"): "clocks.max.sm",
    ("pcie_generation", "current"): "pcie.link.gen.current", ("pcie_gen", "current_link_gen"): "pcie.link.gen.current",
    ("pcie_generation", "max"): "pcie.link.gen.max", ("pcie_gen", "max_link_gen"): "pcie.link.gen.max",
    ("link_width", "current"): "pcie.link.width.current", ("link_widths", "current_link_width"): "pcie.link.width.current",
    ("link_width", "max"): "pcie.link.width.max", ("link_widths", "max_link_width"): "pcie.link.width.max",
} | {
    (f"{prefix}power_readings", f"{words}_power_draw" if words else "power_draw"): field
    for prefix in ("gpu_", "")
    for words, field in (("instant", "power.draw.instant"), ("instantaneous", "power.draw.instant"), ("", "power.draw"), ("average", "power.draw.average"))
} | {
    (f"{prefix}power_readings", f"{words}_limit"): "enforced.power.limit" if words == "enforced_power" else "power.limit"
    for prefix in ("gpu_", "")
    for words in ("enforced_power", "current_power", "power")
}  # fmt: skip
REASONS = {reason.nvidia_smi: reason.bit for reason in THROTTLE_REASONS if reason.nvidia_smi}
REASON_SECTIONS = ("clocks_event_reasons", "clocks_throttle_reasons")
MAX_DEPTH = 20  # At most this many levels of elements are stored. nvidia-smi writes six levels.
_XML = re.compile(r"<(\w+)([^>/]*)>(?:([^<]*)</\1>)?")
_XML_ID = re.compile(r'id="([^"]+)"')
_TEXT = re.compile(r"( *)(\S.*?)(?:\s*:\s(.*))?$")
_TEXT_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)$")
_SEPARATORS = re.compile(r"[^a-z0-9]+")


def sniff(head: bytes) -> bool:
    """Return whether ``head`` begins with the log of ``nvidia-smi -q``."""
    start = head.lstrip()[:1024]
    return b"==NVSMI LOG==" in start or b"<nvidia_smi_log>" in start


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read every query. GPUs are numbered in the order of the first query.

    Raises SourceError if there are fewer than two different timestamps.
    """
    log = _Log()
    text = (raw.decode("utf-8", errors="replace").rstrip() for raw in lines)
    first = next((line for line in text if line.strip()), "")
    for path, value in _xml_values(text) if first.lstrip().startswith("<") else _text_values(text):
        log.add(path, value)
    log.finish_gpu()
    if len(log.timestamps) < 2:
        sentence = "This is nvidia-smi's human-readable output of one moment. Record a series with nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw --format=csv -lms 100 -f smi.csv."
        raise SourceError("E-TYPE", sentence)
    log.parser.finish()
    return log.table.telemetry()


def _xml_values(lines: Iterator[str]) -> Iterator[tuple[ElementPath, str]]:
    """Yield path and value of each element that has a value, and the PCI bus id of each GPU."""
    path: list[str] = []
    for line in lines:
        tag = _XML.match(line.strip())
        if tag is None:
            if line.lstrip().startswith("</") and path:
                path.pop()
        elif tag[3] is None:
            path = [*path, tag[1]][-MAX_DEPTH:]
            if tag[1] == "gpu" and (bus := _XML_ID.search(tag[2])) is not None:
                yield ("gpu",), bus[1]
        else:
            yield (*path, tag[1]), tag[3]


def _text_values(lines: Iterator[str]) -> Iterator[tuple[ElementPath, str]]:
    """Yield path and value of each line that has a value; the indentation shows the sections."""
    path: list[tuple[int, str]] = []
    for line in lines:
        if (gpu := _TEXT_GPU.match(line)) is not None:
            path = []
            yield ("gpu",), gpu[1]
        elif (parts := _TEXT.match(line)) is not None:
            indent, name = len(parts[1]), _SEPARATORS.sub("_", parts[2].lower()).strip("_")
            path = [section for section in path if section[0] < indent]
            if parts[3] is None:
                path.append((indent, name))
            else:
                yield (*(section for _, section in path), name), parts[3].strip()


class _Log:
    """The values of each GPU of each query."""

    def __init__(self) -> None:
        self.table = SampleTable()
        self.parser = Timestamps(self.table)
        self.timestamps: set[int] = set()
        self._buses: dict[str, int] = {}
        self._device: int | None = None
        self._timestamp_ns: int | None = None
        self._values: dict[str, float] = {}
        self._errors: dict[str, float] = {}
        self._mask: int | None = None

    def add(self, path: ElementPath, value: str) -> None:
        """Add the value of one element."""
        name = path[-1]
        if name == "timestamp":
            self.finish_gpu()
            self._timestamp_ns = self.parser.ns(value)
        elif path == ("gpu",):
            self.finish_gpu()
            self._device = self._buses.setdefault(value, len(self._buses))
            self.table.devices.setdefault(self._device, {})
        elif name == "driver_version":
            self.table.driver_version = value
        elif self._device is not None:
            self._add_to_gpu(path, value)

    def _add_to_gpu(self, path: ElementPath, value: str) -> None:
        section, name = path[-2] if len(path) > 1 else "", path[-1]
        if name in ("product_name", "gpu_uuid", "uuid"):
            description = self.table.devices[self._device or 0]
            description["name" if name == "product_name" else "uuid"] = value
        elif any(part in REASON_SECTIONS for part in path[:-1]):
            reason = re.sub(r"^clocks_(?:event|throttle)_reason_", "", name)
            reason = "applications_clocks_setting" if reason == "application_clocks_setting" else reason
            reason = "gpu_idle" if reason == "idle" else reason
            self._mask = (self._mask or 0) | (REASONS.get(reason, 0) if value == "Active" else 0)
        elif "volatile" in path:
            self._add_errors(path, value)
        elif (field := FIELD_OF_ELEMENT.get((section, name))) is not None:
            parsed = number(value.removesuffix("x"), FIELDS[field][1])
            if parsed is not None:
                self._values[field] = parsed

    def _add_errors(self, path: ElementPath, value: str) -> None:
        """Add the ECC errors of one memory. Older drivers write totals of single-bit and double-bit errors."""
        is_total = path[-1] == "total"
        kind = "uncorrected" if "uncorrectable" in path[-1] or (is_total and "double_bit" in path) else "corrected"
        count = number(value)
        if count is not None and (is_total or "correctable" in path[-1]):
            self._errors[kind] = self._errors.get(kind, 0.0) + count

    def finish_gpu(self) -> None:
        """Store the values of the GPU that is being read."""
        if self._device is not None and self._timestamp_ns is not None:
            values: dict[str, float | None] = {}
            for field, (column, _) in FIELDS.items():
                if field in self._values and column not in values:
                    values[column] = self._values[field]
            if self._mask is not None:
                values["clock_event_mask"] = self._mask
            values |= {f"ecc_{kind}_count": count for kind, count in self._errors.items()}
            self.table.add(self._device, self._timestamp_ns, values)
            self.timestamps.add(self._timestamp_ns)
        self._device, self._mask, self._values, self._errors = None, None, {}, {}


READER = Reader(NAME, sniff, read)

"""Headers of telemetry tables: the quantity, unit and GPU of each column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sawtooth.ingest.quantities.quantity import Source
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.quantities.throttling import THROTTLE_REASONS
from sawtooth.ingest.telemetry.values import UNITS, cells

DELIMITERS = ",;\t|"
MAX_CHARACTERS = 1 << 16  # A longer line is no header. Header lines of nvitop and W&B have some thousand columns.
MAX_TITLE_CHARACTERS = 1000  # A longer title is ignored. Grafana's titles contain all labels of a series.
MARKUP = ("{", "[", "<", "}")  # A line that begins with one of these is JSON or XML, not a table's header.
HEADER_SEARCH_LINES = 40  # A header is searched in this many lines, because banners, warnings and comments can precede it.
# Titles of times, best title first, because an absolute time is better than a time since the start.
TIMES = (
    "timestamp", "datetime", "date_time", "query_time", "time", "ts", "unix_time", "epoch", "created_at", "timestamp_s", "timestamp_ms",
    "timestampus", "timestamp_us", "timestamp_ns", "unix_timestamp", "last_timestamp", "time_s", "time_ms", "elapsed_sec", "elapsed_s",
    "elapsed_seconds", "elapsed", "seconds",
)  # fmt: skip
DATES = ("date", "day")
DEVICES = ("index", "gpu", "gpu_index", "gpu_id", "gpu_idx", "gpuid", "device", "device_id", "deviceid", "device_index", "id", "card", "gpu_number", "entity", "npu")  # fmt: skip
UUIDS = ("uuid", "gpu_uuid", "pci_bus_id", "gpu_bus_id", "pci_bus", "serial")
METRICS = (
    "metric",
    "metric_name",
    "__name__",
    "field",
    "measurement",
    "key",
    "counter",
    "quantity",
    "sensor",
    "series",
    "variable",
)
VALUES = ("value", "values", "val", "reading")
NAMES = ("name", "gpu_name", "model", "product_name", "model_name", "device_name")
HOSTS = ("host", "hostname", "node", "instance", "machine")
PARTITIONS = ("xcp", "tile_id", "tileid", "gpu_i_id", "mig")
# Names for the devices of a maker, with the titles that only tools for this maker write.
MAKERS = {
    "AMD GPU": {"gfx_activity", "umc_activity", "socket_power", "gfx_0_clk", "gfx_clk", "gpu_use", "current_socket_graphics_package_power",
                "average_graphics_package_power", "hotspot_temperature"},
    "Intel GPU": {"gpu_core_temperature", "gpu_frequency"},
    "NPU": {"npu"},
}  # fmt: skip
ROLES = {
    "time": TIMES, "date": DATES, "devices": DEVICES, "uuid": UUIDS, "name": NAMES, "host": HOSTS, "partition": PARTITIONS,
    "driver": ("driver_version",), "metric": METRICS, "value": VALUES,
}  # fmt: skip
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
FIELDS: dict[Source, dict[str, tuple[str, float]]] = {
    source: names_in(source) for source in ("nvidia_smi", "table", "dcgm_exporter")
}
# Factors of units at the end of a name, such as power_w. Units in brackets were removed from the name before.
NAME_UNITS = {
    "pct": 1.0, "percent": 1.0, "percentage": 1.0, "perc": 1.0, "w": 1.0, "watts": 1.0, "watt": 1.0, "mw": 1e-3, "c": 1.0, "celsius": 1.0,
    "degc": 1.0, "mhz": 1.0, "ghz": 1e3, "hz": 1e-6, "b": 1.0, "bytes": 1.0, "kib": 1024.0, "kb": 1024.0, "mib": float(1 << 20), "mb": float(1 << 20),
    "gib": float(1 << 30), "gb": float(1 << 30), "j": 1.0, "joules": 1.0, "mj": 1e-3, "ratio": 100.0,
}  # fmt: skip
# gpustat, amd-smi and other tools write MB and GB of memory but mean MiB and GiB.
BRACKET_UNITS = UNITS | {"mb": float(1 << 20), "gb": float(1 << 30), "kb": 1024.0, "watts": 1.0, "celsius degree": 1.0, "celsius": 1.0, "percent": 1.0, "°c": 1.0, "ghz": 1e3, "hz": 1e-6}  # fmt: skip
# nvidia-smi can also write each reason for lower clocks into its own column, as "Active" or "Not Active".
REASON_BITS = {
    f"{prefix}_{reason.nvidia_smi}": reason.bit
    for reason in THROTTLE_REASONS
    if reason.nvidia_smi
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons")
}
# Suffixes that the name of a time column may have. They are ignored for Unix times, whose unit is known from their size.
TIME_UNITS = ("s", "sec", "seconds", "ms", "us", "ns", "utc", "unix", "local")
SECONDS_PER_UNIT = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "minutes": 60.0}
_LABELLED = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\}")
_LABEL = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_BRACKETS = re.compile(r"[\[(]([^\])]*)[\])]")
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")
# A title that names its GPU before the quantity, in tables with columns per GPU.
_PER_GPU = re.compile(r"(?:.*[/ ])?(?:cuda:\d+ \()?(?:gpu|card|device)[ _:#-]?(\d+)\)?[ _./:-]+(.+)", re.IGNORECASE)
_STATISTIC = re.compile(r"/(mean|min|max|last)$")
_XCD = re.compile(r"gfx_\d+_clk")


@dataclass(frozen=True)
class SourceColumn:
    """One used column of a file: its position, the column of ``samples``, and the factor of the units.

    ``device`` is the column's GPU. It is None if each row of the table identifies its GPU.
    """

    position: int
    column: str
    factor: float
    device: int | None = None


@dataclass
class Header:
    """A header line: the positions of times, names and other roles, and the used columns."""

    delimiter: str
    titles: list[str]
    time: int | None = None
    date: int | None = None
    # Positions of columns that may identify the GPU of a row, best name first.
    devices: list[int] = field(default_factory=list)
    uuid: int | None = None
    name: int | None = None
    host: int | None = None
    driver: int | None = None
    partition: int | None = None
    columns: list[SourceColumn] = field(default_factory=list)
    reasons: dict[int, int] = field(default_factory=dict)  # Bits of NVML's mask of reasons for lower clocks, by position.
    by_nvidia_smi: bool = False  # True if a title is a field of nvidia-smi.
    utc: bool = False  # True if the title of the time ends with _utc.
    unit_s: float = 1.0  # The unit of times since the start, in seconds.
    metric: int | None = None
    value: int | None = None

    @property
    def maker(self) -> str | None:
        """The name for a maker's devices if only tools for this maker write some of the titles, else None."""
        names = {plain(title)[0] for title in self.titles}
        return next((maker for maker, only_there in MAKERS.items() if names & only_there), None)

    @property
    def device(self) -> int | None:
        """The position of the column with the best name for a GPU's number."""
        return next(iter(self.devices), None)

    @property
    def is_long(self) -> bool:
        """Whether the table is in long format, in which each row has the name and the value of one quantity."""
        return not self.has_quantity and None not in (self.time, self.metric, self.value)

    @property
    def has_quantity(self) -> bool:
        """Whether the table has a column of a known quantity."""
        return bool(self.columns or self.reasons)


def plain(title: str) -> tuple[str, str]:
    """Return a title in lower case with ``_`` between words, and the unit in its brackets."""
    unit = " ".join(_BRACKETS.findall(title)).strip().lower()
    return _NOT_ALPHANUMERIC.sub("_", _BRACKETS.sub(" ", title).lower().replace("%", " percent ")).strip("_"), unit


def parse_header(line: str) -> Header:
    """Return the header in ``line``. The header has no columns if no title is known."""
    if len(line) > MAX_CHARACTERS or line.lstrip().startswith(MARKUP):
        return Header(",", [])
    delimiter = max(DELIMITERS, key=line.count)
    titles = [cell.strip() for cell in cells(line.lstrip("# "), delimiter)]
    header = Header(delimiter, titles)
    best: dict[tuple[str, int | None], tuple[int, SourceColumn]] = {}
    xcd_clocks: list[SourceColumn] = []  # The clocks of the dies (XCDs) of an AMD GPU.
    for position, title in enumerate(titles):
        if len(title) > MAX_TITLE_CHARACTERS:
            continue
        name, _ = plain(title)
        if _take_role(header, position, _name(title)):
            continue
        if name in REASON_BITS:
            header.reasons[position] = REASON_BITS[name]
        elif (ranked := find_quantity(title, position)) is not None:
            rank, column = ranked
            header.by_nvidia_smi |= "." in title and _without_brackets(title) in FIELDS["nvidia_smi"]
            if _XCD.fullmatch(name):
                xcd_clocks.append(column)
            elif (column.column, column.device) not in best or rank < best[column.column, column.device][0]:
                best[column.column, column.device] = rank, column
    if header.time is None:
        header.time, header.date = header.date, None  # GPU-Z writes date and time in one column "Date".
    header.utc = header.time is not None and _name(titles[header.time]).endswith("_utc")
    header.unit_s = _unit_s(titles[header.time]) if header.time is not None else 1.0
    header.columns = [column for _, column in best.values()] + (xcd_clocks if ("clock_sm_mhz", None) not in best else [])
    return header


def _unit_s(title: str) -> float:
    """Return the unit in a time's title, in seconds. The unit is used only for times since the start."""
    name, unit = plain(title)
    return SECONDS_PER_UNIT.get(unit or name.removeprefix("timestamp").rpartition("_")[2], 1.0)


def _take_role(header: Header, position: int, name: str) -> bool:
    """Store ``position`` in ``header`` if the column has a role in ROLES; return whether it has a role.

    Of several columns with one role, the column with the best name is used.
    """
    stem, _, unit = name.rpartition("_")
    if ROLE_OF.get(stem) == "time" and unit in TIME_UNITS and name not in ROLE_OF:
        name = stem
    role = ROLE_OF.get(name)
    if role is None:
        return False
    if role == "devices":
        header.devices = sorted([*header.devices, position], key=lambda other: DEVICES.index(_name(header.titles[other])))
        return True
    earlier = getattr(header, role)
    if earlier is None or ROLES[role].index(name) < _rank(role, header.titles[earlier]):
        setattr(header, role, position)
    return True


def _rank(role: str, title: str) -> int:
    name = _name(title)
    return ROLES[role].index(name if name in ROLE_OF else name.rpartition("_")[0])


def _name(title: str) -> str:
    return plain(title.rsplit("/", 1)[-1])[0]  # nvitop writes the name of its collector and a slash before the title.


def _without_brackets(title: str) -> str:
    return _BRACKETS.sub("", title).strip().lower()


def find_quantity(title: str, position: int = 0) -> tuple[int, SourceColumn] | None:
    """Return a title's rank among the names of its quantity (0: best), and the column; None if unknown."""
    if (labelled := _LABELLED.fullmatch(title.strip())) is not None:
        return _series_column(labelled[1], dict(_LABEL.findall(labelled[2])), position)
    name, unit = plain(title)
    name = "gfx_0_clk" if _XCD.fullmatch(name) else name
    if not any(map(str.isalpha, title)):
        return None
    bare = _without_brackets(title)
    if bare in FIELDS["nvidia_smi"]:
        column, factor = FIELDS["nvidia_smi"][bare]
        return list(FIELDS["nvidia_smi"]).index(bare), SourceColumn(position, column, BRACKET_UNITS.get(unit, factor))
    if title.strip() in FIELDS["dcgm_exporter"]:
        return 0, SourceColumn(position, *FIELDS["dcgm_exporter"][title.strip()])
    if (field := _named_column(name, unit, column_of=FIELDS["table"])) is not None:
        rank, column, factor = field
        return rank, SourceColumn(position, column, factor)
    if title.startswith("pid:") or "/pid:" in title:
        return None  # nvitop writes such columns for one process.
    statistic = _STATISTIC.search(title)
    if statistic is not None and statistic.group(1) != "mean":
        return None
    if (per_gpu := _PER_GPU.fullmatch(_STATISTIC.sub("", title))) is not None:
        inner, unit = plain(per_gpu.group(2))
        if (field := _named_column(inner, unit, column_of=FIELDS["table"])) is not None:
            rank, column, factor = field
            return rank, SourceColumn(position, column, factor, int(per_gpu.group(1)))
    return None


def _series_column(metric: str, labels: dict[str, str], position: int) -> tuple[int, SourceColumn] | None:
    """Return rank and column of a Prometheus series that Grafana exports; None if its labels name no GPU."""
    number = labels.get("gpu") or labels.get("index") or labels.get("minor_number") or ""
    if metric not in FIELDS["dcgm_exporter"] or not number.isdecimal() or labels.get("GPU_I_ID"):
        return None
    return 0, SourceColumn(position, *FIELDS["dcgm_exporter"][metric], int(number))


def _named_column(name: str, unit: str, *, column_of: dict[str, tuple[str, float]]) -> tuple[int, str, float] | None:
    """Return rank, column and factor of a plain name, with or without a unit at the end; None if unknown."""
    *stem, last = name.split("_")
    for candidate, suffix in ((name, ""), ("_".join(stem), last if last in NAME_UNITS else None)):
        if suffix is not None and candidate in column_of:
            column, factor = column_of[candidate]
            by_unit = BRACKET_UNITS.get(unit) if unit else NAME_UNITS.get(suffix)
            return list(column_of).index(candidate), column, factor if by_unit is None else by_unit
    return None

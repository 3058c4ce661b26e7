"""``dcgmi dmon``: a table without times; profiling fields are ratios from 0 to 1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ingest.formats.reader import Reader, Telemetry
from ingest.formats.table import SampleTable
from ingest.formats.values import MIB, Clockless, number

DEFAULT_INTERVAL_NS = 1_000_000_000  # dcgmi dmon's -d
# DCGM's short name (the header) → column and factor, with DCGM's field id
FIELDS: dict[str, tuple[str, float]] = {
    "GPUTL": ("util_pct", 1),  # 203
    "MCUTL": ("mem_busy_pct", 1),  # 204
    "FBUSD": ("mem_used_bytes", MIB),  # 252
    "FBTTL": ("mem_total_bytes", MIB),  # 250
    "POWER": ("power_w", 1),  # 155
    "TOTEC": ("energy_j", 1e-3),  # 156, millijoules
    "TMPTR": ("temp_c", 1),  # 150
    "MMTMP": ("mem_temp_c", 1),  # 140
    "SMCLK": ("clock_sm_mhz", 1),  # 100
    "MMCLK": ("clock_mem_mhz", 1),  # 101
    "DVCCTR": ("clock_event_mask", 1),  # 112
    "GRACT": ("gr_active_pct", 100),  # 1001
    "SMACT": ("sm_active_pct", 100),  # 1002
    "SMOCC": ("sm_occupancy_pct", 100),  # 1003
    "TENSO": ("tensor_active_pct", 100),  # 1004
    "DRAMA": ("dram_active_pct", 100),  # 1005
    "FP64A": ("fp64_pct", 100),  # 1006
    "FP32A": ("fp32_pct", 100),  # 1007
    "FP16A": ("fp16_pct", 100),  # 1008
    "PCITX": ("pcie_tx_bps", 1),  # 1009
    "PCIRX": ("pcie_rx_bps", 1),  # 1010
    "NVLTX": ("nvlink_tx_bps", 1),  # 1011
    "NVLRX": ("nvlink_rx_bps", 1),  # 1012
    "TIMMA": ("tensor_imma_pct", 100),  # 1013
    "THMMA": ("tensor_hmma_pct", 100),  # 1014
    "TDFMA": ("tensor_dfma_pct", 100),  # 1015
}
_HEADER = re.compile(r"#\s*Entity(?:Id)?\s+(.*)", re.IGNORECASE)
_ROW = re.compile(r"(GPU(?:-[A-Z]+)?)\s+(\d+)\s+(.*)")


def sniff(head: bytes) -> bool:
    """Tell whether one of the first lines is an ``#Entity`` header."""
    return any(_HEADER.match(line.decode(errors="replace").strip()) for line in head.split(b"\n")[:20])


def read(lines: Iterator[bytes]) -> Telemetry:
    """Read rows of whole GPUs; MIG instances (``GPU-I``) are left out and counted, since their numbers are of another kind."""
    table = SampleTable()
    names: list[str] = []
    times = Clockless(DEFAULT_INTERVAL_NS, table, "dcgmi dmon")
    index, seen = -1, set[int]()
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").strip()
        if header := _HEADER.match(line):
            names = header.group(1).upper().split()
            continue
        found = _ROW.match(line)
        if found is None:
            continue  # the ``ID`` line, blanks, messages
        if found.group(1) != "GPU":
            table.note(
                "instances_left_out",
                "data_loss",
                "Rows of MIG instances were left out; those of whole GPUs are here.",
                example=line,
            )
            continue
        cells = found.group(3).split()
        if len(cells) != len(names):
            table.note("line_unreadable", "data_loss", "Lines that are no whole sample were left out.", example=line)
            continue
        device = int(found.group(2))
        if device in seen:
            seen.clear()
        if not seen:
            index += 1
        seen.add(device)
        row = dict(zip(names, cells, strict=True))
        table.devices.setdefault(device, {})
        table.add(device, times.ns(index), {FIELDS[n][0]: number(c, FIELDS[n][1]) for n, c in row.items() if n in FIELDS})
    return table.telemetry()


READER = Reader("dcgmi dmon", sniff, read)

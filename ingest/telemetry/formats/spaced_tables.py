"""Tables with spaces between their columns: ``amd-smi monitor`` and Ascend's ``npu-smi info watch``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sawtooth.ingest.telemetry.delimited import read_delimited
from sawtooth.ingest.telemetry.find_header import text_of
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables

NAME = "table of amd-smi or npu-smi"
# Titles that parse_header knows, by the tool's title. Other columns get an unknown title, so that they are not used.
AMD = {
    "TIMESTAMP": "timestamp", "GPU": "gpu", "XCP": "xcp", "POWER": "power_usage", "PWR": "power_usage", "PWR_CAP": "power_limit",
    "GPU_T": "hotspot_temperature", "GPU_TEMP": "hotspot_temperature", "MEM_T": "memory_temperature", "MEM_TEMP": "memory_temperature",
    "GFX_CLK": "gfx_clk", "GFX_CLOCK": "gfx_clk", "GFX%": "gfx", "GFX_UTIL": "gfx", "MEM%": "mem", "MEM_UTIL": "mem",
    "MEM_CLOCK": "mem_clock", "VRAM_USED": "vram_used", "VRAM_TOTAL": "vram_total", "VRAM_USAGE": "vram_used,vram_total",
    "PVIOL": "pviol", "TVIOL": "tviol", "SINGLE_ECC": "single_bit_ecc", "DOUBLE_ECC": "double_bit_ecc",
}  # fmt: skip
NPU = {"NpuID(Idx)": "npu", "Pwr(W)": "power (W)", "Temp(C)": "temperature", "AI Core(%)": "gpu_utilization (%)", "Memory BW(%)": "memory_utilization (%)"}  # fmt: skip
MIN_KNOWN = 3  # A header line has at least this many known titles.
_IN_BRACKETS = re.compile(r"\S[^()]*\([^)]*\)")
_GIB = re.compile(r"([\d.]+)\s+GB(?=\s|$)")  # The tools mean GiB. Titles without a unit are in MiB.
_USED_OF_TOTAL = re.compile(r"([\d.]+)/([\d.]+)\s+([GM]B)(?=\s|$)")  # Matches VRAM_USAGE of ROCm 7.
_UNIT = re.compile(r"(?<=[\dA])\s+(?:W|°C|C|MHz|%|MB|GB|mV|V|M[Bb]/s)(?=\s|$)")


def sniff(head: bytes) -> bool:
    """Return whether one of the first lines is a header of these tools."""
    return any(_titles(line) is not None for line in text_of(iter(head.split(b"\n")[:20])))


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the rows. Rows without times are counted from 0."""
    return read_delimited(_as_csv(text_of(lines)), NAME)


def _titles(line: str) -> list[str] | None:
    """Return the titles of a header line, as parse_header knows them; None for other lines."""
    titles = [title.strip() for title in _IN_BRACKETS.findall(line)] if "(" in line else line.split()
    names = NPU if titles[:1] == ["NpuID(Idx)"] else AMD
    if not titles or (titles[0] not in names and not titles[0][:4].isdigit()):  # The line may begin with a date.
        return None
    if len(names.keys() & set(titles)) < MIN_KNOWN or not {"NpuID(Idx)", "GPU"} & set(titles) or "," in line:
        return None
    return [names.get(title, f"other {position}") for position, title in enumerate(titles)]


def _as_csv(lines: Iterator[str]) -> Iterator[bytes]:
    """Yield header and rows with commas between the cells. Each further chip of an NPU becomes a device."""
    header: list[str] | None = None
    chip: int | None = None
    for line in lines:
        if (titles := _titles(line)) is not None:
            chip = 1 if "ChipId(Idx)" in line else None
            if titles != header:
                header = titles
                yield ",".join(titles).encode()
            continue
        with_units = _USED_OF_TOTAL.sub(r"\1 \3 \2 \3", line)
        cells = _UNIT.sub("", _GIB.sub(_in_mib, with_units)).split()
        row = ["N/A" if cell in ("NA", "-") else cell for cell in cells]
        if header is None or not row or not row[0][0].isdigit():
            continue
        if chip is not None and len(row) > chip and row[chip] not in ("0", "N/A"):
            row[0] = f"{row[0]}-{row[chip]}"
        yield ",".join(row).encode()


def _in_mib(amount: re.Match[str]) -> str:
    return f"{float(amount[1]) * 1024:g}"


READER = Reader(NAME, sniff, read)

"""Peaks of a GPU from its row of ``hardware.toml``, found from the device facts of a trace or driver."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
MEMORY_TOLERANCE = 0.06  # Devices report up to 5 % less than their marketing size (ECC, reserved). Other models differ by more.
# Share of the row's SMs. Fewer SMs mean a MIG or CPX slice or a cut-down board. New variants of a GPU lack fewer SMs than this.
PARTIAL_DEVICE = 0.95
GEFORCE_HALF_RATE = 2.0  # Professional Turing, Ampere, Ada and Blackwell boards accumulate in FP32 at twice GeForce's rate.
HALF_RATE_COMPUTE = {(7, 5), (8, 6), (8, 9), (12, 0)}  # Compute capabilities of both GeForce and professional boards.

LINK_LIMIT_SHARE = 0.6  # Share of the step, or of the link. Above it, copies limit the step even if they overlap with work.
_GIB = 1 << 30


@dataclass(frozen=True)
class Dispatch:
    """The time for which a kernel is resident but which CUPTI does not record, in ns.

    NVML's utilization includes this time; a trace does not.
    """

    ns: float
    low_ns: float
    high_ns: float
    source: str


# Launch hardware differs little between generations, but other GPUs were not measured. This is the H200's time with a factor of
# two on either side.
UNMEASURED_DISPATCH = Dispatch(
    1200.0, 600.0, 2400.0, "as on an H200, not measured on this GPU; `sawtooth calibrate` measures it"
)
# Traces of an H200 and an H100 have gaps of 0.60 to 0.67 us between two kernels of one graph. Five runs without the profiler
# took -0.07, 0.20, 0.28, 0.36 and 0.43 us per kernel longer than the kernels, all at 100 % utilization.
GRAPH_DISPATCH = Dispatch(250.0, 0.0, 600.0, "five loops of one graph per step, on an H200 and an H100")

_MOBILE = re.compile(r"laptop|mobile|max-q(?! workstation)|notebook", re.IGNORECASE)
_GENERIC_NAME = re.compile(r"^(amd radeon graphics|nvidia graphics device|)$", re.IGNORECASE)


@dataclass(frozen=True)
class GpuPeaks:
    """Peaks of one device as PyTorch sees it (one GCD of an MI250, one MIG slice).

    ``peaks`` maps a dtype of DTYPES to dense TFLOP/s (int8: TOP/s). A dtype without a rate on the device is absent.
    ``quoted_clock_mhz`` is the SM clock of the quoted 16-bit peak, None if it does not follow from the data. ``power_w`` is
    the board's limit as delivered. ``identified_by`` is name, shape (compute capability, SMs, memory) or formula.
    """

    name: str
    vendor: str
    sms: int | None
    peaks: Mapping[str, float]
    bandwidth_bytes_per_s: float | None
    power_w: float | None
    quoted_clock_mhz: float | None
    source: str
    note: str | None
    identified_by: Literal["name", "shape", "formula"]
    dispatch: Dispatch = UNMEASURED_DISPATCH

    def peak_tflops(self, dtype: str) -> float | None:
        """Return the dense peak of ``dtype`` in TFLOP/s; None where the device has none."""
        return self.peaks.get(dtype)

    @property
    def peak_16bit_tflops(self) -> float:
        """The peak that MFU uses: bf16, or fp16 where the device has no bf16 rate."""
        return self.peaks.get("bf16") or self.peaks["fp16"]


@dataclass(frozen=True)
class _HardwareRow:
    gpu: GpuPeaks
    patterns: tuple[re.Pattern[str], ...]
    compute: tuple[int, int]
    sms: int
    memory_gb: tuple[int, ...]


@dataclass(frozen=True)
class _Formula:
    vendor: str
    compute: tuple[int, int]
    flop_per_sm_clock: float
    clock_mhz: float
    source: str


def identify(
    name: str | None,
    compute_major: int | None,
    compute_minor: int | None,
    sms: int | None,
    memory_bytes: int | None,
    vendor: str | None = None,
) -> GpuPeaks | None:
    """Return the GPU that a source describes; None where no row fits.

    The name is tried first, then compute capability, SMs and memory. The last resort is an estimate of the 16-bit peak alone,
    from FLOPs per SM and clock of the compute capability. ``identified_by`` is then ``formula``, and ``note`` says so.
    ``compute_*`` are the gfx numbers on ROCm. ``vendor`` (nvidia, amd or None) separates the two, because 9.0 is both Hopper
    and MI200.
    """
    text = (name or "").strip()
    compute = (compute_major, compute_minor) if compute_major is not None and compute_minor is not None else None
    row = _by_name(text, vendor, sms)
    by: Literal["name", "shape"] = "name"
    if row is None and compute is not None and sms is not None and (_GENERIC_NAME.match(text) or not _MOBILE.search(text)):
        row, by = _by_shape(compute, sms, memory_bytes, vendor), "shape"
    if row is not None:
        return _with_sizes(row, by, text, sms, memory_bytes)
    if compute is not None and sms:
        return _by_formula(text, compute, sms, vendor)
    return None


def _vendor_fits(row_vendor: str, vendor: str | None) -> bool:
    return vendor is None or vendor == row_vendor


def _by_name(name: str, vendor: str | None, sms: int | None) -> _HardwareRow | None:
    if _GENERIC_NAME.match(name) or _MOBILE.search(name):
        return None
    rows, _ = _tables()
    candidates = [row for row in rows if _vendor_fits(row.gpu.vendor, vendor) and any(p.search(name) for p in row.patterns)]
    if not candidates:
        return None
    # "AMD Instinct MI250X/MI250" names two products, so the number of compute units decides if possible.
    same_shape = [row for row in candidates if row.sms == sms]
    return same_shape[0] if same_shape and "/" in name and candidates[0].sms != sms else candidates[0]


def _by_shape(compute: tuple[int, int], sms: int, memory_bytes: int | None, vendor: str | None) -> _HardwareRow | None:
    rows, _ = _tables()
    for row in rows:
        if not _vendor_fits(row.gpu.vendor, vendor) or row.compute != compute or row.sms != sms:
            continue
        if memory_bytes is None or any(abs(memory_bytes / _GIB / gb - 1) <= MEMORY_TOLERANCE for gb in row.memory_gb):
            return row
    return None


def _with_sizes(
    row: _HardwareRow, by: Literal["name", "shape"], name: str, sms: int | None, memory_bytes: int | None
) -> GpuPeaks:
    notes = [row.gpu.note] if row.gpu.note else []
    gpu = replace(row.gpu, identified_by=by)
    if by == "shape":
        reported_name = f"the trace calls it “{name}”" if name else "the trace does not name it"
        notes.append(f"{reported_name}; identified by its compute capability, SMs and memory")
    share = (sms / row.sms) if sms else 1.0
    if sms and share < PARTIAL_DEVICE:
        memory = min(memory_bytes / _GIB / max(row.memory_gb), 1.0) if memory_bytes and "MIG" in name else share
        bandwidth = gpu.bandwidth_bytes_per_s * memory if gpu.bandwidth_bytes_per_s is not None else None
        peaks = MappingProxyType({dtype: value * share for dtype, value in gpu.peaks.items()})
        gpu = replace(gpu, peaks=peaks, bandwidth_bytes_per_s=bandwidth, sms=sms)
        notes.append(f"{sms} of {row.sms} SMs: peaks scaled by that ratio")
    return replace(gpu, note="; ".join(notes) or None)


def _by_formula(name: str, compute: tuple[int, int], sms: int, vendor: str | None) -> GpuPeaks | None:
    _, formulas = _tables()
    for formula in formulas:
        if formula.compute != compute or not _vendor_fits(formula.vendor, vendor):
            continue
        rate = formula.flop_per_sm_clock
        professional = formula.vendor == "nvidia" and compute in HALF_RATE_COMPUTE and name and "GeForce" not in name
        rate *= GEFORCE_HALF_RATE if professional else 1.0
        peak = rate * sms * formula.clock_mhz / 1e6
        dtype = "bf16" if compute[0] >= 8 else "fp16"
        display_name = name or f"{formula.vendor} {compute[0]}.{compute[1]}"
        note = f"not in the table: estimated as {rate:g} FLOPs per SM and clock × {sms} SMs × {formula.clock_mhz:g} MHz ({formula.source})"
        return GpuPeaks(
            name=display_name,
            vendor=formula.vendor,
            sms=sms,
            peaks=MappingProxyType({dtype: peak, **({"fp16": peak} if dtype == "bf16" else {})}),
            bandwidth_bytes_per_s=None,
            power_w=None,
            quoted_clock_mhz=formula.clock_mhz,
            source="estimate from the compute capability",
            note=note,
            identified_by="formula",
        )
    return None


@dataclass(frozen=True)
class Link:
    """The connection between GPUs, between hosts, or between a GPU and its host.

    ``gb_s`` is decimal GB/s in one direction for one GPU, all lanes together.
    """

    name: str
    gb_s: float
    source: str


@cache
def link_of(gpu: str, between: Literal["gpus", "hosts", "host"]) -> Link | None:
    """Return the link of servers with the GPU ``gpu`` (a row's name); None where no row has it.

    ``between`` selects the link between the GPUs of a host, between hosts, or between a GPU and its host.
    """
    data = tomllib.loads(Path(__file__).with_name("hardware.toml").read_text(encoding="utf-8"))
    for row in data["link"]:
        if row["between"] == between and any(re.search(pattern, gpu, re.IGNORECASE) for pattern in row["match"]):
            return Link(row["name"], float(row["gb_s"]), row["source"])
    return None


_ACROSS: tuple[tuple[re.Pattern[str], Literal["gpus", "host"]], ...] = (
    (re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost|H2D|D2H", re.IGNORECASE), "host"),
    (re.compile(r"PtoP|PeerToPeer|P2P", re.IGNORECASE), "gpus"),
)


def crossed_by(copy: str) -> Literal["gpus", "host"] | None:
    """Return which kind of link a copy with this name uses; None for one inside a GPU's memory."""
    return next((between for pattern, between in _ACROSS if pattern.search(copy)), None)


@cache
def _tables() -> tuple[tuple[_HardwareRow, ...], tuple[_Formula, ...]]:
    data = tomllib.loads(Path(__file__).with_name("hardware.toml").read_text(encoding="utf-8"))
    rows = tuple(_row(entry) for entry in data["gpu"])
    formulas = tuple(
        _Formula(f["vendor"], (f["compute"][0], f["compute"][1]), f["flop_per_sm_clock"], f["clock_mhz"], f["source"])
        for f in data["formula"]
    )
    return rows, formulas


def _row(entry: Mapping[str, Any]) -> _HardwareRow:
    peaks = MappingProxyType(dict(entry["peaks"]))
    rate = entry.get("flop_per_sm_clock")
    peak_16bit = peaks.get("bf16") or peaks["fp16"]
    gpu = GpuPeaks(
        name=entry["name"],
        vendor=entry["vendor"],
        sms=entry["sms"],
        peaks=peaks,
        bandwidth_bytes_per_s=entry["bandwidth_gb_s"] * 1e9,
        power_w=entry["power_w"],
        quoted_clock_mhz=peak_16bit * 1e6 / (rate * entry["sms"]) if rate else None,
        source=entry["source"],
        note=entry.get("note"),
        identified_by="name",
        dispatch=_dispatch(entry),
    )
    patterns = tuple(re.compile(p, re.IGNORECASE) for p in entry["match"])
    return _HardwareRow(gpu, patterns, (entry["compute"][0], entry["compute"][1]), entry["sms"], tuple(entry["memory_gb"]))


def _dispatch(entry: Mapping[str, Any]) -> Dispatch:
    if "dispatch_us" not in entry:
        return UNMEASURED_DISPATCH
    low, middle, high = (1000.0 * us for us in entry["dispatch_us"])
    return Dispatch(middle, low, high, entry["dispatch_source"])

"""Estimate the time of a kernel from its launch, arithmetic and memory traffic, fitted on a real GPU.

    time = launch + ((compute · arithmetic)⁴ + (memory · traffic)⁴)^¼ + serial · traffic

*Arithmetic* is the time of the work at the peak of its dtype, in whole tiles. A product is cut into tiles, so a GPU of 132 SMs
needs as long for 133 tiles as for 264. Like its library, the model chooses the tile size that finishes first. *Traffic* is the
time to read inputs once and write outputs once at the manufacturer's bandwidth. The fourth root models their overlap.
Conversions before or after are serial.

The factors are rows of ``kernel_time.toml`` with their residuals, written by ``sample_traces/fit_kernel_time.py``. An interval
comes from those residuals, and is wider on GPUs that were not measured.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sawtooth.analysis.knowledge.hardware import GpuPeaks

# Tile sizes (rows × columns) of 16-bit kernels seen on Hopper, and the splits of the inner dimension if there are few tiles.
TILES = (
    (256, 128),
    (128, 256),
    (192, 128),
    (128, 128),
    (64, 256),
    (256, 64),
    (128, 64),
    (64, 128),
    (64, 64),
    (64, 32),
    (32, 64),
)
SPLITS = (1, 2, 4, 8, 16)
TILE_AREA = 128 * 128  # `epilogue_us` is the time to write a tile of this area
WHOLE_WAVES = 4  # with more waves, a new tile starts as soon as one ends, so half a wave is lost instead of a whole one
L2_SPEED_UP = 1.15  # the L2 of an H200 delivers 5.5 TB/s, its memory 4.8
OVERLAP = 4.0
ALIGNED_BYTES = 16  # the size of one load of a tensor-core tile

MEASURED = "H200"  # the GPU of the measured grids
SAME_CHIP_WIDER = 1.4  # a Hopper with another memory or clock: the factors apply, intervals grow by two fifths
OTHER_CHIP_WIDER = 2.5  # kernels of other libraries on other chips were not measured here
OTHER_CHIP_MORE = 0.15  # 15 % more in both directions, whatever the row says
SAME_CHIP = ("H100", "H200", "GH200", "H800", "H20")


@dataclass(frozen=True)
class KernelTimeEstimate:
    """A kernel's time in ms with the interval that contains four of five kernels."""

    ms: float
    low: float
    high: float


@dataclass(frozen=True)
class Product:
    """``batch`` products of (m × k) by (k × n)."""

    batch: float
    m: float
    n: float
    k: float

    @property
    def flops(self) -> float:
        """FLOPs of the product; a multiply and an add are two."""
        return 2.0 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class KernelOperands:
    """The work of a kernel, or of the few kernels of one operator.

    ``row`` names the row of the table, ``dtype`` the peak that it uses. ``products`` run one after the other in tiles.
    ``flops`` is arithmetic that is not cut into tiles. ``bytes`` is the memory traffic.
    """

    row: str
    dtype: str
    bytes: float
    products: tuple[Product, ...] = ()
    flops: float = 0.0


@dataclass(frozen=True)
class FittedKernel:
    """Fitted factors of one kind of kernel, with the quantiles of its error.

    ``log_low`` and ``log_high`` are the 10 % and 90 % quantiles of ln(measured ÷ estimated) on the grid.
    """

    launch_us: float
    memory: float = 0.0
    compute: float = 0.0
    serial: float = 0.0
    l2: float = 0.0
    epilogue_us: float = 0.0
    split_us: float = 0.0
    log_low: float = 0.0
    log_high: float = 0.0
    residuals: Mapping[str, float] = field(default_factory=dict, hash=False)


def estimate(work: KernelOperands, gpu: GpuPeaks) -> KernelTimeEstimate | None:
    """Return the time of ``work`` on ``gpu``.

    None where the table has no row for it, or the GPU's peak or bandwidth is unknown.
    """
    row = rows().get(work.row)
    ms = time_ms(work, row, gpu) if row is not None else None
    if row is None or ms is None:
        return None
    wider, more = _widened(gpu)
    low, high = min(row.log_low * wider, 0.0) - more, max(row.log_high * wider, 0.0) + more
    return KernelTimeEstimate(ms, ms * math.exp(low), ms * math.exp(high))


def time_ms(work: KernelOperands, row: FittedKernel, gpu: GpuPeaks) -> float | None:
    """Return the time in ms by ``row``; None where the GPU has no rate for it."""
    peak, bandwidth = gpu.peak_tflops(work.dtype), gpu.bandwidth_bytes_per_s
    if bandwidth is None or ((work.products or work.flops) and peak is None):
        return None
    compute_us = row.compute * work.flops / (peak * 1e6) if peak else 0.0
    if work.products and peak:
        sms = gpu.sms or 1
        flops_per_us = peak * 1e6 / sms / row.compute
        bytes_per_us = bandwidth * L2_SPEED_UP / 1e6 / sms / row.l2 * (1 / _item_bytes(work.dtype)) if row.l2 else math.inf
        compute_us += sum(
            tiled_us(
                product=p,
                sms=sms,
                flops_per_us=flops_per_us,
                items_per_us=bytes_per_us,
                epilogue_us=row.epilogue_us,
                split_us=row.split_us,
            )
            for p in work.products
        )
    traffic_us = work.bytes / bandwidth * 1e6
    overlapped = (compute_us**OVERLAP + (row.memory * traffic_us) ** OVERLAP) ** (1 / OVERLAP)
    return (row.launch_us + overlapped + row.serial * traffic_us) / 1e3


@lru_cache(maxsize=20_000)
def tiled_us(
    product: Product, sms: int, flops_per_us: float, items_per_us: float, epilogue_us: float, split_us: float
) -> float:
    """Return the µs of ``product`` with the tiles that finish first; the two rates are those of one SM."""
    rows, columns, split, tiles = _cuts(product, sms)
    inner = np.maximum(64.0, np.ceil(product.k / split))
    area = rows * columns
    arithmetic = 2 * area * inner / flops_per_us
    loads = (rows + columns) * inner / items_per_us
    one = (arithmetic**OVERLAP + loads**OVERLAP) ** (1 / OVERLAP) + epilogue_us * area / TILE_AREA
    waves = np.ceil(tiles / sms)
    waves = np.where(waves <= WHOLE_WAVES, waves, tiles / sms + 0.5)
    return float(np.min(waves * one + np.where(split > 1, split_us, 0.0)))


@lru_cache(maxsize=20_000)
def _cuts(product: Product, sms: int) -> tuple[np.ndarray, ...]:
    """Return rows, columns, split and tiles of every way to cut ``product``.

    A product is split only if it has fewer tiles than SMs.
    """
    cuts = []
    for rows, columns in TILES:
        tiles = product.batch * math.ceil(product.m / rows) * math.ceil(product.n / columns)
        cuts += [(rows, columns, split, tiles * split) for split in (SPLITS if tiles < sms else (1,))]
    return tuple(np.array(column, float) for column in zip(*cuts, strict=True))


def _item_bytes(dtype: str) -> int:
    return {"fp32": 4, "tf32": 4, "fp8": 1, "int8": 1, "fp64": 8}.get(dtype, 2)


def _widened(gpu: GpuPeaks) -> tuple[float, float]:
    if MEASURED in gpu.name and "GH" not in gpu.name:
        return 1.0, 0.0
    if any(name in gpu.name for name in SAME_CHIP):
        return SAME_CHIP_WIDER, 0.0
    return OTHER_CHIP_WIDER, OTHER_CHIP_MORE


def bits_of(dtype: str) -> str:
    """Return the table's name of a dtype: bf16 and fp16 run equally fast."""
    return "16bit" if dtype in ("bf16", "fp16") else dtype


@cache
def rows() -> Mapping[str, FittedKernel]:
    """Return the fitted table."""
    with Path(__file__).with_name("kernel_time.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["rows"]
    return {
        name: FittedKernel(**{k: v for k, v in cells.items() if k != "residuals"}, residuals=cells.get("residuals", {}))
        for name, cells in table.items()
    }

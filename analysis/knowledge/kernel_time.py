"""Estimate the time of a kernel from its launch, arithmetic and memory traffic, fitted on a real GPU.

    time = launch + ((compute · arithmetic)⁴ + (memory · traffic)⁴)^¼ + serial · traffic

*Arithmetic* is the time of the work at the peak of its dtype, rounded up to whole waves of tiles: a GPU of 132 SMs needs as long
for 133 tiles as for 264. Like cuBLAS, the model chooses the tile size that finishes first. *Traffic* is the time to read inputs
once and write outputs once at the manufacturer's bandwidth. The factors are:

    launch    time from the start of the kernel to its first work
    compute   slowdown of the arithmetic against the peak
    memory    slowdown of the traffic that overlaps with arithmetic; the fourth root models the overlap
    serial    the same for traffic that does not overlap: conversions of layout or dtype around the kernel

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

from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES
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
MIN_INNER = 64  # A tile processes at least this much of the inner dimension.
TILE_AREA = 128 * 128  # `epilogue_us` is the time to write a tile of this area.
# Up to this number of waves, the last one counts as a full wave. With more waves, half a wave is lost on average.
WHOLE_WAVES = 4
L2_SPEED_UP = 1.15  # The L2 cache of an H200 delivers 5.5 TB/s, and its memory 4.8 TB/s.
OVERLAP_EXPONENT = 4.0  # The module's docstring explains this exponent.

MEASURED_GPU = "H200"  # The kernels of the grids were timed on this GPU.
SAME_CHIP_WIDER = 1.4  # On a Hopper GPU with another memory or clock, the factors apply with wider intervals.
OTHER_CHIP_WIDER = 2.5  # Kernels of other libraries on other chips were not measured.
OTHER_CHIP_LOG_MARGIN = 0.15  # On other chips, this is added to both log quantiles.
SAME_CHIP = ("H100", "H200", "GH200", "H800", "H20")


@dataclass(frozen=True)
class KernelTimeEstimate:
    """A kernel's time in ms with its 80 % interval."""

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
class KernelWork:
    """The work of a kernel, or of the few kernels of one operator.

    ``kind`` is the key of its fitted factors, ``dtype`` the dtype of the peak that it uses. ``products`` run one after the other
    in tiles. ``flops`` is arithmetic that is not cut into tiles. ``bytes`` is the memory traffic.
    """

    kind: str
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


def estimate(work: KernelWork, gpu: GpuPeaks) -> KernelTimeEstimate | None:
    """Return the time of ``work`` on ``gpu``.

    None if no factors were fitted for its kind, or if the GPU's peak, SM count or bandwidth is unknown.
    """
    fitted = fitted_kernels().get(work.kind)
    if fitted is None:
        return None
    ms = time_ms(work, fitted, gpu)
    if ms is None:
        return None
    wider, margin = _widening(gpu)
    # The interval always contains the estimate.
    low, high = min(fitted.log_low * wider, 0.0) - margin, max(fitted.log_high * wider, 0.0) + margin
    return KernelTimeEstimate(ms, ms * math.exp(low), ms * math.exp(high))


def time_ms(work: KernelWork, fitted: FittedKernel, gpu: GpuPeaks) -> float | None:
    """Return the time in ms by ``fitted`` factors; None if a rate of the GPU is unknown."""
    peak, bandwidth = gpu.peak_tflops(work.dtype), gpu.bandwidth_bytes_per_s
    if bandwidth is None or ((work.products or work.flops) and peak is None):
        return None
    compute_us = fitted.compute * work.flops / (peak * 1e6) if peak else 0.0
    if work.products and peak:
        if gpu.sms is None:
            return None
        flops_per_us = peak * 1e6 / gpu.sms / fitted.compute
        bytes_per_us = bandwidth * L2_SPEED_UP / 1e6 / gpu.sms / fitted.l2 if fitted.l2 else math.inf
        compute_us += sum(
            tiled_us(
                product=product,
                sms=gpu.sms,
                flops_per_us=flops_per_us,
                items_per_us=bytes_per_us * (1 / ITEM_BYTES[work.dtype]),
                epilogue_us=fitted.epilogue_us,
                split_us=fitted.split_us,
            )
            for product in work.products
        )
    traffic_us = work.bytes / bandwidth * 1e6
    overlapped_us = _overlapped_time(compute_us, fitted.memory * traffic_us)
    return (fitted.launch_us + overlapped_us + fitted.serial * traffic_us) / 1e3


@lru_cache(maxsize=20_000)
def tiled_us(
    product: Product, sms: int, flops_per_us: float, items_per_us: float, epilogue_us: float, split_us: float
) -> float:
    """Return the µs of ``product`` with the tiles that finish first; the two rates are those of one SM."""
    tile_rows, tile_columns, split, tiles = _cuts(product, sms)
    inner = np.maximum(float(MIN_INNER), np.ceil(product.k / split))
    area = tile_rows * tile_columns
    arithmetic = 2 * area * inner / flops_per_us
    loads = (tile_rows + tile_columns) * inner / items_per_us
    tile_us = _overlapped_time(arithmetic, loads) + epilogue_us * area / TILE_AREA
    waves = np.ceil(tiles / sms)
    waves = np.where(waves <= WHOLE_WAVES, waves, tiles / sms + 0.5)
    return float(np.min(waves * tile_us + np.where(split > 1, split_us, 0.0)))


def _overlapped_time(a: Any, b: Any) -> Any:
    """Return the time of two activities, of times ``a`` and ``b``, that overlap in part."""
    return (a**OVERLAP_EXPONENT + b**OVERLAP_EXPONENT) ** (1 / OVERLAP_EXPONENT)


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


def _widening(gpu: GpuPeaks) -> tuple[float, float]:
    """Return the factor of the log quantiles on ``gpu``, and the margin that is added to them."""
    if MEASURED_GPU in gpu.name and "GH" not in gpu.name:  # The name GH200 contains H200.
        return 1.0, 0.0
    if any(name in gpu.name for name in SAME_CHIP):
        return SAME_CHIP_WIDER, 0.0
    return OTHER_CHIP_WIDER, OTHER_CHIP_LOG_MARGIN


def row_dtype(dtype: str) -> str:
    """Return the name of a dtype in the table; bf16 and fp16 have one, because they run equally fast."""
    return "16bit" if dtype in ("bf16", "fp16") else dtype


@cache
def fitted_kernels() -> Mapping[str, FittedKernel]:
    """Return the fitted factors by kind of kernel."""
    with Path(__file__).with_name("kernel_time.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["rows"]
    return {
        name: FittedKernel(**{k: v for k, v in cells.items() if k != "residuals"}, residuals=cells.get("residuals", {}))
        for name, cells in table.items()
    }

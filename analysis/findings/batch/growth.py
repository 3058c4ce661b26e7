"""Growth of a kernel's time with the batch.

Products, convolutions and attention follow the kernel-time model. The time of other kernels is proportional to the bytes that they
move.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from sawtooth.analysis.findings.recorded.counted_operations import numel, product_dtype
from sawtooth.analysis.findings.recorded.parameters import Shape
from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelWork, estimate
from sawtooth.analysis.knowledge.kernel_work import QUERY_BLOCK, convolution_work, product_work
from sawtooth.analysis.knowledge.recurrent import RECURRENT, layers_and_directions
from sawtooth.analysis.knowledge.traffic import operator_bytes

THREADS_OF_SM = 2048  # With fewer elements per SM, part of the GPU is idle, and more elements take no longer.
# The error of the time of a kernel that moves tensors is the batch factor to this power: 7 % at 4 times the batch, 15 % at 16.
GROWTH_ERROR = 0.05
FULL_ERROR_FACTOR = 16.0  # For smaller batch factors, the errors of both times partly cancel.
TILE = re.compile(r"(?:tilesize|gemm_)\d+x([1-9]\d*)[x_]")  # Matches the names of cuDNN's own kernels and of CUTLASS.
PARAMETER_OPERATORS = ("aten::_foreach_", "aten::_fused_", "aten::_amp_")


class Growth(NamedTuple):
    """Factor by which the growing part of a kernel's time changes, and the interval of the factor."""

    factor: float
    low: float
    high: float


class GrowthLaw(NamedTuple):
    """How a kernel's time grows: the factor and interval of ``Growth``, and two limits.

    ``stream_ns`` is the time to move the kernel's bytes at the memory's full rate (NaN if not known). ``rounds`` is the number of
    elements that a thread processes one after the other (1 if not known). The latency of one round does not grow with the batch.
    """

    factor: float
    low: float
    high: float
    stream_ns: float = math.nan
    rounds: float = 1.0


CONSTANT = GrowthLaw(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Scale:
    """Effect of a batch ``times`` as large on a kernel of ``gpu``.

    ``parameter_shapes`` includes their transposes.
    """

    gpu: GpuPeaks | None
    parameter_shapes: frozenset[Shape]
    times: float

    def law(self, row: Any) -> GrowthLaw:
        """Return how a kernel's time grows."""
        if row.category == "communication" or str(row.operator).startswith(PARAMETER_OPERATORS):
            return CONSTANT
        if row.category in ("gemm", "conv", "attention") and isinstance(row.flop_operator, str) and row.flop_dims:
            growth = self._attention_growth(row) if row.category == "attention" else self._product_growth(row)
            if growth is not None:
                return GrowthLaw(*growth)
        if row.category == "gemm" and not isinstance(row.flop_operator, str) and row.blocks > 0:
            return GrowthLaw(*self._hidden_product_growth(row))
        return self._moving_law(row)

    def _attention_growth(self, row: Any) -> Growth | None:
        """Return the growth of an attention kernel.

        The query blocks run in parallel, one per SM. While there are fewer blocks than SMs, a larger batch takes no longer.
        """
        query = row.flop_dims[1 if row.flop_operator.endswith("backward") else 0]
        if self.gpu is None or not self.gpu.sms or not isinstance(query, list) or len(query) != 4:
            return None
        blocks = query[0] * query[1] * math.ceil(query[2] / QUERY_BLOCK)
        return self._with_error(max(self.times * blocks, self.gpu.sms) / max(blocks, self.gpu.sms))

    def _hidden_product_growth(self, row: Any) -> Growth:
        """Return the growth of a product without recorded shapes, as in recurrent cells or compiled regions.

        The tiles run in parallel, one per SM. If ``row.concurrency`` kernels run at the same time, the product has only a share of the
        SMs. A smaller batch may have fewer tiles, or as many smaller tiles. The interval includes both cases. If the batch rows per
        tile are not known, the result assumes full tiles.
        """
        sms = (self.gpu.sms or 1) if self.gpu is not None else 1
        tile_factor = _tile_factor(row, self.times) or self.times
        new_tiles = tile_factor * row.blocks
        with_all_sms, with_shared_sms = (
            max(new_tiles, free_sms) / max(row.blocks, free_sms) for free_sms in (sms, sms / row.concurrency)
        )
        if self.times < 1:
            return Growth(math.sqrt(with_all_sms * tile_factor), tile_factor, with_all_sms)
        low, high = self._with_error(with_all_sms).low, self._with_error(with_shared_sms).high
        return Growth(math.sqrt(with_all_sms * with_shared_sms), low, high)

    def _with_error(self, factor: float) -> Growth:
        error = max(self.times, 1 / self.times) ** GROWTH_ERROR
        return Growth(factor, factor / error, factor * error)

    def _product_growth(self, row: Any) -> Growth | None:
        """Return the kernel-time model's time for the new shape ÷ that for the old shape.

        The interval is narrower for a smaller change of the batch, because the errors of the two times then cancel.
        """
        dtype = product_dtype(row)
        if dtype is None or self.gpu is None:
            return None
        new_dims = self._scaled_dims(row.flop_operator, row.flop_dims)
        works = _work(row, row.flop_dims, dtype), _work(row, new_dims, dtype)
        before, after = (estimate(work, self.gpu) if work is not None else None for work in works)
        if before is None or after is None or not before.ms:
            return None
        ratio = after.ms / before.ms
        error_share = min(abs(math.log(self.times)) / math.log(FULL_ERROR_FACTOR), 1.0)
        return Growth(ratio, ratio * (after.low / after.ms) ** error_share, ratio * (after.high / after.ms) ** error_share)

    def _scaled_dims(self, operator: str, dims: Any) -> list[Any]:
        """Return the shapes with the batch ``times`` as large.

        If neither operand is a parameter, the batch is the inner dimension of the product.
        """
        shapes = [list(shape) if isinstance(shape, list) else shape for shape in dims]
        first = FIRST_OPERAND.get(operator, 0)
        if operator in FIRST_OPERAND or operator == "aten::mm":
            a, b = shapes[first : first + 2]
            if len(a) == len(b) == 2:
                if tuple(b) in self.parameter_shapes:
                    a[0] = self._scaled(a[0])
                elif tuple(a) in self.parameter_shapes:
                    b[1] = self._scaled(b[1])
                else:  # The gradient of a parameter sums over the batch.
                    a[1] = b[0] = self._scaled(a[1])
                return shapes
        for shape in shapes:
            if isinstance(shape, list) and len(shape) > 2 and tuple(shape) not in self.parameter_shapes:
                shape[0] = self._scaled(shape[0])
        return shapes

    def _scaled(self, size: int) -> int:
        return max(round(size * self.times), 1)

    def _moving_law(self, row: Any) -> GrowthLaw:
        dims = row.dims if isinstance(row.dims, list) else []
        tensors = [tuple(shape) for shape in dims if isinstance(shape, list) and numel(shape) > 1]
        if tensors and all(shape in self.parameter_shapes for shape in tensors):
            return CONSTANT
        elements = max((numel(list(shape)) for shape in tensors), default=0)
        threads = (self.gpu.sms or 1) * THREADS_OF_SM if self.gpu is not None else 0
        factor = max(self.times * elements, threads) / max(elements, threads) if elements else self.times
        moved_bytes = operator_bytes(row.operator, row.dims, row.types, row.concrete) if isinstance(row.operator, str) else None
        bandwidth = self.gpu.bandwidth_bytes_per_s if self.gpu is not None else None
        fills_gpu = row.kind == "kernel" and elements > threads
        stream_ns = moved_bytes / bandwidth * 1e9 if fills_gpu and moved_bytes and bandwidth else math.nan
        return GrowthLaw(*self._with_error(factor), stream_ns, self._rounds(row, tensors))

    def _rounds(self, row: Any, tensors: list[Shape]) -> float:
        """Return the number of elements that each thread processes one after the other, 1 if not known.

        The number is not known for a reduction, because the grid grows with the elements that the reduction reads.
        """
        elements = max((numel(list(shape)) for shape in tensors if shape not in self.parameter_shapes), default=0)
        if self.gpu is None or not row.blocks > 0 or row.category == "reduction":
            return 1.0
        running_threads = min(row.blocks * row.block_threads, (self.gpu.sms or 1) * THREADS_OF_SM)
        return max(elements / running_threads, 1.0)


def _tile_factor(row: Any, times: float) -> float | None:
    """Return the factor by which the number of tiles of a recurrent layer's product grows.

    Each time step multiplies one row per sample, and a tile may contain all of these rows. A product over several time steps has
    more rows. None for other products, or if shapes or the kernel's name are not known.
    """
    tile = TILE.search(row.kernel)
    layers = layers_and_directions(row.dims) if row.operator in RECURRENT and tile and row.launches > 0 else 0
    if not tile or not layers or not isinstance(row.dims[0], list):
        return None
    rows = numel(row.dims[0][:-1]) * layers / row.launches
    if rows <= 0:
        return None
    tile_rows = int(tile[1])  # The second size of a tile belongs to the batch, because cuDNN stores matrices by columns.
    return math.ceil(times * rows / tile_rows) / math.ceil(rows / tile_rows)


def _work(row: Any, dims: list[Any], dtype: str) -> KernelWork | None:
    if row.category == "conv":
        return convolution_work(row.flop_operator, dims, row.flop_strides, row.flop_concrete, dtype)
    return product_work(row.flop_operator, dims, row.flop_strides, dtype)

"""Times of a step's kernels under autocast, with the casts that autocast adds.

Products have 16-bit results, norms and losses have FP32 results. Other operators keep the dtype of their inputs, or use FP32 if
only some inputs have 16 bits (PyTorch's type promotion).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.autocast.tensors import StepTensors, result_sizes
from sawtooth.analysis.findings.kernel_retiming import NORMS, SHORTEST_KERNEL_NS
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, estimate
from sawtooth.analysis.knowledge.kernel_work import moving_work
from sawtooth.analysis.knowledge.traffic import operator_bytes

# Operators of autocast's FP32 list that move much data. The list lacks cross entropy, which calls log_softmax with the input's dtype.
# https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
FP32_OPERATORS = re.compile(
    r"^aten::(native_layer_norm|native_group_norm|_fused_rms_norm|_softmax|exp|log|log1p|pow|rsqrt|reciprocal|softplus|cumsum|prod|"
    r"linalg_vector_norm|nll_loss2?d?_forward|mse_loss|smooth_l1_loss|huber_loss|kl_div|binary_cross_entropy_with_logits|logsumexp|"
    r"upsample_bilinear2d|upsample_nearest2d|cdist)$"
)
FP32_BACKWARD_OPERATORS = re.compile(
    r"^aten::(native_layer_norm|native_group_norm|_fused_rms_norm|_softmax|nll_loss2?d?|mse_loss|embedding_dense)_backward(_data)?$"
)
FIRST_INPUT_OPERATORS = (*NORMS, "aten::copy_", "aten::fill_", "aten::zero_")  # The result has the dtype of the first input.
MOVING_CATEGORIES = ("elementwise", "copy", "reduction", "softmax", "norm", "pool", "memcpy")
CAST = "aten::copy_cast"
CAST_BYTES = 8  # The table of kernel times counts a cast as reading and writing 4 bytes per element.
# Upper factor for casts that this module does not count (products without bias, losses). Four loops had 4 to 30 % more casts.
MAX_CASTS_FACTOR = 1.3
# Time factor = byte factor to this power, for elementwise kernels that the table lacks. With half of the bytes, sums, additions and
# activations of five loops on H100 and H200 took 0.6 to 0.7 of the time, because each thread runs as many instructions.
BYTES_POWER = 0.7
# Relative error of the predicted gain of elementwise kernels, from six pairs of runs (FP32 or TF32, then bf16).
GAIN_ERROR = 0.4


@dataclass
class KernelChange:
    """New time of one GPU operation, ns, and the number of casts that autocast launches before it."""

    ns: float
    low: float
    high: float
    casts: int = 0

    def add(self, cast: KernelTimeEstimate) -> None:
        """Add the time of a cast on the GPU."""
        self.ns += cast.ms * 1e6
        self.low += cast.low * 1e6
        self.high += cast.high * MAX_CASTS_FACTOR * 1e6


@dataclass
class AutocastWalk:
    """A walk over the GPU operations of steps, in order, which fills ``changes`` by gpu_op_id.

    ``products`` are the product calls that autocast runs in ``dtype``. ``backward`` are the gpu_op_ids of backward passes.
    """

    gpu: GpuPeaks
    dtype: str
    products: set[Any]
    backward: set[int]
    changes: dict[int, KernelChange]
    compiled: bool
    tensors: StepTensors = field(default_factory=StepTensors)
    calls_in_16_bits: set[Any] = field(default_factory=set)

    def step(self, rows: pd.DataFrame) -> None:
        """Walk over the operations of one step."""
        self.tensors = StepTensors()
        seen_calls: set[tuple[Any, Any]] = set()
        for row in rows.sort_values("start_ns").itertuples():
            product = row.flop_op_id in self.products
            call = (row.flop_op_id if product else row.cpu_op_id, product)
            first = call not in seen_calls
            seen_calls.add(call)
            if product:
                if first:
                    self._product(row)
            elif row.category == "fused":
                self._compiled(row)
            elif row.category in MOVING_CATEGORIES and "float" in (row.types or ()):
                if first:
                    self._add_result(row)
                if row.cpu_op_id in self.calls_in_16_bits:
                    self._set_16_bit_time(row)

    def _product(self, row: Any) -> None:
        """Add the casts of a product's inputs, and the product's 16-bit results."""
        dims, backward = row.flop_dims or [], row.gpu_op_id in self.backward
        has_bias = row.flop_operator == "aten::addmm"
        first = int(has_bias)
        if row.flop_operator in ("aten::mm", "aten::addmm") and not backward and len(dims) > first + 1:
            self._cast_parameters(row, [numel(dims[first + 1]), numel(dims[0]) if has_bias else 0])
            self._cast_input(row, numel(dims[first]))
        elif row.flop_operator == "aten::convolution" and len(dims) > 2:
            self._cast_parameters(row, [numel(dims[1]), numel(dims[2])])
            self._cast_input(row, numel(dims[0]))
        elif not backward and (row.category == "attention" or row.flop_operator in ("aten::bmm", "aten::baddbmm")):
            for size in [numel(shape) for shape in dims[:3] if numel(shape)]:
                self._cast_input(row, size)
        for size in result_sizes(row):
            self.tensors.add(size, in_16_bits=True)

    def _cast_parameters(self, row: Any, sizes: list[int]) -> None:
        """Add the casts of parameters in the forward pass, and of their gradients."""
        for size in (size for size in sizes if size):
            self._cast(row, size, 2)

    def _cast_input(self, row: Any, size: int) -> None:
        """Add the casts of an FP32 input and of its gradient."""
        in_16_bits = self.tensors.is_in_16_bits(size)
        if not in_16_bits:
            self._cast(row, size, 2 if in_16_bits is False else 1)  # An input from the loader has no gradient.

    def _cast(self, row: Any, size: int, times: int) -> None:
        if self.compiled:  # The compiler fuses casts into the kernels around them.
            return
        time = estimate(moving_work(CAST, float(CAST_BYTES * size), "fp32"), self.gpu)
        change = self.changes.setdefault(row.gpu_op_id, KernelChange(row.dur_ns, row.dur_ns, row.dur_ns))
        change.casts += times
        if time is None:
            return
        for _ in range(times):
            change.add(time)

    def _add_result(self, row: Any) -> None:
        """Add the result of an operator that moves data, and the operator's casts."""
        sizes = [numel(shape) if kind == "float" else 0 for shape, kind in zip(row.dims or (), row.types or (), strict=False)]
        largest = max(sizes, default=0)
        if largest <= 1:
            return
        inputs_in_16_bits = [self.tensors.is_in_16_bits(size) if size > 1 else None for size in sizes]
        if FP32_OPERATORS.match(row.operator) or FP32_BACKWARD_OPERATORS.match(row.operator):
            sizes_in_16_bits = [size for size, in_16_bits in zip(sizes, inputs_in_16_bits, strict=True) if in_16_bits]
            self._add_fp32_result(row, sizes_in_16_bits, largest)
            return
        joins = sizes.count(largest) > 1 and row.operator not in FIRST_INPUT_OPERATORS
        has_first_dtype = row.operator in FIRST_INPUT_OPERATORS or row.operator.endswith("_")
        deciding = inputs_in_16_bits[:1] if has_first_dtype else inputs_in_16_bits
        if row.operator == "aten::copy_" and len(inputs_in_16_bits) > 1:
            deciding = [inputs_in_16_bits[1]]
        in_16_bits = all(decides for size, decides in zip(sizes, deciding, strict=False) if size > 1) and any(deciding)
        if joins and not row.operator.endswith("backward") and not self.tensors.earlier.get(largest, True):
            in_16_bits = False
        if in_16_bits:
            self.calls_in_16_bits.add(row.cpu_op_id)
        elif joins and any(inputs_in_16_bits) and row.gpu_op_id not in self.backward:
            self._cast(row, largest, 1)  # The gradient of the 16-bit input.
        self.tensors.add(largest, in_16_bits=in_16_bits, joins=joins)

    def _compiled(self, row: Any) -> None:
        """Set a compiled kernel's time to the mean of its times with all tensors in 16 bits and with none."""
        ns_in_16_bits = row.dur_ns * 0.5**BYTES_POWER
        self.changes[row.gpu_op_id] = KernelChange((ns_in_16_bits + row.dur_ns) / 2, ns_in_16_bits, row.dur_ns)

    def _add_fp32_result(self, row: Any, sizes_in_16_bits: list[int], largest: int) -> None:
        """Add the FP32 result of an operator, with the casts of the 16-bit inputs and of their gradients.

        ``sizes_in_16_bits`` are the sizes of these inputs.
        """
        if FP32_BACKWARD_OPERATORS.match(row.operator):
            self.tensors.add(largest, in_16_bits=largest in self.tensors.cast_to_fp32)
            return
        for size in sizes_in_16_bits:
            self._cast(row, size, 2)
        self.tensors.cast_to_fp32.update(sizes_in_16_bits)
        self.tensors.add(largest, in_16_bits=False)

    def _set_16_bit_time(self, row: Any) -> None:
        """Set a kernel's time to the time on 16-bit tensors."""
        in_table = row.category != "softmax"  # The table is wrong by up to 40 % for softmax over long rows.
        times = [_moving_ms(row, dtype, self.gpu) if in_table else None for dtype in ("fp32", self.dtype)]
        if row.category == "memcpy" and "DtoD" not in row.kernel:
            return
        shortest = min(row.dur_ns, SHORTEST_KERNEL_NS)
        factor = times[1] / times[0] if times[0] and times[1] else 0.5**BYTES_POWER
        likely_ns = max(row.dur_ns * min(factor, 1.0), shortest)
        error_ns = (row.dur_ns - likely_ns) * GAIN_ERROR
        low_ns = max(likely_ns - error_ns, min(row.dur_ns / 2, likely_ns))
        self.changes[row.gpu_op_id] = KernelChange(likely_ns, low_ns, likely_ns + error_ns)


def _moving_ms(row: Any, dtype: str, gpu: GpuPeaks) -> float | None:
    """Return the time of a row's operator from the table of kernel times, None if it is missing."""
    types = ["c10::BFloat16" if name == "float" and dtype != "fp32" else name for name in row.types]
    moved_bytes = operator_bytes(row.operator, row.dims, types, row.concrete)
    if not moved_bytes:
        return None
    name = row.operator.replace("_backward_data", "_backward").rstrip("_") if row.operator != "aten::copy_" else "aten::copy_"
    layout = None
    if row.operator in NORMS:
        name, layout = NORMS[row.operator], "NHWC" if _is_nhwc(row) else "NCHW"
    elif name == "aten::copy_" and _transposes(row):
        name = "aten::copy_transposed"
    time = estimate(moving_work(name, moved_bytes, dtype, layout), gpu)
    return time.ms if time is not None else None


def _is_nhwc(row: Any) -> bool:
    strides = (row.strides or [None])[0]
    return isinstance(strides, list) and len(strides) == 4 and strides[1] == 1


def _transposes(row: Any) -> bool:
    """Return whether a copy reads and writes different strides."""
    strides = row.strides or []
    return len(strides) > 1 and strides[0] != strides[1]

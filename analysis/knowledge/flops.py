"""FLOPs and dtype of operators from their recorded shapes, and which operators count.

FLOPs follow PyTorch's flop counter (a multiply and an add are two). Products have 2·M·N·K. Attention has no causal discount. A
convolution's backward counts once per gradient that it computes. Two known errors of PyTorch's counter are avoided. It
multiplies the weight gradient of grouped convolutions by the number of groups, and it reads ``[batch, sequence, heads, dim]``
attention operators as ``[batch, heads, sequence, dim]``.

All functions depend only on one operator's name and signature, so callers compute them once per distinct signature.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND, dtype_of_type, has_sparse_operand, tensor_dtypes
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED

Dims = list[Any]
Shape = list[int]
Formula = Callable[[Dims, list[str]], float | None]

FP32_UNCERTAIN = "fp32 or tf32"  # Dtype of FP32 products whose kernels do not show whether they used tensor cores.

_INTEGER = re.compile(r"-?\d+")


def operator_flops(
    op_name: str, input_dims: Dims | None, concrete_inputs: list[Any] | None, input_strides: list[Any] | None = None
) -> float | None:
    """Return the FLOPs of one call; None if it is not a FLOP operator or its shapes are not sufficient.

    ``input_dims``, ``concrete_inputs`` and ``input_strides`` are the trace's ``Input Dims``, ``Concrete Inputs`` and ``Input
    Strides``, one entry per argument. Shapes do not show how many values of a sparse operand are zero, so its FLOPs are unknown.
    Complex products count like real ones, as in PyTorch's counter.
    """
    formula = _FORMULAS.get(op_name)
    if formula is None or not input_dims or has_sparse_operand(op_name, input_strides):
        return None
    concrete = [str(c) for c in concrete_inputs] if concrete_inputs else []
    try:
        return formula(input_dims, concrete)
    except (IndexError, TypeError, ValueError):
        return None  # The argument list is of another version, or a shape is truncated.


def is_flop_operator(op_name: str) -> bool:
    """Return whether an operator's FLOPs count; ``outermost`` prevents counting twice."""
    return op_name in _FORMULAS


def outermost(parent: NDArray[np.int64], counted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which counted operators have no counted operator around them.

    ``parent[i]`` is the index of the operator or annotation around operator i, -1 for none. ``aten::convolution`` contains
    ``aten::mm`` on some devices, and ``_scaled_dot_product_…`` contains ``_flash_attention_forward``. Only the outer operator
    counts.
    """
    outer = counted.copy()
    counted_rows = np.flatnonzero(counted)
    ancestors = parent[counted_rows]
    while len(counted_rows):
        inside = ancestors >= 0
        counted_rows, ancestors = counted_rows[inside], ancestors[inside]
        nested = counted[ancestors]
        outer[counted_rows[nested]] = False
        counted_rows, ancestors = counted_rows[~nested], parent[ancestors[~nested]]
    return outer


def operand_dtype(op_name: str, input_types: list[Any] | None) -> str | None:
    """Return the recorded dtype in which an operator multiplies: that of its first matrix operand."""
    if not input_types:
        return None
    first = FIRST_OPERAND.get(op_name, 0)
    if first < len(input_types) and (dtype := dtype_of_type(input_types[first])) is not None:
        return dtype
    return next(iter(tensor_dtypes(input_types)), None)


def peak_dtype(op_name: str, input_types: list[Any] | None, tensor_cores: str | None, vendor: str | None = None) -> str | None:
    """Return the dtype whose peak an operator is compared with (MFU at dtype, roofline).

    FP32 products on NVIDIA's tensor cores run in TF32. AMD's matrix cores multiply FP32 itself. Memory-efficient attention also
    multiplies FP32, with three TF32 products each.
    """
    dtype = operand_dtype(op_name, input_types)
    split = "efficient_attention" in op_name
    if dtype == "fp32" and tensor_cores in TENSOR_CORES_USED and vendor != "amd" and not split:
        return "tf32"
    return "int8" if dtype == "uint8" else dtype


# ------------------------------------------------------------------------------------------------ concrete inputs
def parse_ints(text: str | None) -> tuple[int, ...] | None:
    """Parse ``[1, 1]`` or ``3``; None if empty, truncated (``[1, …, ...]``) or not integers."""
    if not text or "..." in text or not re.fullmatch(r"\[?[\d\s,\-]*\]?", text):
        return None
    return tuple(int(n) for n in _INTEGER.findall(text))


def parse_bool(text: str | None) -> bool | None:
    """Parse ``True`` or ``False``; None otherwise."""
    return {"True": True, "False": False, "1": True, "0": False, "true": True, "false": False}.get((text or "").strip())


def parse_mask(text: str | None) -> tuple[bool, ...] | None:
    """Parse ``[True, True, False]``; None otherwise."""
    if not text or "..." in text:
        return None
    bits = [parse_bool(part) for part in text.strip("[] ").split(",")]
    return tuple(bool(bit) for bit in bits) if all(bit is not None for bit in bits) else None


def _per_axis(values: tuple[int, ...] | None, axes: int) -> tuple[int, ...] | None:
    if values is None or len(values) not in (1, axes):
        return None
    return values * axes if len(values) == 1 else values


# ------------------------------------------------------------------------------------------------ products
def _shape(dims: Dims, index: int, rank: int) -> Shape:
    shape = dims[index]
    if not isinstance(shape, list) or len(shape) != rank or not all(isinstance(n, int) for n in shape):
        raise ValueError("another rank")
    return shape


def _mm(first: int) -> Formula:
    def flops(dims: Dims, concrete: list[str]) -> float | None:
        (m, k), (k2, n) = _shape(dims, first, 2), _shape(dims, first + 1, 2)
        return 2.0 * m * n * k if k == k2 else None

    return flops


def _bmm(first: int) -> Formula:
    def flops(dims: Dims, concrete: list[str]) -> float | None:
        (b, m, k), (b2, k2, n) = _shape(dims, first, 3), _shape(dims, first + 1, 3)
        return 2.0 * b * m * n * k if (b, k) == (b2, k2) else None

    return flops


def _grouped_mm(dims: Dims, concrete: list[str]) -> float | None:
    """Return the FLOPs of 2-D × 3-D (ragged rows), 3-D × 2-D (columns), 2-D × 2-D (K) or 3-D × 3-D.

    The groups share M, N or K.
    """
    a, b = dims[0], dims[1]
    ranks = (len(a), len(b))
    if ranks == (2, 3):
        return 2.0 * a[0] * a[1] * b[2] if a[1] == b[1] else None
    if ranks == (3, 2):
        return 2.0 * a[1] * a[2] * b[1] if a[2] == b[0] else None
    if ranks == (2, 2):
        return 2.0 * a[0] * a[1] * b[1] if a[1] == b[0] else None
    return _bmm(0)(dims, concrete)


def _int4_mm(dims: Dims, concrete: list[str]) -> float | None:
    (m, k), packed = _shape(dims, 0, 2), dims[1]
    return 2.0 * m * k * packed[0] * 8  # Each row of the packed weight has eight output features.


def _int8_mm(dims: Dims, concrete: list[str]) -> float | None:
    (m, k), (n, k2) = _shape(dims, 0, 2), _shape(dims, 1, 2)
    return 2.0 * m * n * k if k == k2 else None


# ------------------------------------------------------------------------------------------------ convolution
def _one_convolution(batch: int, positions: Shape, weight: Shape) -> float:
    """Return the FLOPs of one convolution: each position is multiplied with the whole filter.

    ``weight`` is C_out × C_in/groups × filter, so this is right for grouped convolutions too.
    """
    return 2.0 * batch * math.prod(positions) * math.prod(weight)


def convolution_output(dims: Dims, concrete: list[str]) -> Shape | None:
    """Return the output shape of ``aten::convolution``.

    None where stride, padding or dilation were not recorded.
    """
    x, w = dims[0], dims[1]
    axes = len(x) - 2
    if axes < 1 or len(w) != len(x) or len(concrete) < 9:
        return None
    stride, padding, dilation = (_per_axis(parse_ints(concrete[i]), axes) for i in (3, 4, 5))
    transposed, groups = parse_bool(concrete[6]), parse_ints(concrete[8])
    if stride is None or padding is None or dilation is None or transposed is None or not groups:
        return None
    if transposed:
        extra = _per_axis(parse_ints(concrete[7]), axes) or (0,) * axes
        grown = zip(x[2:], stride, padding, dilation, w[2:], extra, strict=True)
        return [x[0], w[1] * groups[0], *((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, s, p, d, k, e in grown)]
    shrunk = zip(x[2:], stride, padding, dilation, w[2:], strict=True)
    return [x[0], w[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, s, p, d, k in shrunk)]


def _convolution(dims: Dims, concrete: list[str]) -> float | None:
    output = convolution_output(dims, concrete)
    if output is None:
        return None
    x, w = dims[0], dims[1]
    positions = x[2:] if parse_bool(concrete[6]) else output[2:]
    return _one_convolution(x[0], positions, w)


def _convolution_backward(dims: Dims, concrete: list[str]) -> float | None:
    grad, x, w = dims[0], dims[1], dims[2]
    mask = parse_mask(concrete[10]) if len(concrete) > 10 else None
    transposed = parse_bool(concrete[7]) if len(concrete) > 7 else None
    if mask is None or transposed is None or not len(grad) == len(x) == len(w) >= 3:
        return None
    # The bias gradient (third bit) is a sum without multiplications.
    return _one_convolution(x[0], (x if transposed else grad)[2:], w) * sum(mask[:2])


# ------------------------------------------------------------------------------------------------ attention
def _attention(first: int, backward: bool, heads_axis: int) -> Formula:
    """Return the formula of attention over 4-D query, key, value from argument ``first``.

    Packed (ragged) sequences cannot be recognized from shapes.
    """

    def flops(dims: Dims, concrete: list[str]) -> float | None:
        q, k, v = (_shape(dims, first + i, 4) for i in range(3))
        sequence_axis = 3 - heads_axis
        b, heads, s_q, s_k = q[0], q[heads_axis], q[sequence_axis], k[sequence_axis]
        if k[0] != b or q[3] != k[3] or s_k != v[sequence_axis] or heads % k[heads_axis]:
            return None
        d_qk, d_v = q[3], v[3]
        # The backward pass computes the scores again, and dP, dV, dQ and dK.
        per_pair = 3 * d_qk + 2 * d_v if backward else d_qk + d_v
        return 2.0 * b * heads * s_q * s_k * per_pair

    return flops


def _efficient_attention(backward: bool) -> Formula:
    dense = _attention(1 if backward else 0, backward, heads_axis=2)
    lengths = 6 if backward else 4  # cu_seqlens_q is set for packed sequences. The shapes do not contain their lengths.

    def flops(dims: Dims, concrete: list[str]) -> float | None:
        return None if len(dims) > lengths and dims[lengths] else dense(dims, concrete)

    return flops


_HEADS_FIRST = 1  # The shape is [batch, heads, sequence, dim].
_HEADS_THIRD = 2  # The shape is [batch, sequence, heads, dim].

_FORMULAS: dict[str, Formula] = {
    "aten::mm": _mm(0),
    "aten::addmm": _mm(1),
    "aten::addmm_": _mm(1),
    "aten::_addmm_activation": _mm(1),
    "aten::bmm": _bmm(0),
    "aten::baddbmm": _bmm(1),
    "aten::baddbmm_": _bmm(1),
    "aten::addbmm": _bmm(1),
    "aten::_int_mm": _mm(0),
    "aten::_scaled_mm": _mm(0),
    "aten::_scaled_mm_v2": _mm(0),
    "aten::_grouped_mm": _grouped_mm,
    "aten::_scaled_grouped_mm": _grouped_mm,
    "aten::_scaled_grouped_mm_v2": _grouped_mm,
    "aten::_weight_int4pack_mm": _int4_mm,
    "aten::_weight_int8pack_mm": _int8_mm,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::_scaled_dot_product_flash_attention": _attention(0, False, _HEADS_FIRST),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, False, _HEADS_FIRST),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, False, _HEADS_FIRST),
    "aten::_scaled_dot_product_fused_attention_overrideable": _attention(0, False, _HEADS_FIRST),
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, True, _HEADS_FIRST),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, True, _HEADS_FIRST),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, True, _HEADS_FIRST),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _attention(1, True, _HEADS_FIRST),
    # The inner operators count if no operator above is around them. xFormers and the flash-attn package call them directly.
    "aten::_flash_attention_forward": _attention(0, False, _HEADS_THIRD),
    "aten::_flash_attention_backward": _attention(1, True, _HEADS_THIRD),
    "aten::_efficient_attention_forward": _efficient_attention(False),
    "aten::_efficient_attention_backward": _efficient_attention(True),
    "flash_attn::_flash_attn_forward": _attention(0, False, _HEADS_THIRD),
    "flash_attn::_flash_attn_backward": _attention(1, True, _HEADS_THIRD),
    "flash_attn_3::fwd": _attention(0, False, _HEADS_THIRD),
    "flash_attn_3::bwd": _attention(1, True, _HEADS_THIRD),
}

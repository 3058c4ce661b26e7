"""Bytes that an operator must move at least, from its recorded shapes and dtypes, for the roofline."""

from __future__ import annotations

import math
import re
from typing import Any

from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND, ITEM_BYTES, dtype_of_type
from sawtooth.analysis.knowledge.flops import Dims, Shape, convolution_output, is_flop_operator, operand_dtype, parse_mask


def operator_bytes(
    op_name: str, input_dims: Dims | None, input_types: list[Any] | None, concrete_inputs: list[Any] | None
) -> float | None:
    """Return the bytes that one call must move at least: every input read once, every output written once.

    This is exact for FLOP operators. For others, the output is assumed to be as large as the broadcast of the inputs. That is
    right for elementwise operators, copies, normalization and softmax. The result is None for operators of other kinds.
    """
    if not input_dims or not input_types:
        return None
    concrete = [str(c) for c in concrete_inputs] if concrete_inputs else []
    try:
        read = _read_bytes(input_dims, input_types)
        written = _written_bytes(op_name, input_dims, input_types, concrete)
    except (IndexError, TypeError, ValueError):
        return None
    return None if read is None or written is None else read + written


def _read_bytes(dims: Dims, types: list[Any]) -> float | None:
    total = 0.0
    for shape, recorded in zip(dims, types, strict=False):
        dtype = dtype_of_type(recorded)
        if dtype is not None:
            total += math.prod(shape) * ITEM_BYTES[dtype]
    return total or None


def _numel(shape: Any) -> float:
    return float(math.prod(shape))


def _written_bytes(op_name: str, dims: Dims, types: list[Any], concrete: list[str]) -> float | None:
    dtype = operand_dtype(op_name, types)
    if dtype is None:
        return None
    elements = _output_elements(op_name, dims, concrete)
    if elements is None:
        return None
    size = ITEM_BYTES[dtype]
    return elements * (2.0 if op_name in _WIDENS_TO_16_BIT else 4.0 if op_name == "aten::_int_mm" else size)


_WIDENS_TO_16_BIT = ("aten::_scaled_mm", "aten::_scaled_mm_v2", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")


def _output_elements(op_name: str, dims: Dims, concrete: list[str]) -> float | None:
    if op_name == "aten::convolution":
        output = convolution_output(dims, concrete)
        return _numel(output) if output else None
    if op_name == "aten::convolution_backward":
        mask = parse_mask(concrete[10]) if len(concrete) > 10 else None
        if mask is None:
            return None
        return sum(_numel(shape) for shape, bit in zip((dims[1], dims[2]), mask, strict=False) if bit)
    if is_flop_operator(op_name) and ("attention" in op_name or "flash_attn" in op_name):
        if op_name.endswith(("backward", "::bwd")):
            return sum(_numel(shape) for shape in dims[1:4])  # These are dQ, dK and dV.
        return _numel(dims[0][:-1]) * dims[2][-1]
    if is_flop_operator(op_name):
        first = FIRST_OPERAND.get(op_name, 0)
        return _product_elements(dims[first], dims[first + 1])
    return _broadcast_elements(op_name, dims)


def _product_elements(a: Shape, b: Shape) -> float | None:
    ranks = (len(a), len(b))
    if ranks == (2, 2):
        return float(a[0] * b[1])
    if ranks == (3, 3):
        return float(a[0] * a[1] * b[2])
    if ranks == (2, 3):
        return float(a[0] * b[2])
    return float(a[1] * b[1]) if ranks == (3, 2) else None


_SMALL_OUTPUT = re.compile(
    r"^aten::(sum|mean|max|min|amax|amin|arg|prod|all|any|norm|linalg_vector_norm|var|std|nll_loss|mse_loss|item|_local|nonzero)"
)
_NO_TRAFFIC_RULE = re.compile(
    r"embedding|index|gather|scatter|pool|upsample|sort|topk|foreach|_fused_|mm$|conv|attention|rnn|c10d|nccl"
)


def _broadcast_elements(op_name: str, dims: Dims) -> float | None:
    shapes = [shape for shape in dims if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape)]
    if not shapes or not op_name.startswith("aten::") or _NO_TRAFFIC_RULE.search(op_name):
        return None
    if _SMALL_OUTPUT.match(op_name):
        return 0.0 if not op_name.endswith("backward") else max(_numel(shape) for shape in shapes)
    rank = max(len(shape) for shape in shapes)
    axes = zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True)
    broadcast = [set(sizes) - {1} for sizes in axes]
    if any(len(sizes) > 1 for sizes in broadcast):  # These parameters have another layout, such as a batch norm's weight.
        return max(_numel(shape) for shape in shapes)
    return float(math.prod(sizes.pop() if sizes else 1 for sizes in broadcast))

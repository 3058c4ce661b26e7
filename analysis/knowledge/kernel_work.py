"""The work of an operator's kernels, from its recorded shapes, strides and arguments.

``kernel_time`` estimates times from it. Each function returns the work of the operator as recorded. With keywords, it returns
the work of the same operator in another dtype, layout or alignment. The result is None for operators that the model does not
know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND, ITEM_BYTES, has_sparse_operand
from sawtooth.analysis.knowledge.flops import convolution_output, parse_bool, parse_ints, parse_mask
from sawtooth.analysis.knowledge.kernel_time import KernelWork, Product, row_dtype

Shape = list[int]
ALIGNED_BYTES = 16  # The size of one load of a tensor-core tile.
CHANNEL_MULTIPLE = 8  # A tensor-core convolution first pads channels in memory to a multiple of this.
CAUSAL_SHARE = 0.5  # Causal attention computes this share of the blocks.
HEAD_SIZES = (32, 64, 128, 256)  # Kernels are compiled for these sizes; a head of 80 runs as 128.
QUERY_BLOCK = 128  # One block of an attention kernel has this many rows of queries.
# The position of `is_causal` among the operator's arguments.
CAUSAL_AT = {
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_flash_attention_backward": 11,
    "aten::_scaled_dot_product_efficient_attention_backward": 11,
    "aten::_scaled_dot_product_cudnn_attention_backward": 14,
}


def product_work(
    operator: str, dims: Any, strides: Any, dtype: str, *, resized: Mapping[int, int] | None = None
) -> KernelWork | None:
    """Return the work of a matrix product in ``dtype``; None if an operand is unknown or sparse.

    If ``resized`` is set, it has the new value of sizes that change; all rows are then aligned.
    """
    pair = _operands(operator, dims)
    if pair is None:
        return None
    first = FIRST_OPERAND.get(operator, 0)
    if has_sparse_operand(operator, strides):
        return None
    batch, m, n, k = pair
    aligned = True
    if resized is None:
        aligned = _is_aligned(strides, first, dtype, n, k)
    else:
        m, n, k = (resized.get(size, size) for size in (m, n, k))
    size, output = ITEM_BYTES[dtype], ITEM_BYTES["bf16"] if dtype == "fp8" else ITEM_BYTES[dtype]
    moved = batch * (size * (m * k + k * n) + output * m * n)
    return KernelWork(_product_row(dtype, aligned, _order(strides, first)), dtype, moved, (Product(batch, m, n, k),))


def _operands(operator: str, dims: Any) -> tuple[int, int, int, int] | None:
    first = FIRST_OPERAND.get(operator, 0)
    try:
        a, b = dims[first], dims[first + 1]
        if len(a) == len(b) == 2:
            return 1, a[0], b[1], a[1]
        if len(a) == len(b) == 3:
            return a[0], a[1], b[2], a[2]
    except (TypeError, IndexError):
        pass
    return None


def _product_row(dtype: str, aligned: bool, order: str | None) -> str:
    if not aligned and dtype != "fp8":
        return f"gemm.{row_dtype(dtype)}.odd"
    return f"gemm.tf32.{order or 'any'}" if dtype == "tf32" else f"gemm.{row_dtype(dtype)}"


def _order(strides: Any, first: int) -> str | None:
    """Return NN, NT, TN or TT by which operand is a transposed view; None if strides were not recorded."""
    try:
        letters = "".join("T" if s[-2] == 1 and s[-1] != 1 else "N" for s in (strides[first], strides[first + 1]))
    except (TypeError, IndexError):
        return None
    return letters if letters != "TT" else None


def _is_aligned(strides: Any, first: int, dtype: str, n: int, k: int) -> bool:
    """Return whether rows of both operands and of the result start at multiples of ALIGNED_BYTES.

    The contiguous dimension counts, not M.
    """
    steps = [n]
    for index, width in ((first, k), (first + 1, n)):
        try:
            step = [int(s) for s in strides[index][-2:]]
        except (TypeError, IndexError, ValueError):
            step = [width, 1]
        steps.append(max(step))
    return all(step * ITEM_BYTES[dtype] % ALIGNED_BYTES == 0 for step in steps)


def convolution_work(
    operator: str, dims: Any, strides: Any, concrete: list[str] | None, dtype: str, *, layout: str | None = None
) -> KernelWork | None:
    """Return the work of a convolution or of its backward pass in ``dtype`` and ``layout``.

    ``layout`` is NCHW or NHWC; None means as recorded.
    """
    backward = operator == "aten::convolution_backward"
    if operator not in ("aten::convolution", "aten::convolution_backward") or not concrete:
        return None
    try:
        image, weight = (dims[1], dims[2]) if backward else (dims[0], dims[1])
        output = dims[0] if backward else convolution_output(dims, concrete)
        groups = int((parse_ints(concrete[9 if backward else 8]) or (1,))[0])
        transposed = parse_bool(concrete[7 if backward else 6])
        gradients = (parse_mask(concrete[10]) or (True, True, False))[:2] if backward else (True,)
    except (TypeError, IndexError, ValueError):
        return None
    if not output or transposed or len(image) < 3:
        return None
    layout = layout or _layout(strides, 1 if backward else 0)
    products = (
        _backward_products(image, weight, output, groups, gradients) if backward else _forward_products(weight, output, groups)
    )
    row = f"conv.{row_dtype(dtype)}.{layout}.{_kind(image, weight, output, groups)}.{'backward' if backward else 'forward'}"
    # A stride may skip most of the image.
    read = min(math.prod(image), math.prod(image[:2]) * math.prod(output[2:]) * math.prod(weight[2:]))
    moved = (read + math.prod(weight) + math.prod(output)) * ITEM_BYTES[dtype] * len([w for w in gradients if w])
    if groups > 1:
        return KernelWork(row, dtype, moved, flops=sum(p.flops for p in products))
    return KernelWork(row, dtype, moved, products)


def _layout(strides: Any, index: int) -> str:
    try:
        step = strides[index]
        return "NHWC" if step[1] == 1 and step[-1] != 1 else "NCHW"
    except (TypeError, IndexError):
        return "NCHW"


def _kind(image: Shape, weight: Shape, output: Shape, groups: int) -> str:
    if groups > 1:
        return "depthwise" if weight[1] == 1 else "grouped"
    if image[1] % CHANNEL_MULTIPLE or weight[0] % CHANNEL_MULTIPLE:
        return "narrow"
    return "pointwise" if math.prod(weight[2:]) == 1 and image[2:] == output[2:] else "spatial"


def _forward_products(weight: Shape, output: Shape, groups: int) -> tuple[Product, ...]:
    return (Product(groups, output[0] * math.prod(output[2:]), weight[0] / groups, math.prod(weight[1:])),)


def _backward_products(
    image: Shape, weight: Shape, output: Shape, groups: int, gradients: tuple[bool, ...]
) -> tuple[Product, ...]:
    """Return the products of the image's gradient and of the weight's gradient.

    The first is a product over output channels and kernel, the second one over all positions.
    """
    places, kernel = output[0] * math.prod(output[2:]), math.prod(weight[2:])
    pixels = image[0] * math.prod(image[2:])
    to_image = Product(groups, pixels, weight[1], weight[0] / groups * kernel * places / pixels)
    to_weight = Product(groups, weight[0] / groups, math.prod(weight[1:]), places)
    return tuple(product for product, bit in zip((to_image, to_weight), gradients, strict=False) if bit)


def attention_work(query: Shape, key: Shape, dtype: str, *, backend: str, causal: bool, backward: bool) -> KernelWork | None:
    """Return the work of attention of a (batch, heads, seq, head) ``query`` over ``key``.

    ``backend`` is flash, efficient or cudnn.
    """
    try:
        batch, heads, seq, head = query
        past = key[2]
    except (TypeError, ValueError, IndexError):
        return None
    compiled = next((size for size in HEAD_SIZES if head <= size), None)
    if compiled is None:
        return None
    row = f"attention.{backend}.{row_dtype(dtype)}.{compiled}.{'backward' if backward else 'forward'}"
    share = CAUSAL_SHARE if causal and seq == past else 1.0
    flops = 4.0 * batch * heads * seq * past * compiled * share * (2.5 if backward else 1.0)
    moved = 2.0 * batch * heads * (seq + past) * head * ITEM_BYTES[dtype] * (2.0 if backward else 1.0)
    return KernelWork(row, dtype, moved, flops=flops)


def recorded_attention(operator: str, dims: Any, concrete: list[str] | None, dtype: str) -> KernelWork | None:
    """Return the work of one of PyTorch's fused attention operators as recorded."""
    if operator not in CAUSAL_AT or not isinstance(dims, list):
        return None
    backward = operator.endswith("_backward")
    backend = operator.removeprefix("aten::_scaled_dot_product_").split("_")[0]
    try:
        query, key = dims[1:3] if backward else dims[:2]
        causal = parse_bool((concrete or [])[CAUSAL_AT[operator]])
    except (ValueError, IndexError):
        return None
    return attention_work(query, key, dtype, backend=backend, causal=bool(causal), backward=backward)


def moving_work(operator: str, moved_bytes: float, dtype: str, layout: str | None = None) -> KernelWork:
    """Return the work of an operator that only moves ``moved_bytes``: norm, activation, softmax or copy."""
    name = operator.removeprefix("aten::")
    return KernelWork(f"move.{row_dtype(dtype)}.{name}" + (f".{layout}" if layout else ""), dtype, moved_bytes)


def optimizer_work(name: str, kind: str, values: float) -> KernelWork:
    """Return the work of one optimizer step over ``values`` FP32 parameters; ``kind`` is foreach or fused."""
    return KernelWork(f"optimizer.{name}.{kind}", "fp32", values * 4.0 * (5 if name == "SGD" else 7))

"""Reasons why an operator that could use tensor cores does not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND, SIXTEEN_BIT
from sawtooth.analysis.knowledge.flops import is_flop_operator, operand_dtype
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_names import FLOP_CATEGORIES, KernelClass

ALIGNMENT_16_BIT = 8  # Elements: 16 bytes of fp16 or bf16, one tensor-core load (NVIDIA's matrix multiplication guide).
ALIGNMENT_8_BIT = 16  # Number of elements in 16 bytes of fp8 or int8.
ALIGNMENT_TF32 = 4  # Number of elements in 16 bytes of FP32.
# Dtypes by the kernel's name, for operators whose dtype was not recorded.
NAMED_DTYPES = (
    ("fp64", re.compile(r"dgemm|<double\b|f64f64")),
    ("fp16", re.compile(r"hgemm|<__half\b|f16f16")),
    ("fp32", re.compile(r"sgemm|scudnn|<float\b|_ffma_|f32f32_f32f32")),
)
SMALL_SIDE = 8  # Products with a side up to 8 are nearly vectors, which alignment does not slow.
VECTOR_SIDE = 1  # A product with one row or column moves as many numbers as it multiplies, so tensor cores cannot speed it up.

Code = Literal["fp32", "fp64", "not_eligible_dtype", "misaligned", "vector", "no_tensor_cores", "helper", "fell_back"]


@dataclass(frozen=True)
class WhyNot:
    """A reason: ``code`` for rules, ``sentence`` for users."""

    code: Code
    sentence: str


def why_not_tensor_cores(
    op_name: str | None,
    input_types: list[Any] | None,
    input_dims: list[Any] | None,
    kernel_class: KernelClass,
    gpu: GpuPeaks | None,
    *,
    kernel: str = "",
    tf32_on: bool = False,
    input_strides: list[Any] | None = None,
) -> WhyNot | None:
    """Return why an operator's kernel uses no tensor cores; None if the question does not apply.

    The question applies to products, convolutions and attention whose kernel has class ``no``. An ``unknown`` kernel has no reason yet.
    Helpers around products (split-K reductions, conversions) are named as such. The dtype is checked first, then the GPU, then
    the shape; otherwise it is the library's choice. ``kernel`` is the kernel's name, used for the dtype if none was recorded.
    ``tf32_on`` says that the trace shows other FP32 operators of this category on tensor cores.
    """
    if kernel_class.tensor_cores != "no" or kernel_class.category not in FLOP_CATEGORIES:
        return None
    if any(word in kernel_class.reason for word in ("adds up", "prepares")):
        return WhyNot("helper", "A helper kernel around the product, which multiplies nothing itself.")
    if "matrix times vector" in kernel_class.reason:
        return WhyNot("vector", "A matrix times a vector: memory limits it, so tensor cores would not make it faster.")
    if gpu is not None and not _has_tensor_cores(gpu):
        return WhyNot("no_tensor_cores", f"{gpu.name} has no tensor cores.")
    dtype = operand_dtype(op_name, input_types) if op_name else None
    if dtype is None:
        dtype = next((name for name, pattern in NAMED_DTYPES if pattern.search(kernel)), None)
    by_dtype = None if dtype == "fp32" and tf32_on else _because_of_dtype(dtype, gpu)
    if by_dtype is not None or dtype is None:
        return by_dtype or WhyNot(
            "fell_back", "The library chose a kernel of plain arithmetic; the operator's dtype was not recorded."
        )
    alignment = ALIGNMENT_16_BIT if dtype in SIXTEEN_BIT else ALIGNMENT_TF32 if dtype == "fp32" else ALIGNMENT_8_BIT
    odd = _misaligned_sizes(op_name or "", input_dims, alignment, input_strides)
    if odd:
        sizes = ", ".join(str(n) for n in odd)
        return WhyNot(
            "misaligned", f"Dimensions not multiples of {alignment}: {sizes}. Pad them, and the library can load whole tiles."
        )
    dtype_in_words = "TF32 is on" if dtype == "fp32" else f"The operands are {dtype}"
    alignment_in_words = " and the sizes are aligned" if input_dims else ""
    return WhyNot("fell_back", f"{dtype_in_words}{alignment_in_words}, yet the library chose a kernel of plain arithmetic.")


def _has_tensor_cores(gpu: GpuPeaks) -> bool:
    """Return whether the GPU has tensor cores.

    16-bit tensor cores multiply at least four times as fast as FP32 units; plain FP16 units at most twice.
    """
    fp32 = gpu.peak_tflops("fp32")
    return fp32 is None or gpu.peak_16bit_tflops >= 2.5 * fp32 or gpu.vendor == "amd" or "tf32" in gpu.peaks


def _because_of_dtype(dtype: str | None, gpu: GpuPeaks | None) -> WhyNot | None:
    if dtype == "fp32":
        if gpu is None:
            return WhyNot("fp32", "FP32: use bf16 or fp16 autocast, or allow TF32 if the GPU has it.")
        if "tf32" in gpu.peaks:
            return WhyNot("fp32", "FP32 with TF32 off: use bf16 autocast, or allow TF32.")
        fast = " or ".join(name for name in ("bf16", "fp16") if name in gpu.peaks)
        return WhyNot("fp32", f"FP32, which this GPU's tensor cores do not multiply: use {fast or '16-bit'} autocast.")
    if dtype == "fp64":
        return WhyNot("fp64", "FP64: few training runs need it.")
    if dtype is not None and dtype not in (*SIXTEEN_BIT, "fp8", "fp4", "int8"):
        return WhyNot("not_eligible_dtype", f"Tensor cores do not multiply {dtype}.")
    return None


def misaligned_rows(op_name: str, dims: list[Any] | None, strides: list[Any] | None, alignment: int) -> list[int]:
    """Return the row lengths of a product's matrices that are not multiples of ``alignment``.

    A row length is the number of elements from one row to the next. A tile is loaded along the contiguous dimension, so only
    the distance between its rows must be aligned; the number of rows does not matter. For an operand, that is the larger of its
    two strides. For the result, which is contiguous, it is the last dimension. If strides were not recorded, only the result's
    row length is known.
    """
    first = FIRST_OPERAND.get(op_name, 0)
    operands = (dims or [])[first : first + 2]
    if len(operands) < 2 or not all(_is_matrix(shape) for shape in operands):
        return []
    rows = [_row_length(shape, stride) for shape, stride in zip(operands, (strides or [])[first : first + 2], strict=False)]
    if min(operands[0][-2], operands[1][-1]) > SMALL_SIDE:
        rows.append(operands[1][-1])
    return sorted({n for n in rows if n is not None and n % alignment})


def _is_matrix(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) >= 2 and all(isinstance(n, int) for n in shape)


def _row_length(shape: list[int], stride: Any) -> int | None:
    """Return the number of elements between the rows of a matrix.

    None if neither its rows nor its columns are contiguous, or it is nearly a vector.
    """
    if not _is_matrix(stride) or min(shape[-2:]) <= SMALL_SIDE or min(stride[-2:]) != 1:
        return None
    return int(max(stride[-2:]))


def _misaligned_sizes(op_name: str, input_dims: list[Any] | None, alignment: int, strides: list[Any] | None) -> list[int]:
    """Return the sizes of the operator's matrices that are not multiples of ``alignment``.

    For a product with known strides, these are its row lengths.
    """
    if not input_dims or not is_flop_operator(op_name):
        return []
    first = FIRST_OPERAND.get(op_name, 0)
    operands = [shape for shape in input_dims[first : first + 2] if isinstance(shape, list) and len(shape) >= 2]
    if "convolution" in op_name:
        weight = input_dims[2] if "backward" in op_name and len(input_dims) > 2 else operands[-1] if operands else []
        sizes = list(weight[:2])  # Output and input channels, which the implicit product divides into tiles.
    elif "attention" in op_name or "flash_attn" in op_name:
        sizes = [shape[-1] for shape in operands]  # The head dimension.
    elif strides:
        return misaligned_rows(op_name, input_dims, strides, alignment)
    else:
        sizes = [n for shape in operands for n in shape[-2:]]
    return sorted({n for n in sizes if isinstance(n, int) and n % alignment and n > VECTOR_SIDE})

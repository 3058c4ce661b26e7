"""Operands as traces write them: dtypes, their sizes, places among the arguments, sparse layouts."""

from __future__ import annotations

from typing import Any

# The profiler's C++ type names of tensors → our dtype. Other entries of ``Input type`` are not tensors.
DTYPE_OF_TYPE = {
    "float": "fp32",
    "double": "fp64",
    "c10::Half": "fp16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
    "c10::Float8_e4m3fnuz": "fp8",
    "c10::Float8_e5m2fnuz": "fp8",
    "c10::Float8_e8m0fnu": "e8m0",
    "c10::Float4_e2m1fn_x2": "fp4",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "short int": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "long long": "int64",
    "bool": "bool",
    "c10::complex<c10::Half>": "complex32",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "c10::qint8": "int8",
    "c10::quint8": "uint8",
    "c10::qint32": "int32",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
}

ITEM_BYTES = {
    # One recorded element of fp4 packs two values.
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "e8m0": 1, "fp4": 1,
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip

SIXTEEN_BIT = ("bf16", "fp16")

_BIASED = ("aten::addmm", "aten::addmm_", "aten::_addmm_activation", "aten::baddbmm", "aten::baddbmm_", "aten::addbmm")
_PRODUCTS = frozenset(("aten::mm", "aten::bmm", *_BIASED))
FIRST_OPERAND = dict.fromkeys(_BIASED, 1)  # Argument 0 is the bias that is added.
# Kernels of libraries for sparse matrices. They show a sparse product in recordings without strides.
SPARSE_KERNEL = r"(cu|hip|roc)sparse(::|_)"


def dtype_of_type(recorded: Any) -> str | None:
    """Return our dtype for one entry of ``Input type``; None for scalars, lists and unknown types."""
    return DTYPE_OF_TYPE.get(recorded) if isinstance(recorded, str) else None


def tensor_dtypes(input_types: Any) -> tuple[str, ...]:
    """Return the dtypes of the tensors among ``Input type``, in order; tensor lists are flattened."""
    if not isinstance(input_types, list | tuple):
        return ()
    dtypes: list[str] = []
    for entry in input_types:
        if isinstance(entry, list | tuple):
            dtypes.extend(tensor_dtypes(entry))
        elif (dtype := dtype_of_type(entry)) is not None:
            dtypes.append(dtype)
    return tuple(dtypes)


def has_sparse_operand(op_name: str, input_strides: list[Any] | None) -> bool:
    """Return whether an operand of a matrix product is sparse.

    A trace with strides records an empty list for a sparse operand.
    """
    if op_name not in _PRODUCTS or not input_strides:
        return False
    first = FIRST_OPERAND.get(op_name, 0)
    return any(strides == [] for strides in input_strides[first : first + 2])

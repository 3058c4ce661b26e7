"""A kernel's category and tensor-core use, from its name, its operator and that operator's dtypes.

The rules are in ``kernel_names.toml``. In each of its tables, the first matching row decides.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from sawtooth.analysis.knowledge.dtypes import SIXTEEN_BIT, tensor_dtypes

TensorCores = Literal["yes", "likely", "no", "unknown"]

FLOP_CATEGORIES = ("gemm", "conv", "attention")  # The kernels whose work the FLOP counter counts.
# Mangled template names have up to a few thousand characters. A longer name is an attack on the regular expressions.
NAME_LENGTH = 4096
# Distinct (kernel, operator, signature) triples: recordings have hundreds, a server reads many recordings.
CACHE_SIZE = 1 << 16

_MAY_USE = (*FLOP_CATEGORIES, "rnn", "state_space", "other")  # Categories whose kernels can use matrix instructions.
_LIKELY_DTYPES = (*SIXTEEN_BIT, "fp8", "fp4", "int8")  # Libraries multiply these on tensor cores wherever the device has them.
_PLAIN_DTYPES = (
    "int16",
    "int32",
    "int64",
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "complex32",
    "complex64",
    "complex128",
)
_VECTOR_OPS = re.compile(r"^aten::(mv|addmv_?|v?dot|addr_?|inner)$")
_MATRIX_CORES_SINCE = {"nvidia": 7, "amd": 9}  # Volta. Gfx908 (gfx906 also reports 9 and is recognized by its kernels' names).


@dataclass(frozen=True)
class KernelClass:
    """A kernel's class.

    ``category`` is as in kernel_names.toml (``other`` where no row matches). ``reason`` is one readable phrase.
    """

    category: str
    tensor_cores: TensorCores
    reason: str


@dataclass(frozen=True)
class KernelNameRule:
    """One row of a table; ``why`` explains a tensor-core row to users."""

    pattern: re.Pattern[str]
    result: str
    why: str
    source: str
    example: str


@cache
def tables() -> dict[str, tuple[KernelNameRule, ...]]:
    """Return the tables ``category``, ``operator`` and ``tensor_cores``, which the Reference page prints."""
    data = tomllib.loads(Path(__file__).with_name("kernel_names.toml").read_text(encoding="utf-8"))
    return {
        table: tuple(
            KernelNameRule(re.compile(r["pattern"]), r["result"], r.get("why", ""), r["source"], r["example"]) for r in rows
        )
        for table, rows in data.items()
    }


def first_match(table: str, name: str) -> KernelNameRule | None:
    """Return the row of ``table`` that decides for ``name``."""
    text = _without_parameters(name[:NAME_LENGTH]).lower()
    return next((rule for rule in tables()[table] if rule.pattern.search(text)), None)


def _without_parameters(name: str) -> str:
    """Remove the parameter list from a demangled C++ name.

    The types in the list, such as ``cudnn::reduced_divisor``, belong to other code and would be misleading.
    """
    if not name.endswith(")"):
        return name
    depth = 0
    for position in range(len(name) - 1, -1, -1):
        depth += (name[position] == ")") - (name[position] == "(")
        if depth == 0:
            return name[:position] or name
    return name


_first_match = lru_cache(maxsize=CACHE_SIZE)(first_match)


def operator_category(op_name: str | None) -> str | None:
    """Return the category of an operator; None for annotations, autograd nodes and unknown operators."""
    if not op_name:
        return None
    is_operator = "::" in op_name and not op_name.startswith(("autograd::", "torch::autograd::"))
    if not is_operator and not op_name.startswith(("record_param_comms", "nccl:", "gloo:", "Optimizer.step")):
        return None
    rule = _first_match("operator", op_name)
    return rule.result if rule else None


def classify(
    kernel_name: str,
    kind: str,
    op_name: str | None = None,
    input_types: list[Any] | None = None,
    input_dims: list[Any] | None = None,
    *,
    vendor: str | None = None,
    compute_major: int | None = None,
) -> KernelClass:
    """Return the category and tensor-core use of one GPU operation.

    ``kind`` is kernel, memcpy or memset as recorded by the profiler. ``op_name`` with ``input_types`` and ``input_dims`` is the
    innermost operator around the launch. Kernels that copy or set memory get memcpy or memset, whatever their kind.
    """
    dtypes = tensor_dtypes(input_types)
    return _classify(
        name=kernel_name,
        kind=kind,
        op=op_name,
        dtypes=dtypes,
        vector=_is_vector_product(op_name, input_dims),
        vendor=vendor,
        compute_major=compute_major,
    )


@lru_cache(maxsize=CACHE_SIZE)
def _classify(
    *,
    name: str,
    kind: str,
    op: str | None,
    dtypes: tuple[str, ...],
    vector: bool,
    vendor: str | None,
    compute_major: int | None,
) -> KernelClass:
    if kind in ("memcpy", "memset"):
        return KernelClass(kind, "no", f"the profiler records it as {kind}")
    category = _category(name, op)
    use, reason = _tensor_cores(
        name=name, category=category, op=op, dtypes=dtypes, vector=vector, vendor=vendor, compute_major=compute_major
    )
    return KernelClass(category, use, reason)


def _category(name: str, op: str | None) -> str:
    rule = _first_match("category", name)
    by_name = rule.result if rule else "other"
    by_op = operator_category(op)
    if by_op is None:
        return by_name
    if by_name == "other" or (by_name in FLOP_CATEGORIES and by_op in FLOP_CATEGORIES):
        return by_op
    if by_name == "fused" and by_op == "gemm":
        return by_op  # A product launches no other code of Inductor, so the name does not describe the kernel.
    return by_name


def _tensor_cores(
    *,
    name: str,
    category: str,
    op: str | None,
    dtypes: tuple[str, ...],
    vector: bool,
    vendor: str | None,
    compute_major: int | None,
) -> tuple[TensorCores, str]:
    if category not in _MAY_USE:
        return "no", f"{category} kernels multiply no matrices"
    since = _MATRIX_CORES_SINCE.get(vendor or "nvidia", 0)
    if compute_major is not None and vendor in _MATRIX_CORES_SINCE and compute_major < since:
        return "no", "this GPU has no tensor cores"
    rule = _first_match("tensor_cores", name)
    if rule is not None:
        use: TensorCores = rule.result  # type: ignore[assignment]  # the table's test allows only these words
        if use == "likely" and dtypes and dtypes[0] in ("fp32", "fp64"):
            return _by_dtype(category, dtypes, vendor, compute_major)
        return use, rule.why
    if vector or (op and _VECTOR_OPS.match(op)):
        return "no", "matrix times vector: bound by memory, done with plain arithmetic"
    if category == "other" or (category != operator_category(op) and not dtypes):
        return "unknown", "neither the kernel's name nor an operator shows it"
    return _by_dtype(category, dtypes, vendor, compute_major)


def _by_dtype(category: str, dtypes: tuple[str, ...], vendor: str | None, compute_major: int | None) -> tuple[TensorCores, str]:
    if not dtypes:
        return "unknown", "the kernel's name does not show it, and the operator's dtypes were not recorded"
    dtype = dtypes[0]
    if category in ("rnn", "state_space"):
        return ("no", f"{dtype} inputs") if dtype in _PLAIN_DTYPES else ("unknown", "the kernel's name does not show it")
    if dtype in _LIKELY_DTYPES:
        return "likely", f"{category} of {dtype} inputs"
    if dtype in _PLAIN_DTYPES:
        return "no", f"{category} of {dtype} inputs"
    if vendor == "nvidia" and compute_major is not None and compute_major < 8:
        return "no", f"{category} of {dtype} inputs: before Ampere tensor cores multiply 16-bit and int8 only"
    if dtype == "fp64" and vendor == "nvidia" and compute_major is not None and compute_major >= 12:
        return "no", "FP64 on a GPU without FP64 tensor cores"
    return "unknown", f"{category} of {dtype} inputs: the name does not show whether TF32 or plain arithmetic was used"


def _is_vector_product(op_name: str | None, input_dims: list[Any] | None) -> bool:
    """Return whether an mm or addmm has a single row or column, for which libraries use gemv code."""
    if op_name not in ("aten::mm", "aten::addmm", "aten::bmm") or not input_dims:
        return False
    shapes = [d for d in input_dims if isinstance(d, list) and d and all(isinstance(x, int) for x in d)]
    if len(shapes) < 2:
        return False
    a, b = shapes[-2:]
    return len(a) >= 2 and len(b) >= 2 and (a[-2] == 1 or b[-1] == 1)

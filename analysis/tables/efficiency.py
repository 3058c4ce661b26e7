"""Tables of the Efficiency page from one recording: the roofline, and operators without tensor cores."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sawtooth.analysis.knowledge.flops import is_flop_operator, peak_dtype
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_names import KernelClass, classify
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED
from sawtooth.analysis.knowledge.roofline import roofline
from sawtooth.analysis.knowledge.tensor_cores import why_not_tensor_cores
from sawtooth.analysis.nulls import decode_cell
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

TENSOR_CORE_COLUMNS = {
    "operator": "Operator of the product, convolution or attention; empty if the trace does not contain it",
    "input_dims": "Its input shapes as recorded",
    "category": "gemm, conv or attention",
    "kernel": "The kernel without tensor cores that took longest",
    "with_ns": "Kernel time with tensor cores (yes or likely)",
    "without_ns": "Kernel time of products, convolutions and attention without tensor cores",
    "helper_ns": "Kernel time of helper kernels that multiply nothing: split-K sums, conversions",
    "unknown_ns": "Kernel time of kernels whose name does not show it",
    "launches": "Number of kernels",
    "code": "Reason for no tensor cores, as a code for rules: fp32, misaligned, vector, fell_back, …",
    "why": "Reason for no tensor cores, as a sentence",
}

_COUNTS = ("with_ns", "without_ns", "helper_ns", "unknown_ns", "launches")

_SQL = queries_of(__file__)


def roofline_table(rank: RankView) -> pd.DataFrame:
    """Return the device's operators of the counted steps, compared with the GPU's roofline.

    The columns are described in ``sawtooth.analysis.knowledge.roofline``.
    """
    return roofline(rank.frame(_SQL["operators"]), rank.gpu)


def tensor_core_table(rank: RankView) -> pd.DataFrame:
    """Return the tensor-core use of products, convolutions and attention, by operator and shapes.

    Columns: TENSOR_CORE_COLUMNS. Rows with the longest time without tensor cores come first. Times are sums over the kernels of
    the counted steps, or of the trace if it has no steps.
    """
    kernels = rank.frame(_SQL["flop_kernels"])
    vendor, major = rank.rows(_SQL["vendor"])[0]
    tf32_on = tf32_categories(kernels, vendor)
    rows = [
        _operator_row(part, rank.gpu, vendor, None if pd.isna(major) else int(major), tf32_on)
        for _, part in kernels.groupby(["operator", "input_dims", "input_types", "category"], dropna=False, sort=False)
    ]
    table = pd.DataFrame(
        {
            column: pd.Series([row[column] for row in rows], dtype="int64" if column in _COUNTS else object)
            for column in TENSOR_CORE_COLUMNS
        }
    )
    return table.sort_values("without_ns", ascending=False, ignore_index=True, kind="stable")


def tf32_categories(kernels: pd.DataFrame, vendor: str | None) -> set[str]:
    """Return the categories in which FP32 operators run in TF32.

    Products and convolutions have separate settings. ``kernels`` has operator, input_types (JSON), category and tensor_cores.
    Only FLOP operators count, because the products inside cuDNN's RNNs follow the setting of convolutions.
    """
    used = kernels[
        kernels["tensor_cores"].isin(TENSOR_CORES_USED) & kernels["operator"].map(is_flop_operator, na_action="ignore").eq(True)
    ]
    kinds = used[["operator", "input_types", "category", "tensor_cores"]].drop_duplicates()
    return {
        category
        for operator, types, category, use in kinds.itertuples(index=False)
        if peak_dtype(operator, decode_cell(types), use, vendor) == "tf32"
    }


def _operator_row(
    part: pd.DataFrame, gpu: GpuPeaks | None, vendor: str | None, major: int | None, tf32_on: set[str]
) -> dict[str, Any]:
    """Return the table's row for ``part``, the kernels of one operator and shape, longest first."""
    first = part.iloc[0]
    operator = first["operator"] if isinstance(first["operator"], str) else None
    dims, types, strides = (decode_cell(first[column]) for column in ("input_dims", "input_types", "input_strides"))
    ns = part.groupby("tensor_cores")["ns"].sum()
    without = part[part["tensor_cores"] == "no"]
    reasons = []
    helper_ns = 0
    for kernel, category, duration in zip(without["kernel"], without["category"], without["ns"], strict=True):
        kernel_class = classify(
            kernel_name=kernel,
            kind="kernel",
            op_name=operator,
            input_types=types,
            input_dims=dims,
            vendor=vendor,
            compute_major=major,
        )
        reason = why_not_tensor_cores(
            op_name=operator,
            input_types=types,
            input_dims=dims,
            kernel_class=KernelClass(category, "no", kernel_class.reason),
            gpu=gpu,
            kernel=kernel,
            tf32_on=category in tf32_on,
            input_strides=strides,
        )
        if reason is not None and reason.code == "helper":
            helper_ns += int(duration)
        elif reason is not None:
            reasons.append((kernel, reason))
    kernel, reason = reasons[0] if reasons else (None, None)
    return {
        "operator": operator,
        "input_dims": first["input_dims"] if isinstance(first["input_dims"], str) else None,
        "category": first["category"],
        "kernel": kernel,
        "with_ns": int(ns.get("yes", 0) + ns.get("likely", 0)),
        "without_ns": int(ns.get("no", 0)) - helper_ns,
        "helper_ns": helper_ns,
        "unknown_ns": int(ns.get("unknown", 0)),
        "launches": int(part["launches"].sum()),
        "code": reason.code if reason else None,
        "why": reason.sentence if reason else None,
    }

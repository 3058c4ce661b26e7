"""Tables of kernels by total duration, and shapes in readable form."""

from __future__ import annotations

import json
from typing import Any, Literal

import pandas as pd

from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView

KernelGroup = Literal["name", "category", "tensor_cores", "operator", "shape"]
# If the longest duration is more than this multiple of the shortest, bins of equal width would put nearly all launches into one bin.
WIDE_RATIO = 20
HISTOGRAM_BINS = 40  # Enough bins to show two modes, few enough to read.
SHAPE_TEXT_LENGTH = 160  # A longer list of shapes would wrap in every table, and further inputs of an operator rarely matter.

_SQL = queries_of(__file__)


def kernels(rank: RankView, group: KernelGroup = "name") -> pd.DataFrame:
    """Return the GPU operations of the steady window by ``group``, longest first.

    Columns: name, category, tensor_cores, launches (in total), launches_per_step, ms (per step), share (of the sum over all rows),
    mean_us, and further columns of the group. Without counted steps, the values per step are of the whole window. Times are sums
    over operations, not unions.
    """
    if group == "name":
        rows = rank.frame(_SQL["kernels"])
    elif group in ("category", "tensor_cores"):
        rows = rank.frame(_SQL["kernels_by_class"].format(key=f"k.{group}", used=TENSOR_CORES_USED))
    else:
        rows = rank.frame(_SQL["kernels_by_operator"], by_shape=group == "shape")
        rows["shapes"] = rows.pop("input_dims").map(shapes_text)
    return _per_step(rows, rank.step_divisor)


def _per_step(rows: pd.DataFrame, steps: int) -> pd.DataFrame:
    total = float(rows["total_ns"].sum())
    table = rows.assign(
        ms=rows["total_ns"] / 1e6 / steps,
        share=rows["total_ns"] / total if total else 0.0,
        launches_per_step=rows["launches"] / steps,
        mean_us=(rows["total_ns"] / rows["launches"].where(rows["launches"] > 0)) / 1e3,
    )
    for name in ("min", "median", "max"):
        if f"{name}_ns" in table:
            table[f"{name}_us"] = table.pop(f"{name}_ns") / 1e3
    return table.sort_values(["ms", "name"], ascending=[False, True], ignore_index=True)


def kernel_durations(rank: RankView, name: str) -> pd.DataFrame:
    """Return the histogram of one kernel's durations in the steady window: low_us, high_us, launches.

    Bins have equal widths; if the longest duration is more than WIDE_RATIO times the shortest, they have equal ratios of edges.
    """
    return rank.frame(_SQL["kernel_durations"], name=name, bins=HISTOGRAM_BINS, wide=WIDE_RATIO)


def shapes_text(dims: Any) -> str:
    """Return recorded shapes (JSON) in readable form, such as 64×3×224×224; empty without shapes."""
    if not isinstance(dims, str):
        return ""
    try:
        listed = json.loads(dims)
    except ValueError:
        return ""
    text = ", ".join(part for part in map(_shape, listed) if part) if isinstance(listed, list) else ""
    return f"{text[: SHAPE_TEXT_LENGTH - 1]}…" if len(text) > SHAPE_TEXT_LENGTH else text


def _shape(dims: Any) -> str:
    if not isinstance(dims, list) or not dims:
        return ""
    if isinstance(dims[0], list):
        return f"[{', '.join(filter(None, map(_shape, dims)))}]"
    return "×".join(str(d) for d in dims)

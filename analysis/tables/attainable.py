"""Compare a kernel's time with the time that its work should take.

The compared time is that of the operators that launched the kernel. It is compared with timed kernels of the same work and with
the GPU's peaks. A copy between the GPU and another memory is compared with its link, not with the GPU memory's bandwidth.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from sawtooth.analysis.knowledge.dtypes import dtype_of_type
from sawtooth.analysis.knowledge.hardware import GpuPeaks, Link, crossed_by, link_of
from sawtooth.analysis.knowledge.kernel_time import KernelTimeEstimate, KernelWork, estimate
from sawtooth.analysis.knowledge.kernel_work import convolution_work, moving_work, product_work, recorded_attention
from sawtooth.analysis.knowledge.roofline import roofline
from sawtooth.analysis.nulls import decode_cell
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables.kernels import shapes_text
from sawtooth.analysis.tables.timeline import TimelineSpan

TIMES = ("kernel_ms", "ms", "expected_ms", "low_ms", "high_ms", "least_ms")
SUMS = (*TIMES, "launches", "bytes")
MAX_ROWS = 12  # Largest number of rows. Each further operator or shape has about a percent of a kernel's time.

_SQL = queries_of(__file__)


def attained_operators(rank: RankView, kernel: str) -> pd.DataFrame:
    """Return the operators, by shape, that launched a kernel, largest share of its time first.

    Columns, all per step: operator, shapes, kernel_ms (of this kernel), ms (of all kernels of the operator), expected_ms with
    low_ms and high_ms (the estimate of ``kernel_time`` for such work on this GPU, missing without one; the interval contains four
    of five kernels), least_ms (by the manufacturer's peaks; missing if the peaks or the bytes are unknown), launches (of this
    kernel) and bytes (that it copies). For a copy over a link, ms is missing and least_ms follows from the bandwidth of ``link``.
    """
    used = rank.frame(_SQL["worked_for"], name=kernel, listed=MAX_ROWS)
    if crossed_by(kernel) is not None:
        host_link = link(rank, kernel)
        rows = [_copy_key(row, host_link, rank.step_divisor) for row in used.to_dict("records")]
    else:
        names = list(used["name"].unique())
        operators = rank.frame(_SQL["operators"], names=names) if names else pd.DataFrame()
        roof_rows = roofline(operators, rank.gpu) if len(operators) else operators
        by_call = {(row["name"], row["signature_id"]): row for row in roof_rows.to_dict("records")}
        rows = [_row(row, by_call.get((row["name"], row["signature_id"])), rank) for row in used.to_dict("records")]
    table = pd.DataFrame(rows, columns=["operator", "shapes", *TIMES]).astype(dict.fromkeys(TIMES, float))
    table = table.assign(**{c: pd.to_numeric(used[c]).astype(float) for c in ("launches", "bytes")})
    # Operators whose shapes have the same text (of two dtypes, for example) become one row. A value stays missing if no row has
    # it.

    table = table.groupby(["operator", "shapes"], sort=False, as_index=False)[list(SUMS)].sum(min_count=1)
    return table.assign(launches=table["launches"] / rank.step_divisor, bytes=table["bytes"] / rank.step_divisor)


def link(rank: RankView, copy: str) -> Link | None:
    """Return the link that a copy with this name uses.

    None for a copy inside the GPU's memory, or if the hardware table has no link of this GPU.
    """
    between = crossed_by(copy)
    return link_of(rank.gpu.name, between) if between is not None and rank.gpu is not None else None


def longest_launch(rank: RankView, kernel: str) -> TimelineSpan | None:
    """Return the span of the kernel's longest launch in the steady window; None without a launch there."""
    rows = rank.rows(_SQL["longest"], name=kernel)
    return TimelineSpan(int(rows[0][0]), int(rows[0][1])) if rows else None


def _copy_key(row: dict[Any, Any], host_link: Link | None, step_divisor: int) -> tuple[object, ...]:
    least_ms = row["bytes"] / host_link.gb_s / 1e6 / step_divisor if host_link is not None and row["bytes"] else None
    return row["name"], shapes_text(row["input_dims"]), row["ns"] / 1e6 / step_divisor, None, None, None, None, least_ms


def _row(row: dict[Any, Any], roof_row: dict[Any, Any] | None, rank: RankView) -> tuple[object, ...]:
    kernel_ms, shapes = row["ns"] / 1e6 / rank.step_divisor, shapes_text(row["input_dims"])
    if roof_row is None or rank.gpu is None:
        return row["name"], shapes, kernel_ms, None, None, None, None, None
    time = _estimate_of(roof_row, rank.gpu)
    calls = roof_row["gpu_calls"] / rank.step_divisor
    expected = (time.ms * calls, time.low * calls, time.high * calls) if time is not None else (None, None, None)
    per_ns = 1e6 * rank.step_divisor
    return row["name"], shapes, kernel_ms, roof_row["time_ns"] / per_ns, *expected, roof_row["attainable_ns"] / per_ns


def _estimate_of(roof_row: dict[Any, Any], gpu: GpuPeaks) -> KernelTimeEstimate | None:
    work = _work(roof_row)
    return estimate(work, gpu) if work is not None else None


def _work(roof_row: dict[Any, Any]) -> KernelWork | None:
    """Return the work of one call of an operator in the roofline table."""
    name, dtype = roof_row["name"], roof_row["dtype"]
    dims, types, strides, concrete = (
        decode_cell(roof_row[c]) for c in ("input_dims", "input_types", "input_strides", "concrete_inputs")
    )
    if not roof_row["flops"] > 0:
        moved = dtype_of_type(types[0]) if types else None
        return moving_work(name, roof_row["bytes"] / roof_row["gpu_calls"], moved) if moved else None
    if not isinstance(dtype, str):
        return None
    if roof_row["category"] == "attention":
        return recorded_attention(name, dims, concrete, dtype)
    if name.startswith("aten::convolution"):
        return convolution_work(name, dims, strides, concrete, dtype)
    return product_work(name, dims, strides, dtype)

"""GPU operations of the counted steps with what rules need of each: operator, shapes, dtypes, category, FLOPs, bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from analysis.flops import peak_dtype
from analysis.hardware import Gpu
from analysis.recordings import Recording
from analysis.traffic import operator_bytes
from analysis.whatif import TimedOps

# What large operators reach of the dense peak while they run, on an H200 in GPT-2 and ResNet training (bf16 products 63 to 67 %, TF32 39 %,
# FP8 60 %, flash attention about half). A kernel that already runs faster keeps its time.
ATTAINED = {"bf16": 0.62, "fp16": 0.62, "tf32": 0.40, "fp8": 0.55}
ATTENTION_ATTAINED = 0.40
MEMORY_ATTAINED = 0.60  # of the memory bandwidth, for kernels that only move data
MAX_OPERATIONS = 150_000  # as many as the replay covers: further steps of a huge trace would say the same again
SHORTEST_KERNEL_NS = 2_000  # no kernel ends sooner than about 2 µs after it starts

_WORK = """
    WITH chosen AS (
        SELECT device, step FROM (SELECT *, sum(gpu_ops) OVER (ORDER BY step) - gpu_ops AS before FROM steps WHERE counted AND device = ?) WHERE before < ?)
    SELECT g.gpu_op_id, g.start_ns, g.start_ns + g.dur_ns AS end_ns, g.dur_ns, g.stream, g.kind, k.name AS kernel, w.step, w.category, w.tensor_cores,
        o.cpu_op_id, n.name AS operator, o.signature_id, f.cpu_op_id AS flop_op_id, fn.name AS flop_operator, f.signature_id AS flop_signature_id
    FROM gpu_ops g JOIN gpu_op_steps w USING (gpu_op_id) JOIN chosen s ON s.device = g.device AND s.step = w.step
        JOIN names k ON k.name_id = g.name_id
        LEFT JOIN cpu_ops o ON o.cpu_op_id = g.cpu_op_id LEFT JOIN names n ON n.name_id = o.name_id
        LEFT JOIN cpu_ops f ON f.cpu_op_id = w.flop_op_id LEFT JOIN names fn ON fn.name_id = f.name_id
    ORDER BY g.start_ns, g.gpu_op_id"""


def step_work(recording: Recording, device: int) -> pd.DataFrame:
    """Return one row per GPU operation of the counted steps of ``device`` (the first ones, up to MAX_OPERATIONS), in order of start.

    Columns: gpu_op_id, start_ns, end_ns, dur_ns, stream, kind, kernel, step, category, tensor_cores, cpu_op_id, operator, dims, types,
    flop_op_id, flop_operator, flop_dims, flop_types (decoded lists, None where not recorded), and flops: the operator's FLOPs shared
    out over its kernels by their time, NaN where unknown.
    """
    work = recording.frame(_WORK, [device, MAX_OPERATIONS])
    work = work.astype(
        dict.fromkeys(work.select_dtypes("str").columns, object)
    )  # rules walk rows: Arrow's strings are slow to walk
    rows = recording.rows("SELECT signature_id, input_dims, input_types, concrete_inputs FROM signatures ORDER BY signature_id")
    inputs = {int(i): tuple(json.loads(c) if c else None for c in cells) for i, *cells in rows}
    for column, prefix in (("signature_id", ""), ("flop_signature_id", "flop_")):
        found = [inputs.get(int(s)) if pd.notna(s) else None for s in work[column]]
        work[f"{prefix}dims"] = pd.Series([f[0] if f else None for f in found], dtype=object)
        work[f"{prefix}types"] = pd.Series([f[1] if f else None for f in found], dtype=object)
        work[f"{prefix}concrete"] = pd.Series([f[2] if f else None for f in found], dtype=object)
    flops = recording.frame(
        "SELECT n.name AS flop_operator, signature_id AS flop_signature_id, max(flops / calls) AS each FROM operators JOIN names n USING (name_id) "
        "WHERE flops IS NOT NULL GROUP BY ALL"
    )
    work = work.merge(flops, on=["flop_operator", "flop_signature_id"], how="left")
    together = work.groupby("flop_op_id")["dur_ns"].transform("sum")
    return work.assign(flops=work["each"] * work["dur_ns"] / together).drop(columns="each")


def product_dtype(row: Any) -> str | None:
    """Return the dtype that a row of ``step_work`` multiplies in, None where it is no product or not recorded."""
    return peak_dtype(row.flop_operator, row.flop_types, row.tensor_cores) if isinstance(row.flop_operator, str) else None


def retimed_products(rows: pd.DataFrame, gpu: Gpu, dtype: str) -> TimedOps | None:
    """Return the edit that runs these products and attentions at what ``dtype`` attains on ``gpu``; None where the peak is unknown."""
    peak = gpu.peak_tflops(dtype)
    if peak is None or not len(rows):
        return None
    share = np.where(rows["category"] == "attention", ATTENTION_ATTAINED, ATTAINED[dtype])
    wanted = rows["flops"].to_numpy(float) / (peak * 1e12 * share) * 1e9
    recorded = rows["dur_ns"].to_numpy(np.int64)
    shortest = np.minimum(recorded, SHORTEST_KERNEL_NS)
    timed = np.clip(np.where(np.isfinite(wanted), wanted, recorded), shortest, recorded).astype(np.int64)
    return TimedOps(tuple(rows["gpu_op_id"].tolist()), tuple(timed.tolist()))


def memory_bound_ns(row: Any, gpu: Gpu) -> float | None:
    """Return the ns an operator's own traffic takes at MEMORY_ATTAINED of the bandwidth, None where its bytes are unknown."""
    if not isinstance(row.operator, str) or gpu.bandwidth_bytes_per_s is None:
        return None
    moved = operator_bytes(row.operator, row.dims, row.types, row.concrete)
    return moved / (gpu.bandwidth_bytes_per_s * MEMORY_ATTAINED) * 1e9 if moved else None


def launched_inside(recording: Recording, device: int, pattern: str) -> set[int]:
    """Return the gpu_op_ids launched while an annotation (or operator) whose name matches the regular expression was open, on any thread."""
    rows = recording.rows(
        "SELECT DISTINCT g.gpu_op_id FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN cpu_ops a ON c.start_ns >= a.start_ns "
        "AND c.start_ns < a.start_ns + a.dur_ns AND c.thread_id = a.thread_id JOIN names n ON n.name_id = a.name_id "
        "WHERE g.device = ? AND regexp_matches(n.name, ?)",
        [device, pattern],
    )
    return {int(row[0]) for row in rows}


def chosen(rows: pd.DataFrame, wanted: Callable[[Any], bool]) -> pd.DataFrame:
    """Return the rows for which ``wanted`` (of a named tuple) holds."""
    return rows[np.array([bool(wanted(row)) for row in rows.itertuples()], bool)]


def ms_per_step(rows: pd.DataFrame, steps: int) -> float:
    """Return the summed kernel time of ``rows`` in ms per step."""
    return float(rows["dur_ns"].sum()) / 1e6 / max(steps, 1)


def numel(shape: Any) -> int:
    """Return the elements of a recorded shape, 0 for what is no shape."""
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        return 0
    return min(math.prod(shape), 2**62)  # nonsense of a damaged file must still fit a column


def evidence_of(
    rows: pd.DataFrame, steps: int, by: Iterable[str] = ("operator", "kernel"), limit: int = 6
) -> list[dict[str, Any]]:
    """Return the rows grouped ``by`` columns, longest first, each with its time per step, count per step and its longest kernel's place."""
    keys = list(by)
    found: list[dict[str, Any]] = []
    for values, part in rows.groupby(keys, dropna=False, sort=False):
        longest = part.loc[part["dur_ns"].idxmax()]
        dims = longest["flop_dims"] if longest["flop_dims"] is not None else longest["dims"]
        row: dict[str, Any] = {k: None if pd.isna(v) else str(v)[:200] for k, v in zip(keys, values, strict=True)}
        row |= {"shapes": json.dumps(dims) if dims is not None else None, "ms_per_step": ms_per_step(part, steps)}
        row |= {
            "kernels_per_step": len(part) / max(steps, 1),
            "start_ns": int(longest["start_ns"]),
            "end_ns": int(longest["end_ns"]),
        }
        found.append(row)
    return sorted(found, key=lambda r: -r["ms_per_step"])[:limit]

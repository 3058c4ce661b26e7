"""The tables behind the Kernels and Operators screens: rollups per step (or over the window where there are no steps)."""

from __future__ import annotations

import json
from typing import Any, Literal

import pandas as pd

from analysis.recordings import Recording

KernelGroup = Literal["name", "category", "tensor_cores", "operator", "shape"]
OperatorGroup = Literal["name", "shape"]
HISTOGRAM_BINS = 40  # enough to see two modes, few enough to read
SHAPE_TEXT_LENGTH = 160  # a longer list of shapes wraps every table; the operator's other inputs rarely matter beyond this

_KERNELS = """
SELECT n.name, k.category, k.tensor_cores, k.kind, k.launches, k.total_ns, k.min_ns, k.median_ns, k.max_ns,
    k.mean_blocks_per_sm AS blocks_per_sm, k.mean_occupancy_pct / 100 AS occupancy, k.bytes
FROM kernels k JOIN names n USING (name_id) WHERE k.device = ?"""

_KERNELS_ROLLED_UP = """
SELECT {key} AS name, CASE WHEN count(DISTINCT k.category) = 1 THEN min(k.category) ELSE 'several' END AS category,
    CASE WHEN count(DISTINCT k.tensor_cores) = 1 THEN min(k.tensor_cores) ELSE 'mixed' END AS tensor_cores, count(*) AS names,
    sum(k.launches)::BIGINT AS launches, sum(k.total_ns)::BIGINT AS total_ns, min(k.min_ns) AS min_ns, max(k.max_ns) AS max_ns,
    sum(k.total_ns) FILTER (k.tensor_cores IN ('yes', 'likely'))::BIGINT AS tensor_core_ns
FROM kernels k WHERE k.device = ? GROUP BY 1"""

_KERNELS_BY_OPERATOR = """
SELECT coalesce(n.name, 'no operator known') AS name, l.* EXCLUDE (device, by_shape, name_id)
FROM launched l LEFT JOIN names n USING (name_id) WHERE l.device = ? AND l.by_shape = ?"""


def kernels(recording: Recording, device: int, counted_steps: int, group: KernelGroup = "name") -> pd.DataFrame:
    """Return GPU operations of the steady window by ``group``, largest first.

    Columns: name, category, tensor_cores, launches and ms (per step, or of the window where ``counted_steps`` is 0), share (of the
    sum over all rows), mean_us, and what the group knows besides. Times are sums over operations, not unions.
    """
    if group == "name":
        rows = recording.frame(_KERNELS, [device])
    elif group in ("category", "tensor_cores"):
        rows = recording.frame(_KERNELS_ROLLED_UP.format(key=f"k.{group}"), [device])
    else:
        rows = recording.frame(_KERNELS_BY_OPERATOR, [device, group == "shape"])
        rows["shapes"] = rows.pop("input_dims").map(shapes_text)
    return _per_step(rows, counted_steps)


def _per_step(rows: pd.DataFrame, counted_steps: int) -> pd.DataFrame:
    per = max(counted_steps, 1)
    total = float(rows["total_ns"].sum())
    table = rows.assign(
        ms=rows["total_ns"] / 1e6 / per,
        share=rows["total_ns"] / total if total else 0.0,
        launches_per_step=rows["launches"] / per,
        mean_us=(rows["total_ns"] / rows["launches"].where(rows["launches"] > 0)) / 1e3,
    )
    for name in ("min", "median", "max"):
        if f"{name}_ns" in table:
            table[f"{name}_us"] = table.pop(f"{name}_ns") / 1e3
    return table.sort_values(["ms", "name"], ascending=[False, True], ignore_index=True)


def kernel_durations(recording: Recording, device: int, name: str) -> pd.DataFrame:
    """Return the histogram of one kernel's durations in the steady window: low_us, high_us, launches."""
    return recording.frame(
        """
        WITH d AS (SELECT g.dur_ns / 1e3 AS us FROM gpu_ops g JOIN names n USING (name_id)
            JOIN windows w ON w.device = g.device AND g.start_ns >= w.start_ns AND g.start_ns < w.end_ns WHERE g.device = ? AND n.name = ?),
        r AS (SELECT min(us) AS low, greatest(max(us) - min(us), 0.001) / ? AS width FROM d),
        b AS (SELECT least(floor((us - low) / width), ? - 1)::INTEGER AS bin, low, width FROM d, r)
        SELECT low + bin * width AS low_us, low + (bin + 1) * width AS high_us, count(*) AS launches FROM b GROUP BY ALL ORDER BY 1""",
        [device, name, HISTOGRAM_BINS, HISTOGRAM_BINS],
    )


def kernel_launchers(recording: Recording, device: int, name: str, counted_steps: int) -> pd.DataFrame:
    """Return which operators and shapes launched a kernel: operator, shapes, launches_per_step, ms."""
    rows = recording.frame(
        """
        SELECT coalesce(p.name, 'no operator known') AS operator, s.input_dims, count(*) AS launches, sum(g.dur_ns)::BIGINT AS total_ns
        FROM gpu_ops g JOIN names n USING (name_id)
            JOIN windows w ON w.device = g.device AND g.start_ns >= w.start_ns AND g.start_ns < w.end_ns
            LEFT JOIN cpu_ops o ON o.cpu_op_id = g.cpu_op_id LEFT JOIN names p ON p.name_id = o.name_id
            LEFT JOIN signatures s ON s.signature_id = o.signature_id
        WHERE g.device = ? AND n.name = ? GROUP BY ALL ORDER BY total_ns DESC, operator LIMIT 50""",
        [device, name],
    )
    per = max(counted_steps, 1)
    return pd.DataFrame(
        {
            "operator": rows["operator"],
            "shapes": rows["input_dims"].map(shapes_text),
            "launches_per_step": rows["launches"] / per,
            "ms": rows["total_ns"] / 1e6 / per,
        }
    )


_OPERATORS = """
SELECT n.name, {shape} AS input_dims, {types} AS input_types, sum(o.calls)::BIGINT AS calls, sum(o.host_self_ns)::BIGINT AS host_self_ns,
    sum(o.host_total_ns)::BIGINT AS host_total_ns, sum(o.gpu_self_ns)::BIGINT AS gpu_self_ns, sum(o.gpu_total_ns)::BIGINT AS gpu_total_ns,
    sum(o.kernels)::BIGINT AS kernels, sum(o.tensor_core_ns)::BIGINT AS tensor_core_ns, sum(o.flops) AS flops
FROM operators o JOIN names n USING (name_id) LEFT JOIN signatures g USING (signature_id) WHERE o.device = ? GROUP BY ALL"""


def operators(recording: Recording, device: int, counted_steps: int, group: OperatorGroup = "name") -> pd.DataFrame:
    """Return operators of the counted steps, by name or by name and input shapes, largest GPU time of their own first.

    Times are ms per step (of all steps where ``counted_steps`` is 0); tensor_core_share is of the operator's own GPU time and NULL where
    it has none; tflops is FLOPs ÷ GPU time of the operator and its children, NULL where FLOPs are not counted.
    """
    by_shape = group == "shape"
    shape, types = ("g.input_dims", "g.input_types") if by_shape else ("NULL", "NULL")
    rows = recording.frame(_OPERATORS.format(shape=shape, types=types), [device])
    per = max(counted_steps, 1)
    own = rows["gpu_self_ns"].where(rows["gpu_self_ns"] > 0)
    flops = rows["flops"].astype(float)
    all_own = float(rows["gpu_self_ns"].sum())
    table = pd.DataFrame(
        {
            "name": rows["name"],
            "shapes": rows["input_dims"].map(shapes_text),
            "dtypes": rows["input_types"].map(_dtypes_text),
            "gpu_self_ms": rows["gpu_self_ns"] / 1e6 / per,
            "gpu_self_share": rows["gpu_self_ns"] / all_own if all_own else 0.0,
            "gpu_total_ms": rows["gpu_total_ns"] / 1e6 / per,
            "host_self_ms": rows["host_self_ns"] / 1e6 / per,
            "host_total_ms": rows["host_total_ns"] / 1e6 / per,
            "calls_per_step": rows["calls"] / per,
            "kernels_per_step": rows["kernels"] / per,
            "tensor_core_share": rows["tensor_core_ns"] / own,
            "tensor_core_ms": rows["tensor_core_ns"] / 1e6 / per,
            "gflop_per_step": flops / 1e9 / per,
            "tflops": flops / rows["gpu_total_ns"].where(rows["gpu_total_ns"] > 0) / 1e3,
        }
    )
    return table.sort_values(["gpu_self_ms", "host_self_ms"], ascending=False, ignore_index=True)


def operator_kernels(recording: Recording, device: int, name: str, counted_steps: int) -> pd.DataFrame:
    """Return the GPU operations that operators called ``name`` launched themselves: kernel, category, tensor_cores, launches_per_step, ms."""
    rows = recording.frame(
        """
        SELECT k.name AS kernel, s.category, s.tensor_cores, count(*) AS launches, sum(g.dur_ns)::BIGINT AS total_ns
        FROM gpu_ops g JOIN cpu_ops o ON o.cpu_op_id = g.cpu_op_id JOIN names p ON p.name_id = o.name_id JOIN names k ON k.name_id = g.name_id
            JOIN gpu_op_steps s USING (gpu_op_id) LEFT JOIN steps t ON t.device = g.device AND t.step = s.step
        WHERE g.device = ? AND p.name = ? AND (t.counted OR NOT EXISTS (SELECT 1 FROM steps WHERE counted))
        GROUP BY ALL ORDER BY total_ns DESC LIMIT 50""",
        [device, name],
    )
    per = max(counted_steps, 1)
    return rows.assign(launches_per_step=rows.pop("launches") / per, ms=rows.pop("total_ns") / 1e6 / per)


def shapes_text(dims: Any) -> str:
    """Return Input Dims as people write them: 64×3×224×224, 64×3×7×7. Empty where none are recorded."""
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


def _dtypes_text(types: Any) -> str:
    if not isinstance(types, str):
        return ""
    try:
        listed = json.loads(types)
    except ValueError:
        return ""
    seen = dict.fromkeys(str(t) for t in listed if isinstance(t, str) and t and t not in ("Scalar", "ScalarList", "Device"))
    return ", ".join(seen)

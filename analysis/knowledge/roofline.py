"""Roofline per operator: the least time for its FLOPs and bytes on this GPU, and its measured time.

An operator needs at least the time of its FLOPs at the peak of its dtype, and the time of its bytes at the memory's
bandwidth. The longer of the two is the operator's least time. The attained share is the least time ÷ the measured time, and
the opportunity is the measured time above the least time. No kernel quite reaches the manufacturer's peaks. A good kernel
attains 0.7 to 0.8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.knowledge.flops import is_flop_operator, peak_dtype
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_names import operator_category
from sawtooth.analysis.knowledge.traffic import operator_bytes
from sawtooth.analysis.nulls import decode_cell

TENSOR_CORE_MAJORITY = 0.5  # An operator counts as using tensor cores if they have most of its kernel time.

COLUMNS = {
    "category": "Kind of the operator: gemm, conv, attention, elementwise, …",
    "dtype": "Dtype of the peak (tf32 for FP32 products on NVIDIA's tensor cores)",
    "time_ns": "GPU time of all calls. An operator with FLOPs includes its children, another one only its own kernels",
    "bytes": "Least number of bytes that all calls move: inputs once, outputs once",
    "intensity": "FLOPs per byte; 0 for operators that multiply nothing",
    "bound": "compute or memory: the one with the longer least time",
    "attainable_tflops": "Largest possible rate at this intensity: min(peak, intensity × bandwidth)",
    "achieved_tflops": "FLOPs ÷ time",
    "attainable_ns": "Least time: max(FLOPs ÷ peak, bytes ÷ bandwidth)",
    "attained_share": "Least time ÷ time; above 1 if data came from caches instead of memory",
    "opportunity_ns": "Time above the least time, never below 0",
}


def roofline(operators: pd.DataFrame, gpu: GpuPeaks | None) -> pd.DataFrame:
    """Place operators in the roofline of ``gpu``.

    ``operators`` is the derived table joined with the operator's ``name`` and its signature's ``input_dims``, ``input_types``
    and ``concrete_inputs`` (JSON text or lists). It also has ``gpu_calls``, ``gpu_self_ns``, ``gpu_total_ns``,
    ``tensor_core_ns`` and ``flops`` (of all calls, missing where not counted). The result has the rows that used the GPU and
    whose bytes are known, with the columns of COLUMNS added, largest opportunity first. The result is empty if the GPU's
    bandwidth is unknown.
    """
    if gpu is None or gpu.bandwidth_bytes_per_s is None or not len(operators):
        return operators.head(0).assign(**{column: pd.Series(dtype=object) for column in COLUMNS})
    flops = operators["flops"].astype(float).to_numpy()
    flop_row = np.array([is_flop_operator(n) for n in operators["name"]]) & (flops > 0)
    time = np.where(flop_row, operators["gpu_total_ns"], operators["gpu_self_ns"]).astype(float)
    moved = _bytes(operators) * operators["gpu_calls"].to_numpy(float)
    table = operators.assign(flops=np.where(flop_row, flops, 0.0), time_ns=time, bytes=moved)
    # A counted operator without FLOPs (its shapes are unknown, or it is inside another counted one) is left out.
    has_place = flop_row | ~np.array([is_flop_operator(n) for n in operators["name"]])
    table = table[has_place & (time > 0) & np.isfinite(moved) & (moved > 0)].copy()
    return _place(table, gpu, gpu.bandwidth_bytes_per_s)


def _place(table: pd.DataFrame, gpu: GpuPeaks, bandwidth: float) -> pd.DataFrame:
    names, types = table["name"].tolist(), [decode_cell(cell) for cell in table["input_types"]]
    mostly = (table["tensor_core_ns"] >= TENSOR_CORE_MAJORITY * table["time_ns"]).tolist()
    seconds = table["time_ns"].to_numpy(float) / 1e9
    achieved = table["flops"].to_numpy(float) / seconds
    dtypes = [
        _measured_dtype(name, kinds, uses, rate, gpu)
        for name, kinds, uses, rate in zip(names, types, mostly, achieved, strict=True)
    ]
    peak = np.array([(gpu.peak_tflops(d) or np.nan) if d else np.nan for d in dtypes]) * 1e12
    multiplies = table["flops"].to_numpy(float) > 0
    compute_s = np.where(multiplies, table["flops"].to_numpy(float) / peak, 0.0)
    memory_s = table["bytes"].to_numpy(float) / bandwidth
    attainable_s = np.maximum(compute_s, memory_s)
    intensity = table["flops"].to_numpy(float) / table["bytes"].to_numpy(float)
    rows = table.assign(
        category=[operator_category(name) or "other" for name in names],
        dtype=dtypes,
        intensity=intensity,
        bound=np.where(compute_s >= memory_s, "compute", "memory"),
        attainable_tflops=np.where(multiplies, np.minimum(peak, intensity * bandwidth) / 1e12, np.nan),
        achieved_tflops=np.where(multiplies, achieved / 1e12, np.nan),
        attainable_ns=attainable_s * 1e9,
        attained_share=attainable_s / seconds,
        opportunity_ns=np.maximum(seconds - attainable_s, 0.0) * 1e9,
    )
    on_roofline = rows[np.isfinite(rows["attainable_ns"])]
    return on_roofline.sort_values("opportunity_ns", ascending=False, ignore_index=True)


def _measured_dtype(name: str, types: Any, tensor_cores: bool, flop_per_s: float, gpu: GpuPeaks) -> str | None:
    """Return the dtype whose peak an operator is compared with.

    FP32 products run in TF32 if tensor cores have most of their time, or if they are faster than FP32 units can be.
    """
    fp32 = gpu.peak_tflops("fp32")
    beyond = fp32 is not None and flop_per_s > fp32 * 1e12
    dtype = peak_dtype(name, types, "yes" if tensor_cores or beyond else "no", gpu.vendor)
    return dtype if dtype != "tf32" or "tf32" in gpu.peaks else "fp32"


def _bytes(operators: pd.DataFrame) -> np.ndarray:
    cells = zip(operators["name"], operators["input_dims"], operators["input_types"], operators["concrete_inputs"], strict=True)
    sizes = [
        operator_bytes(name, decode_cell(dims), decode_cell(types), decode_cell(concrete))
        for name, dims, types, concrete in cells
    ]
    return np.array([np.nan if b is None else b for b in sizes], dtype=float)

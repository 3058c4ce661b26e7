"""Fit the kernel-time model to grids and write `analysis/knowledge/kernel_time.toml`.

    python sample_traces/fit_kernel_time.py tests/kernel_grids/*.jsonl.gz

`kernel_grid.py` measured the grids. In a kind with many cases, every fourth case is left out of the fit and evaluated
separately.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 - after the path is set
from scipy.optimize import least_squares  # noqa: E402

from sawtooth.analysis.knowledge.hardware import GpuPeaks, identify  # noqa: E402
from sawtooth.analysis.knowledge.kernel_time import FittedKernel, KernelWork, time_ms  # noqa: E402
from sawtooth.analysis.knowledge.kernel_work import (  # noqa: E402
    attention_work,
    convolution_work,
    moving_work,
    optimizer_work,
    product_work,
)
from sawtooth.analysis.knowledge.traffic import operator_bytes  # noqa: E402

TABLE = ROOT / "analysis" / "knowledge" / "kernel_time.toml"
TYPE_OF = {"bf16": "c10::BFloat16", "fp16": "c10::Half", "fp32": "float", "tf32": "float"}
# Name: (start value, lower bound, upper bound). Factors that a kind of kernel does not list stay 0.
FACTORS = {
    "launch_us": (2.5, 0.4, 60.0),
    "compute": (1.3, 0.9, 600.0),
    "memory": (1.2, 0.4, 20.0),
    "serial": (0.3, 0.001, 20.0),
    "l2": (0.5, 0.05, 8.0),
    "epilogue_us": (0.8, 0.01, 20.0),
    "split_us": (3.0, 0.3, 20.0),
}
USED = {
    "gemm": ("launch_us", "compute", "memory", "l2", "epilogue_us", "split_us"),
    "conv": ("launch_us", "compute", "memory", "serial", "epilogue_us"),
    "attention": ("launch_us", "compute", "memory"),
    "move": ("launch_us", "memory"),
    "optimizer": ("launch_us", "memory"),
}
MIN_CASES = 6  # A row with fewer cases is not fitted.
MIN_CASES_TO_TEST = 24  # From this number of cases on, every TEST_INTERVAL-th case is left out of the fit.
TEST_INTERVAL = 4
Cases = list[tuple[KernelWork, float]]


def work_of(case: dict[str, Any]) -> KernelWork | None:
    """Return the work of one line of the grid, computed by the code that reads traces."""
    operator, dtype, dims = case["operator"], case["dtype"], case["dims"]
    family = case["family"]
    if family == "gemm":
        return product_work(operator, dims, strides_of(case), dtype)
    if family == "conv":
        return (
            convolution_work(operator, dims, None, concrete_of(case), dtype, layout=case["layout"])
            if not case["benchmark"]
            else None
        )
    if family == "attention":
        backward = operator.endswith("_backward")
        query, key = dims[-3:-1]
        work = attention_work(query, key, dtype, backend=case["backend"], causal=case["causal"], backward=backward)
        return work if case["backend"] != "math" else None
    if family == "optimizer":
        # For the single-tensor optimizer, the number of tensors determines the time, not their size.
        kind = case["kind"]
        return optimizer_work(operator.removesuffix(".step"), kind, math.prod(dims[0])) if kind != "single" else None
    types = [TYPE_OF[dtype]] * len(dims)
    moved = operator_bytes(operator.removesuffix("_rows").removesuffix("_bias").removesuffix("_cast"), dims, types, None)
    return moving_work(operator, moved, dtype, case.get("layout")) if moved else None


def strides_of(case: dict[str, Any]) -> list[list[int]]:
    """Return the strides that the profiler records for a product's operands."""
    strides = []
    for shape, letter in zip(case["dims"], case["layout"], strict=True):
        rows, columns = shape[-2:]
        strides.append([*([rows * columns] * (len(shape) - 2)), *((1, rows) if letter == "T" else (columns, 1))])
    return strides


def concrete_of(case: dict[str, Any]) -> list[str]:
    """Return the arguments of a convolution as the profiler writes them."""
    stride, padding = ([case[name]] * 2 for name in ("stride", "padding"))
    place = [str(stride), str(padding), "[1, 1]", "False", "[0, 0]", str(case["groups"])]
    backward = case["operator"].endswith("_backward")
    return ["", "", "", "[0]", *place, "[True, True, False]"] if backward else ["", "", "", *place]


def read(paths: list[Path]) -> dict[str, Cases]:
    """Return (work, measured ms) of the grids by row of the table.

    TF32 products are also pooled over layouts, for traces without strides.
    """
    by_row: dict[str, Cases] = defaultdict(list)
    for line in itertools.chain.from_iterable(gzip.decompress(path.read_bytes()).splitlines() for path in paths):
        case = json.loads(line)
        work = work_of(case)
        if work is not None and case["cold_us"] > 0:
            by_row[work.kind].append((work, case["cold_us"] / 1e3))
            if work.kind.startswith("gemm.tf32.") and not work.kind.endswith("odd"):
                by_row["gemm.tf32.any"].append((work, case["cold_us"] / 1e3))
    return by_row


def left_out(cases: Cases) -> Cases:
    """Return the cases that are left out of the fit."""
    return cases[::TEST_INTERVAL] if len(cases) >= MIN_CASES_TO_TEST else []


def fit(name: str, every: Cases, gpu: GpuPeaks) -> FittedKernel:
    """Return the row with the smallest absolute log residuals (smoothed near 0), judged on all of `every`."""
    cases = [case for i, case in enumerate(every) if i % TEST_INTERVAL] if len(every) >= MIN_CASES_TO_TEST else every
    names = USED[name.split(".")[0]]
    first, lower, upper = (np.log([FACTORS[key][i] for key in names]) for i in range(3))
    measured = np.log([ms for _, ms in cases])

    def residuals(logs: np.ndarray) -> np.ndarray:
        factors: dict[str, Any] = dict(zip(names, np.exp(logs).tolist(), strict=True))
        row = FittedKernel(**factors)
        return np.log([time_ms(work, row, gpu) or math.nan for work, _ in cases]) - measured

    best = least_squares(residuals, first, bounds=(lower, upper), loss="soft_l1", f_scale=0.1, diff_step=1e-3, max_nfev=80)
    rounded: dict[str, Any] = {key: float(f"{value:.4g}") for key, value in zip(names, np.exp(best.x), strict=True)}
    return judged(FittedKernel(**rounded), every, gpu)


def judged(row: FittedKernel, cases: Cases, gpu: GpuPeaks) -> FittedKernel:
    """Return `row` with the statistics of its residuals on `cases`."""
    logs = np.array([math.log(ms / (time_ms(work, row, gpu) or math.nan)) for work, ms in cases])
    off = np.abs(np.expm1(-logs))
    low, high = np.quantile(logs, (0.1, 0.9))
    residuals = {
        "n": len(logs),
        "median": float(np.median(off)),
        "p80": float(np.quantile(off, 0.8)),
        "worst": float(off.max()),
    }
    return replace(
        row,
        log_low=round(float(low), 3),
        log_high=round(float(high), 3),
        residuals={k: round(v, 3) for k, v in residuals.items()},
    )


def written(fitted: dict[str, FittedKernel], source: str) -> str:
    """Return the table as TOML."""
    lines = [
        "# Factors of the kernel-time model (kernel_time.py), fitted by sample_traces/fit_kernel_time.py. residuals: |estimated ÷ measured − 1|",
        f'source = "{source}"',
        "",
        "[rows]",
    ]
    for name, row in sorted(fitted.items()):
        cells = [f"{key} = {getattr(row, key):g}" for key in (*FACTORS, "log_low", "log_high") if getattr(row, key)]
        residuals = ", ".join(f"{key} = {value}" for key, value in row.residuals.items())
        lines.append(f'"{name}" = {{ {", ".join(cells)}, residuals = {{ {residuals} }} }}')
    return "\n".join(lines) + "\n"


def table(fitted: dict[str, FittedKernel], title: str) -> str:
    """Return the residuals by row as Markdown."""
    lines = [f"| {title} | cases | median | 80 % | worst |", "|---|--:|--:|--:|--:|"]
    for name, row in sorted(fitted.items()):
        r = row.residuals
        lines.append(f"| {name} | {r['n']:.0f} | {r['median']:.1%} | {r['p80']:.1%} | {r['worst']:.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Fit, write the table and print the residuals."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("grid", type=Path, nargs="+")
    args = parser.parse_args()
    gpu = identify("NVIDIA H200", 9, 0, 132, None, "nvidia")
    if gpu is None:
        sys.exit("the hardware table has no H200")
    grids = {name: cases for name, cases in read(args.grid).items() if len(cases) >= MIN_CASES}
    fitted = {name: fit(name, cases, gpu) for name, cases in grids.items()}
    TABLE.write_text(
        written(
            fitted,
            "NVIDIA H200 (132 SMs, 989.4 TFLOP/s in bf16, 4.8 TB/s), torch 2.11, CUDA 13.0, cuDNN 9; durations by CUPTI, inputs not in L2",
        )
    )
    print(table(fitted, "all cases"))
    test_statistics = {name: judged(fitted[name], left_out(cases), gpu) for name, cases in grids.items() if left_out(cases)}
    print(table(test_statistics, "not fitted to"))


if __name__ == "__main__":
    main()

"""Time kernels over grids of shapes, dtypes and layouts, to fit the kernel-time model to them.

    python sample_traces/kernel_grid.py --out grid.jsonl
    python sample_traces/kernel_grid.py --family products --seed 1 --out other_products.jsonl

Each line is one case (see `kernel_cases.py`): operator, dtype, shapes and further properties. `cold_us` and `warm_us` are the
sums of its kernels' durations by CUPTI, as a trace has them (medians over repeats). For `cold_us` the inputs rotate, so that
they are not in the L2 cache (except in small cases, of which all sets fit into the cache). For `warm_us` the inputs were just
used. `event_us` is the mean time per call by CUDA events, including launch gaps. `each_us` are the times of the first cold
call's kernels, `kernels` their names, and `sets` the number of input sets in rotation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path is set
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from sawtooth.sample_traces.kernel_case import Call, Case  # noqa: E402
from sawtooth.sample_traces.kernel_cases import FAMILIES  # noqa: E402

REPEATS = 7
WARM_UPS = 3
MARKER = "spin_kernel"  # The kernel that torch.cuda._sleep launches. It separates cases in the recorded kernels.
ANNOTATIONS = ("Optimizer.", "ProfilerStep", "## ")  # Prefixes of spans on the GPU's tracks that are no work.
PER_PROFILE = 80  # Cases per profile, so that the profiler's buffers stay small.
WARMING_S = 2.0  # Matrix multiplications for this long bring the GPU to its working clock and temperature.


def set_up(case: Case) -> None:
    """Set the precision switches for `case`."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.dtype == "tf32"
    torch.backends.cudnn.benchmark = bool(case.extra.get("benchmark"))


def mark() -> None:
    """Launch the marker kernel."""
    torch.cuda._sleep(100)


def call_marked(calls: list[Call]) -> None:
    """Call `calls` in turn, REPEATS times in total, then the first one REPEATS times.

    The first part is for `cold_us`, the second for `warm_us`. A marker comes before each call and at the end.
    """
    rotation = itertools.cycle(calls)
    for chosen in (rotation, itertools.repeat(calls[0])):
        for _ in range(REPEATS):
            mark()
            next(chosen)()
    mark()


def time_by_events(call: Call) -> float:
    """Return the microseconds per call by CUDA events over REPEATS calls."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPEATS):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / REPEATS


def recorded_kernels(recording: Any) -> list[tuple[str, int]]:
    """Return (name, ns) of every GPU operation of a finished profile, in order of start."""
    events = [e for e in recording.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA]  # type: ignore[attr-defined]  # torch exports it without saying so
    events.sort(key=lambda e: e.start_ns())
    return [(e.name(), e.duration_ns()) for e in events if not e.name().startswith(ANNOTATIONS)]


def between_markers(kernels: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """Return the kernels after each marker, up to the next one."""
    groups: list[list[tuple[str, int]]] = []
    for kernel in kernels:
        if MARKER in kernel[0]:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    return groups


def row_of(case: Case, groups: list[list[tuple[str, int]]], event_us: float) -> dict[str, Any]:
    """Return the line of one case from the kernels after each of its markers."""
    cold, warm = (
        [sum(ns for _, ns in group) / 1e3 for group in part] for part in (groups[:REPEATS], groups[REPEATS : 2 * REPEATS])
    )
    names = [name.removeprefix("void ")[:90] for name, _ in groups[0]]
    return {
        "family": case.family,
        "operator": case.operator,
        "dtype": case.dtype,
        "dims": case.dims,
        **case.extra,
        "cold_us": round(statistics.median(cold), 3),
        "warm_us": round(statistics.median(warm), 3),
        "each_us": [round(ns / 1e3, 2) for _, ns in groups[0]],
        "event_us": round(event_us, 2),
        "sets": case.sets(),
        "kernels": names,
    }


def time_cases(cases: list[Case]) -> list[dict[str, Any]]:
    """Time `cases` in one profile; leave out cases that this GPU or PyTorch does not support."""
    finished: list[tuple[Case, float]] = []
    with profile(activities=[ProfilerActivity.CUDA]) as recording:
        for case in cases:
            set_up(case)
            try:
                calls = [case.make() for _ in range(case.sets())]
                for call in calls[:WARM_UPS]:
                    call()
                event_us = time_by_events(calls[0])
            except (RuntimeError, ValueError) as error:
                print(f"left out: {case.operator} {case.dtype} {case.dims} {case.extra}: {str(error).splitlines()[0][:120]}")
                continue
            torch.cuda.synchronize()
            mark()  # This separates the repeats from the kernels before them.
            call_marked(calls)
            torch.cuda.synchronize()
            finished.append((case, event_us))
            del calls
    groups, per_case = between_markers(recorded_kernels(recording)), 2 * REPEATS + 2
    if len(groups) != per_case * len(finished):
        raise RuntimeError(f"{len(groups)} markers for {len(finished)} cases")
    # The first group of a case lies between two markers without a call, so it is empty. The last one includes the next case's
    # warm-up.
    return [
        row_of(case, groups[i * per_case + 1 : (i + 1) * per_case], event_us) for i, (case, event_us) in enumerate(finished)
    ]


def warm_the_gpu(seconds: float) -> None:
    """Multiply for some time, so that the first cases run at the working clock."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        a @ a
        torch.cuda.synchronize()


def main() -> None:
    """Time the requested families and write one JSON line per case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), default=[], help="family to time (repeatable)")
    parser.add_argument(
        "--seed", type=int, default=0, help="0: the grid to which the model is fitted; else other random shapes"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warm_the_gpu(WARMING_S)
    with args.out.open("w") as out:
        for name in args.family or FAMILIES:
            start, count = time.monotonic(), 0
            cases = list(FAMILIES[name](args.seed))
            for first in range(0, len(cases), PER_PROFILE):
                rows = rows_of(cases[first : first + PER_PROFILE])
                out.writelines(json.dumps(row) + "\n" for row in rows)
                out.flush()
                torch.cuda.empty_cache()
                count += len(rows)
            print(f"{name}: {count} of {len(cases)} cases in {time.monotonic() - start:.0f} s", flush=True)


def rows_of(cases: list[Case]) -> list[dict[str, Any]]:
    """Return the rows of `cases`, or none if the profile is incomplete, so that other families continue."""
    try:
        return time_cases(cases)
    except RuntimeError as error:
        print(f"{cases[0].family}: {len(cases)} cases lost: {error}", flush=True)
        return []


if __name__ == "__main__":
    main()

"""Record sample traces: train a small real model on a real GPU and keep the trace, the telemetry and what independent clocks saw.

    python sample_traces/record.py --list
    python sample_traces/record.py --scenario resnet_starved --out sample_traces
    python sample_traces/record.py --all --out recordings

Each recording is a folder: `trace.json.gz` (torch.profiler), `nvml.jsonl` (the GPU at 10 Hz, written by another process before,
through and after the profiled steps) and `truth.json` (a stopwatch around many steps without the profiler, FLOPs per step from
PyTorch's FlopCounterMode, means of the telemetry). Needs PyTorch, a CUDA GPU and nvidia-ml-py; image scenarios need Pillow too.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import gzip
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # started as a script, the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path is set
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from sample_traces.scenarios import SCENARIOS, Scenario  # noqa: E402
from sample_traces.workloads import Workload  # noqa: E402

DENSE_BF16_TFLOPS = 989.4  # H100 and H200 SXM, dense bf16, by their datasheets: what `mfu_vs_989` divides by
SETTLE_S = 1.0  # utilization describes up to the last second, so means start that much later
LIMIT_S = 150.0  # a scenario that takes longer is stopped
MEANS = (
    "gpu_util",
    "mem_util",
    "power_w",
    "sm_mhz",
    "gpm_sm",
    "gpm_occupancy",
    "gpm_tensor_any",
    "gpm_tensor_hmma",
    "gpm_dram_bw",
)
MEANS += ("gpm_fp32", "gpm_fp16", "gpm_pcie_rx")
JSON_FIELD = rb'\n?[ \t]*"(?:host_name|username)"[ \t]*:[ \t]*"[^"\n]*",?'  # who and where: no part of a recording


@contextlib.contextmanager
def telemetry(path: Path, gpu: int = 0) -> Iterator[None]:
    """Log the GPU's telemetry to `path` while the block runs."""
    command = [sys.executable, str(ROOT / "sample_traces" / "nvml_log.py"), str(path), str(gpu)]
    logger = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        logger.communicate(timeout=10)


def count_flops(step: Callable[[], object]) -> int | None:
    """FLOPs of one step by PyTorch's own counter; None where it sees none."""
    with FlopCounterMode(display=False) as counter:
        step()
    torch.cuda.synchronize()
    return counter.get_total_flops() or None


def time_synced(step: Callable[[], object], steps: int) -> list[float]:
    """Seconds of each step when the device is waited for after each."""
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def time_pipelined(step: Callable[[], object], steps: int) -> tuple[float, tuple[int, int], list[float]]:
    """Mean seconds of a step over `steps` with one wait at the end; the window in Unix ns; the host's seconds per step."""
    torch.cuda.synchronize()
    begin_ns, start, ends = time.time_ns(), time.perf_counter(), []
    for _ in range(steps):
        step()
        ends.append(time.perf_counter())
    torch.cuda.synchronize()
    total, end_ns = time.perf_counter() - start, time.time_ns()
    return total / steps, (begin_ns, end_ns), [b - a for a, b in zip([start, *ends], ends, strict=False)]


def record_trace(step: Callable[[], object], plan: Scenario, trace: Path) -> tuple[list[float], tuple[int, int]]:
    """Profile `plan.active` steps into `trace`; return the host's seconds of each and their window in Unix ns."""
    phases = schedule(wait=1, warmup=plan.warmup, active=plan.active, repeat=1)
    flags = {"record_shapes": True, **plan.profiler}
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]

    def save(profiler: Any) -> None:
        profiler.export_chrome_trace(str(trace))

    seconds, begin_ns = [], 0
    with profile(activities=activities, schedule=phases, on_trace_ready=save, **flags) as profiler:
        for index in range(1 + plan.warmup + plan.active):
            if index == 1 + plan.warmup:
                begin_ns = time.time_ns()
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
            end_ns = time.time_ns()
            profiler.step()
    return seconds[-plan.active :], (begin_ns, end_ns)


def scrub(raw: bytes) -> bytes:
    """Take host, user and the paths of this machine out of a trace, and nothing else."""
    raw = re.sub(JSON_FIELD, b"", raw)
    raw = re.sub(rb'"traceName": "[^"]*"', b'"traceName": "trace.json"', raw)
    raw = raw.replace(f"torchinductor_{getpass.getuser()}".encode(), b"torchinductor")
    paths = sysconfig.get_paths()
    places = {paths["purelib"], paths["platlib"], paths["stdlib"], sys.prefix, sys.base_prefix, str(ROOT), str(Path.cwd())}
    places |= {tempfile.gettempdir(), str(Path.home())}
    for place in sorted(places, key=len, reverse=True):
        if len(place) > 1:
            raw = raw.replace(place.encode() + b"/", b"")
    return raw


def telemetry_means(path: Path, window_ns: tuple[int, int]) -> dict[str, float]:
    """Means of the telemetry over the window without its first second."""
    samples = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    inside = [s for s in samples if window_ns[0] + SETTLE_S * 1e9 <= s["t_ns"] <= window_ns[1]]
    means = {}
    for key in MEANS:
        values = [s[key] for s in inside if key in s and s[key] == s[key]]
        if values:
            means[key] = round(statistics.fmean(values), 3)
    return means


def kernel_time_us(raw: bytes) -> float:
    """Sum of the kernels' durations in the trace."""
    events = json.loads(raw)["traceEvents"]
    return round(sum(e["dur"] for e in events if e.get("cat") == "kernel"), 3)


def record(name: str, out: Path) -> dict[str, Any]:
    """Record scenario `name` into `out / name` and return its truth."""
    plan, folder = SCENARIOS[name], out / name
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    work = plan.build()
    try:
        for _ in range(plan.first_steps):
            work.step()
        flops = count_flops(work.flop_step or work.step)
        executed = count_flops(work.executed_flop_step) if work.executed_flop_step else flops
        with tempfile.TemporaryDirectory() as scratch, telemetry(folder / "nvml.jsonl"):
            measured = measure(work, plan, Path(scratch) / "trace.json")
            raw = scrub((Path(scratch) / "trace.json").read_bytes())
    finally:
        work.close()
    (folder / "trace.json.gz").write_bytes(gzip.compress(raw, 9, mtime=0))
    seconds = measured["step_s_pipelined"]
    achieved = flops / seconds / 1e12 if flops else None
    truth = {
        "name": name,
        **describe(plan, work),
        "flops_per_step": flops,
        "flops_per_step_executed": executed,
        **measured,
        "achieved_tflops": achieved,
        "mfu_vs_989": achieved / DENSE_BF16_TFLOPS if achieved else None,
        "nvml_mean": telemetry_means(folder / "nvml.jsonl", measured["window_ns"]),
        "kernel_time_sum_us": kernel_time_us(raw),
        "trace_bytes": len(raw),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def describe(plan: Scenario, work: Workload) -> dict[str, Any]:
    """What was planted, what it pairs with and how it was configured."""
    pairs = [(plan.fixed_by, plan.change)] if plan.fixed_by else []
    return {
        "planted": plan.planted,
        "fixed_by": [{"recording": other, "change": change} for other, change in [*pairs, *plan.also]],
        "cfg": plan.cfg,
        "profiler": {"active": plan.active, "warmup": plan.warmup, "record_shapes": True, **plan.profiler},
        "params": work.params,
        "samples_per_step": work.samples_per_step,
    }


def measure(work: Workload, plan: Scenario, trace: Path) -> dict[str, Any]:
    """Stopwatch without the profiler, then the profiled steps, then the stopwatch again."""
    synced = time_synced(work.step, plan.synced_steps)
    steps = max(plan.min_steps, round(plan.timed_s / statistics.median(synced)))
    torch.cuda.reset_peak_memory_stats()
    mean, window, host = time_pipelined(work.step, steps)
    peak = torch.cuda.max_memory_allocated()
    profiled, profiled_window = record_trace(work.step, plan, trace)
    after, after_window, _ = time_pipelined(work.step, max(4, round(steps / 3)))
    return {
        "step_s_pipelined": mean,
        "steps_timed": steps,
        "step_s_pipelined_host": [round(s, 6) for s in host[:60]],
        "step_s_synced_median": statistics.median(synced),
        "step_s_synced": synced,
        "step_s_profiled_host": profiled,
        "step_s_after_profile": after,
        "window_ns": window,
        "profiled_window_ns": profiled_window,
        "after_window_ns": after_window,
        "peak_mem": peak,
    }


def record_apart(name: str, out: Path) -> bool:
    """Record in a child process, so that no scenario inherits another's GPU state; True if it was recorded."""
    child = multiprocessing.get_context("fork").Process(target=record, args=(name, out))
    child.start()
    child.join(LIMIT_S)
    if child.is_alive():
        child.terminate()
        child.join()
    return child.exitcode == 0


def table(folders: list[Path]) -> str:
    """A Markdown table of recordings: what was planted and what the independent clocks and counters said."""
    rows = [
        "| recording | planted | fixed by | stopwatch, ms | TFLOP per step | achieved TFLOP/s | GPU utilization, % | GPU |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    for folder in folders:
        truth = json.loads((folder / "truth.json").read_text())
        flops, achieved = truth["flops_per_step"], truth["achieved_tflops"]
        fixes = "; ".join(f"{fix['recording']} ({fix['change']})" for fix in truth["fixed_by"])
        cells = [truth["name"], truth["planted"], fixes, f"{truth['step_s_pipelined'] * 1e3:.3f}"]
        cells += [f"{flops / 1e12:.3f}" if flops else "", f"{achieved:.1f}" if achieved else ""]
        cells += [f"{truth['nvml_mean'].get('gpu_util', float('nan')):.0f}", truth["gpu"].removeprefix("NVIDIA ")]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Command line; exits with 1 if a scenario could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", action="append", choices=sorted(SCENARIOS), default=[], help="may be given several times")
    parser.add_argument("--all", action="store_true", help="every scenario, one after the other")
    parser.add_argument("--list", action="store_true", help="say what there is and stop")
    parser.add_argument("--table", type=Path, nargs="+", metavar="DIR", help="print a table of these recordings and stop")
    parser.add_argument("--out", type=Path, default=Path("recordings"), help="folder that gets one folder per scenario")
    args = parser.parse_args()
    if args.table:
        print(table([folder for folder in args.table if (folder / "truth.json").exists()]))
        return
    names = list(SCENARIOS) if args.all else args.scenario
    if args.list or not names:
        for name, plan in SCENARIOS.items():
            print(f"{name:18} {plan.planted}")
        return
    failed = []
    for name in names:
        start = time.perf_counter()
        if record_apart(name, args.out):
            truth = json.loads((args.out / name / "truth.json").read_text())
            size = (args.out / name / "trace.json.gz").stat().st_size
            ms = truth["step_s_pipelined"] * 1e3
            print(f"{name:18} {ms:9.3f} ms/step {size // 1000:5} kB {time.perf_counter() - start:5.1f} s", flush=True)
        else:
            failed.append(name)
            print(f"{name:18} FAILED", flush=True)
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


if __name__ == "__main__":
    main()

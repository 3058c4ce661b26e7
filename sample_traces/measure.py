"""Measure a loop by stopwatch, FLOP counter, telemetry and profiler, without effects on each other."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
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

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.flop_counter import FlopCounterMode

from sawtooth.ingest import children
from sawtooth.sample_traces.scenario import Scenario
from sawtooth.sample_traces.workload import Workload

ROOT = Path(__file__).resolve().parents[1]
SETTLE_S = 1.0  # Utilization describes the last second or less, so means start this much later.
FIRST_SAMPLE_S = 20.0  # Time limit for the sampler's first sample.
MEANS = (
    *("gpu_util", "mem_util", "power_w", "sm_mhz", "gpm_sm", "gpm_occupancy", "gpm_tensor_any", "gpm_tensor_hmma"),
    *("gpm_dram_bw", "gpm_fp32", "gpm_fp16", "gpm_pcie_rx"),
)
WHO_AND_WHERE = rb'\n?[ \t]*"(?:host_name|username)"[ \t]*:[ \t]*"[^"\n]*",?'  # Fields that must not be in a recording.

ARROW = rb'\s*\{\s*"ph": "[sf]"[^{}]*"cat": "(?:ac2g|fwdbwd)"[^{}]*\},'


@contextlib.contextmanager
def telemetry(path: Path, gpus: str = "0") -> Iterator[None]:
    """Log the telemetry of `gpus` to `path` at 10 Hz while the block runs, from a separate process."""
    command = children.command("sawtooth.ingest.sampler", "--format", "jsonl", "--out", str(path), "--gpus", gpus)
    sampler = subprocess.Popen([*command, "--watch-pid", str(os.getpid())], env=children.environment())
    try:
        until = time.monotonic() + FIRST_SAMPLE_S
        while not path.exists() or path.read_bytes().count(b"\n") < 2:
            if sampler.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the sampler wrote no sample")
            time.sleep(0.05)
        yield
    finally:
        sampler.terminate()
        sampler.wait(timeout=10)
        if path.exists():
            path.write_text(scrub_telemetry(path.read_text()))


def scrub_telemetry(text: str) -> str:
    """Remove the host's name, the GPUs' UUIDs, and digits after the third decimal.

    The first GPU becomes number 0, as in the trace.
    """
    lines = [json.loads(line) for line in text.splitlines()]
    first = min((line["gpu"] for line in lines if "gpu" in line), default=0)
    for line in lines:
        line.pop("host", None)
        for gpu in line.get("gpus", []):
            gpu.pop("uuid", None)
            gpu["gpu"] -= first
        if "gpu" in line:
            line["gpu"] -= first
        line |= {key: round(value, 3) for key, value in line.items() if isinstance(value, float)}
    return "".join(json.dumps(line) + "\n" for line in lines)


def count_flops(step: Callable[[], object]) -> int | None:
    """Return the FLOPs of one step by PyTorch's own counter; None if it counts none."""
    with FlopCounterMode(display=False) as counter:
        step()
    torch.cuda.synchronize()
    return counter.get_total_flops() or None


def time_synced(step: Callable[[], object], steps: int) -> list[float]:
    """Return the seconds of each step, with a wait for the device after each."""
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def time_pipelined(step: Callable[[], object], steps: int) -> tuple[float, tuple[int, int], list[float]]:
    """Return the mean seconds per step over `steps`, with one wait at the end.

    Also return the window in Unix ns, and the host's seconds per step.
    """
    torch.cuda.synchronize()
    begin_ns, start, ends = time.time_ns(), time.perf_counter(), []
    for _ in range(steps):
        step()
        ends.append(time.perf_counter())
    torch.cuda.synchronize()
    total, end_ns = time.perf_counter() - start, time.time_ns()
    return total / steps, (begin_ns, end_ns), [b - a for a, b in zip([start, *ends], ends, strict=False)]


def record_trace(step: Callable[[], object], plan: Scenario, trace: Path) -> tuple[list[float], tuple[int, int]]:
    """Profile `plan.active` steps into `trace`.

    Return the host's seconds of each step, and their window in Unix ns.
    """
    if not plan.mark_steps:
        return record_unmarked(step, plan, trace)
    phases = schedule(wait=1, warmup=plan.warmup, active=plan.active, repeat=1)
    flags: dict[str, Any] = {"record_shapes": True, **plan.profiler}
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


def record_unmarked(step: Callable[[], object], plan: Scenario, trace: Path) -> tuple[list[float], tuple[int, int]]:
    """Profile like `record_trace`, but without a schedule, so that the trace does not name the steps."""
    for _ in range(plan.warmup):
        step()
    seconds, begin_ns = [], time.time_ns()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for _ in range(plan.active):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        end_ns = time.time_ns()
    profiler.export_chrome_trace(str(trace))
    return seconds, (begin_ns, end_ns)


def scrub(raw: bytes) -> bytes:
    """Remove host, user and the paths of this machine from a trace, and nothing else."""
    raw = re.sub(WHO_AND_WHERE, b"", raw)
    raw = re.sub(rb'"traceName": "[^"]*"', b'"traceName": "trace.json"', raw)
    raw = raw.replace(f"torchinductor_{getpass.getuser()}".encode(), b"torchinductor")
    paths = sysconfig.get_paths()
    places = {paths["purelib"], paths["platlib"], paths["stdlib"], sys.prefix, sys.base_prefix, str(ROOT), str(Path.cwd())}
    places |= {tempfile.gettempdir(), str(Path.home())}
    for place in sorted(places, key=len, reverse=True):
        if len(place) > 1:
            raw = raw.replace(place.encode() + b"/", b"")
    return raw


def slim(raw: bytes) -> bytes:
    """Remove a trace's flow arrows and its indentation; keep every other byte.

    Correlation ids and sequence numbers contain the same information as the arrows.
    """
    return re.sub(rb"\n[ \t]+", b"\n", re.sub(ARROW, b"", raw))


def telemetry_means(path: Path, window_ns: tuple[int, int], gpu: int = 0) -> dict[str, float]:
    """Return the means of one GPU's telemetry over the window without its first second."""
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    samples = [s for s in samples if "gpu_util" in s and s.get("gpu", 0) == gpu]
    inside = [s for s in samples if window_ns[0] + SETTLE_S * 1e9 <= s["t_ns"] <= window_ns[1]]
    means = {}
    for key in MEANS:
        values = [s[key] for s in inside if key in s and s[key] == s[key]]
        if values:
            means[key] = round(statistics.fmean(values), 3)
    return means


def kernel_time_us(raw: bytes) -> float:
    """Return the sum of the kernels' durations in the trace, µs."""
    events = json.loads(raw)["traceEvents"]
    return round(sum(e["dur"] for e in events if e.get("cat") == "kernel"), 3)


class MarkedStep:
    """A step that records when the host finished it: its index, Unix ns, and whether the profiler ran."""

    def __init__(self, step: Callable[[], object]) -> None:
        self.step, self.phase = step, "train"
        self.marks: list[dict[str, int | str]] = []

    def __call__(self) -> None:
        """Run the step and record its time."""
        self.step()
        self.marks.append({"step": len(self.marks), "t_ns": time.time_ns(), "phase": self.phase})

    def write(self, path: Path) -> None:
        """Write the marks as JSON lines."""
        path.write_text("".join(json.dumps(mark) + "\n" for mark in self.marks))


def measure(work: Workload, plan: Scenario, trace: Path) -> dict[str, Any]:
    """Time the loop without the profiler, record the profiled steps, then time the loop again.

    Step marks are written next to `trace` if `plan` asks for them.
    """
    step = MarkedStep(work.step)
    synced = time_synced(work.step, plan.synced_steps)
    steps = max(plan.min_steps, round(plan.timed_s / statistics.median(synced)))
    torch.cuda.reset_peak_memory_stats()
    mean, window, host = time_pipelined(step, steps)
    peak = torch.cuda.max_memory_allocated()
    step.phase = "profile"
    profiled, profiled_window = record_trace(step, plan, trace)
    step.phase = "train"
    again = max(4, round(plan.after_s / mean if plan.after_s else steps / 3))
    after, after_window, _ = time_pipelined(step, again)
    if plan.marks:
        step.write(trace.with_name("marks.jsonl"))
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

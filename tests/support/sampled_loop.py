"""Hand-built loops and telemetry with problems that no recording of tests/recordings has.

HAND_MADE has the function that writes each loop, by the loop's name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sawtooth.ingest.capture.packing import pack_run
from tests.support.accumulation_loops import ACCUMULATION_LOOPS
from tests.support.acting_loops import ACTING_LOOPS
from tests.support.anti_patterns import ANTI_PATTERNS
from tests.support.attention_loops import ATTENTION_LOOPS
from tests.support.chrome_trace import BASE_NS, ChromeTrace, matmul_loop
from tests.support.collective_loops import COLLECTIVE_LOOPS
from tests.support.expert_loops import EXPERT_LOOPS
from tests.support.gradient_loops import GRADIENT_LOOPS
from tests.support.length_loops import LENGTH_LOOPS
from tests.support.model_loops import MODEL_LOOPS
from tests.support.paths import GRAPH_BREAKS
from tests.support.refused_loops import REFUSED_LOOPS
from tests.support.sample_loops import SAMPLE_LOOPS
from tests.support.table_loops import TABLE_LOOPS

POWER_CAP, SOFTWARE_HEAT, HARDWARE_SLOWDOWN = 0x4, 0x20, 0x8  # Bits of NVML's clock event reasons.


def write(
    folder: Path,
    *,
    throttled: int = 0,
    reason: int = 0,
    later_s: int = 0,
    util: int = 100,
    loop: ChromeTrace | None = None,
    machine: dict[str, float] | None = None,
) -> list[Path]:
    """Write a loop and 60 telemetry samples at 10 Hz, which start ``later_s`` seconds after the loop.

    ``throttled`` of the samples have ``reason`` and a clock of 1,200 MHz instead of 1,980 MHz. Every fifth sample contains the
    host's values ``machine``.
    """
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10}]
    for i in range(60):
        slowed = 20 <= i < 20 + throttled
        sample = {
            "t_ns": BASE_NS + later_s * 1_000_000_000 + i * 100_000_000,
            "gpu_util": util,
            "power_w": 500.0,
            "sm_mhz": 1200 if slowed else 1980,
        }
        lines.append({**sample, "throttle": reason if slowed else 0})
        if machine is not None and i % 5 == 0:
            lines.append({"t_ns": sample["t_ns"], "machine": machine})
    telemetry = folder / "nvml.jsonl"
    telemetry.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loop = loop or matmul_loop()
    loop.top["made_for"] = folder.name  # Different bytes make the trace a different run.
    return [loop.write(folder / "trace.json"), telemetry]


def paused(folder: Path, *, every_us: int = 1000, phase: str = "train", apart: int = 100) -> list[Path]:
    """Write steps of 1 ms, and marks of 250 steps that start a minute later and contain pauses.

    The marks are ``every_us`` apart. After every ``apart`` steps, the loop does something else for 100 ms, in ``phase``.
    """
    marks, t_ns = folder / "marks.jsonl", BASE_NS + 60_000_000_000
    with marks.open("w") as lines:
        for step in range(251):
            rests = step > 0 and step % apart == 0
            t_ns += 1000 * every_us + 100_000_000 * rests
            lines.write(json.dumps({"step": step, "t_ns": t_ns, "phase": phase if rests else "train"}) + "\n")
    return [*write(folder, util=70), marks]


def in_rounds(folder: Path, *, whole: bool) -> list[Path]:
    """Write steps of 1 ms; before each eighth one, the host simulates its environment for 8 ms.

    The profile contains four steps between two such rounds, or (``whole``) one round and a step.
    """
    marks, t_ns = folder / "marks.jsonl", BASE_NS + 60_000_000_000
    with marks.open("w") as lines:
        for step in range(251):
            t_ns += 9_000_000 if step % 8 == 0 else 1_000_000
            lines.write(json.dumps({"step": step, "t_ns": t_ns, "phase": "train"}) + "\n")
    loop = matmul_loop(9 if whole else 4)
    for event in loop.events if whole else ():
        event["ts"] += 8000.0 * (event["ts"] >= 4000)
        if event["name"] == "ProfilerStep#7":
            event["ts"], event["dur"] = 4000.0, 9000.0
    return [*write(folder, util=35, loop=loop), marks]


def full_queue(folder: Path) -> list[Path]:
    """Write a loop whose telemetry shows 7 ms per step outside the profile.

    Kernels run for 70 % of each profiled step of 1 ms, and for 10 % of the time outside the profile.
    """
    loop = matmul_loop()
    for k in range(4):
        loop.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1000 * k + 2, 1000 * k + 5)
    return write(folder, later_s=30, util=10, loop=loop)


def starved(folder: Path, **machine: float) -> list[Path]:
    """Write a loop whose host waits for the loader from 110 to 995 µs of each step.

    The GPU is idle from 740 µs on. Eight workers run on sixteen cores.
    """
    loop = matmul_loop()
    for k in range(4):
        loop.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1000 * k + 110, 1000 * k + 995)
    return write(
        folder,
        util=70,
        loop=loop,
        machine={"cores": 16, "workers": 8, "disk_read_bps": 2e8, "network_received_bps": 1e6, **machine},
    )


def read_first(folder: Path, *, room_bytes: float = 90e9, later: float | None = None) -> list[Path]:
    """Write ``starved`` with four workers that wait for the disk.

    They read 8,000 samples of 2 MB, 94 % of them from the disk. ``later`` is the share that is read from the disk later than 2 s
    after the profile. If it is 0, a sample takes a worker 1.2 ms instead of 8 ms.
    """
    files = starved(folder, cpu_pct=20, workers_cpu_pct=15, workers_blocked_pct=70)
    facts = {
        "loader_workers": 4, "loader_cores": 16, "loader_batch": 4, "loader_sample_ms": 1.2 if later == 0 else 8.0, "loader_sample_cpu_ms": 1.0,
        "loader_first_disk_share": 0.94, "loader_first_sample_ms": 8.0, "loader_first_sample_bytes": 2e6, "loader_dataset_samples": 8000,
        "loader_room_bytes": room_bytes,
    }  # fmt: skip
    if later is not None:
        facts |= {"loader_later_disk_share": later, "loader_later_from_ns": BASE_NS + 2_000_000_000}
    kinds = ("trace", "telemetry")
    sources = [(path, {"source_name": path.name, "kind": kind}) for path, kind in zip(files, kinds, strict=True)]
    bundle = folder / "run.sawtooth"
    pack_run(bundle, {"name": folder.name, "facts": facts}, sources)
    return [bundle]


def filled_gradients(folder: Path) -> list[Path]:
    """Write a loop whose optimizer fills gradients with zeros for 60 µs of each 1,000 µs step."""
    loop = matmul_loop()
    for k in range(4):
        start = 1000 * k
        loop.host("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad", start + 110, start + 150)
        loop.op("aten::zero_", start + 115, start + 140, [[1024, 1024]], ["float"])
        fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
        loop.launch((start + 120, start + 125), (start + 740, start + 800), fill)
    return [loop.write(folder / "trace.json")]


def tested_gradients(folder: Path) -> list[Path]:
    """Write a loop in which autograd tests a gradient for NaN in each step.

    The host waits for the answer, and launches the next kernel 100 µs later.
    """
    loop = matmul_loop()
    for k in range(4):
        at = 1000 * k
        loop.op("autograd::engine::evaluate_function: MmBackward0", at + 110, at + 900)
        loop.op("aten::isnan", at + 120, at + 140)
        loop.launch((at + 125, at + 130), (at + 745, at + 750), "CompareEq")
        loop.op("aten::_is_any_true", at + 142, at + 160)
        loop.launch((at + 145, at + 150), (at + 751, at + 761), "or_kernel")
        loop.op("aten::item", at + 162, at + 790)
        loop.launch((at + 165, at + 170), (at + 762, at + 764), "Memcpy DtoH (Device -> Pinned)", "gpu_memcpy")
        loop.host("cuda_runtime", "cudaStreamSynchronize", at + 172, at + 780)
        loop.launch((at + 860, at + 866), (at + 870, at + 890), "next")
    return [loop.write(folder / "trace.json")]


def sorted_on_host(folder: Path, launches: bool = False) -> list[Path]:
    """Write a loop that sorts lengths for 200 µs of each 1,000 µs step, while the GPU is idle.

    The sort runs on the CPU, or after a launch inside it.
    """
    loop = matmul_loop()
    for k in range(4):
        at = 1000 * k
        loop.op("aten::sort", at + 760, at + 960, [[4096]], ["long int"])
        if launches:
            loop.launch((at + 770, at + 775), (at + 778, at + 780), "radix_sort")
    return [loop.write(folder / "trace.json")]


def graph_breaks(folder: Path, count: int) -> list[Path]:
    """Return the recording with ``count`` planted graph breaks, and its log."""
    return [path for kind in ("json.gz", "log.gz") if (path := GRAPH_BREAKS / f"breaks_{count}.{kind}").exists()]


HAND_MADE: dict[str, Callable[[Path], list[Path]]] = {
    **LENGTH_LOOPS,
    **MODEL_LOOPS,
    **ACCUMULATION_LOOPS,
    **ACTING_LOOPS,
    **ANTI_PATTERNS,
    **ATTENTION_LOOPS,
    **COLLECTIVE_LOOPS,
    **EXPERT_LOOPS,
    **GRADIENT_LOOPS,
    **REFUSED_LOOPS,
    **SAMPLE_LOOPS,
    **TABLE_LOOPS,
    "filled_gradients": filled_gradients,
    "full_queue": full_queue,
    "graph_breaks_0": partial(graph_breaks, count=0),
    "graph_breaks_20": partial(graph_breaks, count=20),
    "loader_on_disk": partial(starved, cpu_pct=20, workers_cpu_pct=15, workers_blocked_pct=70),
    "loader_on_full_cores": partial(starved, cpu_pct=97, workers_cpu_pct=60, workers=64),
    "loader_on_network": partial(starved, cpu_pct=10, workers_cpu_pct=12, disk_busy_pct=1),
    "main_thread_without_a_core": partial(starved, cpu_pct=96, workers_cpu_pct=85, workers=15, main_waits_pct=30),
    "loader_short_of_workers": partial(starved, cpu_pct=45, workers_cpu_pct=96),
    "swapping": partial(starved, cpu_pct=50, workers_cpu_pct=60, swap_in_bps=4e7, ram_used_bytes=63e9, ram_total_bytes=64e9),
    "held_down_by_heat": partial(write, throttled=12, reason=SOFTWARE_HEAT),  # Throttled for 1.2 s of 5.9 s.
    "pauses": paused,
    "rounds": partial(in_rounds, whole=True),
    "rounds_not_profiled": partial(in_rounds, whole=False),
    "pauses_to_evaluate": partial(paused, phase="eval"),
    "pauses_often_to_save": partial(paused, phase="checkpoint", apart=20),
    "pauses_to_save": partial(paused, phase="checkpoint"),
    "read_first": read_first,
    "read_first_and_again": partial(read_first, later=0.93),
    "read_first_and_then_from_memory": partial(read_first, later=0),
    "read_first_of_more_than_memory": partial(read_first, room_bytes=16e9),
    "sorted_by_launches": partial(sorted_on_host, launches=True),
    "sorted_on_host": sorted_on_host,
    "tested_gradients": tested_gradients,
    "waits_for_what_it_launched": partial(paused, every_us=500),  # The kernels take 700 µs.
    "two_hot_samples": partial(write, throttled=2, reason=SOFTWARE_HEAT),
    "held_down_by_power": partial(write, throttled=30, reason=POWER_CAP),
    "some_power_cap": partial(write, throttled=10, reason=POWER_CAP),  # Capped for 1.0 s of 5.9 s, which is 17 %.
}

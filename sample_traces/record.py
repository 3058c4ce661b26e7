"""Record sample traces: train a small real model on a GPU, with trace, telemetry and stopwatch.

    python sample_traces/record.py --list
    python sample_traces/record.py --scenario resnet_starved --out sample_traces
    python sample_traces/record.py --set second --out recordings

Each recording is a folder. `trace.json.gz` is from torch.profiler, one file per rank. `nvml.jsonl` has the GPU at 10 Hz; the
sampler writes it in a separate process before, during and after the profiled steps. `truth.json` has a stopwatch time over
many steps without the profiler, the FLOPs per step from PyTorch's FlopCounterMode, and means of the telemetry. The script
needs PyTorch, a CUDA GPU and nvidia-ml-py. Image scenarios also need Pillow, and two-GPU scenarios two GPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path is set

from sawtooth.sample_traces import measure  # noqa: E402
from sawtooth.sample_traces.scenario import Scenario  # noqa: E402
from sawtooth.sample_traces.sets import eighth, fifth, first, fourth, ninth, second, sixth, third  # noqa: E402
from sawtooth.sample_traces.sets.first.scenarios import LATE_S  # noqa: E402
from sawtooth.sample_traces.workload import Workload  # noqa: E402

DENSE_BF16_TFLOPS = 989.4  # Peak of H100 and H200 SXM in dense bf16, by their datasheets: the divisor of `mfu_vs_989`.
LIMIT_S = 150.0  # A scenario that takes longer is stopped.
SETS = {
    package.__name__.rpartition(".")[2]: package.SCENARIOS
    for package in (first, second, third, fourth, fifth, sixth, eighth, ninth)
}
SCENARIOS: dict[str, Scenario] = {}
for scenarios in SETS.values():
    assert not SCENARIOS.keys() & scenarios, "two sets have a scenario of the same name, so one would replace the other"
    SCENARIOS |= scenarios


def build(name: str, rank: int) -> Workload:
    """Return the workload of a scenario, distributed and late if the scenario says so."""
    plan = SCENARIOS[name]
    if plan.gpus == 1:
        return plan.build()
    late = {"late_s": LATE_S[name].get(rank, 0.0)} if name in LATE_S else {}
    if not plan.ddp:
        return plan.build(**late)
    return plan.build(**late, wrap=lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank]))


def record(name: str, out: Path, rank: int = 0) -> None:
    """Record one rank of scenario `name` into `out / name`."""
    plan, folder = SCENARIOS[name], out / name
    folder.mkdir(parents=True, exist_ok=True)
    torch.cuda.set_device(rank)
    if plan.gpus > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "RANK": str(rank), "WORLD_SIZE": str(plan.gpus)}
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    work = build(name, rank)
    # NVML counts all GPUs of the machine.
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(plan.gpus)))
    log = measure.telemetry(folder / "nvml.jsonl", gpus) if rank == 0 else contextlib.nullcontext()
    try:
        for _ in range(plan.first_steps):
            work.step()
        flops = measure.count_flops(work.flop_step or work.step)
        executed = measure.count_flops(work.executed_flop_step) if work.executed_flop_step else flops
        with tempfile.TemporaryDirectory() as scratch, log:
            measured = measure.measure(work, plan, Path(scratch) / "trace.json")
            raw = measure.scrub((Path(scratch) / "trace.json").read_bytes())
            if plan.marks:
                shutil.copy(Path(scratch) / "marks.jsonl", folder / "marks.jsonl")
    finally:
        work.close()
        if plan.gpus > 1:
            torch.distributed.destroy_process_group()
    trace, truth = ("trace", "truth") if plan.gpus == 1 else (f"{rank}.trace", f"truth_{rank}")
    (folder / f"{trace}.json.gz").write_bytes(gzip.compress(raw, 9, mtime=0))
    summary = {"name": name, **describe(plan, work), "flops_per_step": flops, "flops_per_step_executed": executed, **measured}
    summary |= rates(flops, measured["step_s_pipelined"]) | {
        "kernel_time_sum_us": measure.kernel_time_us(raw),
        "trace_bytes": len(raw),
    }
    summary |= {"torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    (folder / f"{truth}.json").write_text(json.dumps(summary, indent=1) + "\n")


def rates(flops: int | None, step_s: float) -> dict[str, float | None]:
    """Return the achieved TFLOP/s and their share of the dense bf16 peak; None if FLOPs are unknown."""
    achieved = flops / step_s / 1e12 if flops else None
    return {"achieved_tflops": achieved, "mfu_vs_989": achieved / DENSE_BF16_TFLOPS if achieved else None}


def describe(plan: Scenario, work: Workload) -> dict[str, Any]:
    """Return the planted fault, the recordings that fix it, and the configuration."""
    pairs = [(plan.fixed_by, plan.change)] if plan.fixed_by else []
    rules = {"rules": list(plan.rules)} if plan.rules else {}
    return {
        "planted": plan.planted,
        "fixed_by": [{"recording": recording, "change": change} | rules for recording, change in [*pairs, *plan.also]],
        "cfg": plan.cfg,
        "profiler": {"active": plan.active, "warmup": plan.warmup, "record_shapes": True, **plan.profiler},
        "params": work.params,
        "samples_per_step": work.samples_per_step,
    }


def finish(name: str, out: Path) -> dict[str, Any]:
    """Merge the ranks' truths into one file, add the telemetry's means, and return it.

    The result is that of rank 0, with all ranks under `ranks`.
    """
    folder, gpus = out / name, SCENARIOS[name].gpus
    files = [folder / "truth.json"] if gpus == 1 else [folder / f"truth_{rank}.json" for rank in range(gpus)]
    ranks = [json.loads(file.read_text()) for file in files]
    for gpu, truth in enumerate(ranks):
        truth["nvml_mean"] = measure.telemetry_means(folder / "nvml.jsonl", truth["window_ns"], gpu)
    truth = ranks[0] if gpus == 1 else {**ranks[0], "world": gpus, "ranks": ranks}
    for file in files:
        file.unlink()
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def record_apart(name: str, out: Path) -> dict[str, Any] | None:
    """Record in child processes, so that scenarios share no GPU state; return None if that failed."""
    fork = multiprocessing.get_context("fork")  # Torch is imported once, and only the children use the GPU.
    children = [fork.Process(target=record, args=(name, out, rank)) for rank in range(SCENARIOS[name].gpus)]
    for child in children:
        child.start()
    until = time.monotonic() + LIMIT_S
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
        if child.is_alive():
            child.terminate()
            child.join()
    return finish(name, out) if all(child.exitcode == 0 for child in children) else None


def table(folders: list[Path]) -> str:
    """Return a Markdown table of recordings with planted faults and measurements."""
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
        busy = truth["nvml_mean"].get("gpu_util")  # Missing if the timed window is shorter than a second.
        cells += [f"{busy:.0f}" if busy is not None else "", truth["gpu"].removeprefix("NVIDIA ")]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--scenario", action="append", choices=sorted(SCENARIOS), default=[], help="scenario to record (repeatable)"
    )
    parser.add_argument("--set", choices=SETS, help="record all scenarios of a set for which this machine has enough GPUs")
    parser.add_argument("--list", action="store_true", help="list the scenarios and stop")
    parser.add_argument("--table", type=Path, nargs="+", metavar="DIR", help="print a table of these recordings and stop")
    parser.add_argument("--slim", type=Path, nargs="+", metavar="DIR", help="shrink these recordings' traces in place and stop")
    parser.add_argument("--out", type=Path, default=Path("recordings"), help="folder that gets one folder per scenario")
    return parser


def main() -> None:
    """Record what the command line asks for; exit with 1 if a scenario could not be recorded."""
    args = arguments().parse_args()
    if args.table:
        print(table([folder for folder in args.table if (folder / "truth.json").exists()]))
        return
    if args.slim:
        for file in (file for folder in args.slim for file in folder.glob("*trace.json.gz")):
            file.write_bytes(gzip.compress(measure.slim(gzip.decompress(file.read_bytes())), 9, mtime=0))
        return
    gpus = torch.cuda.device_count()
    names = [name for name, plan in SETS[args.set].items() if plan.gpus <= gpus] if args.set else args.scenario
    if args.list or not names:
        for name, plan in SCENARIOS.items():
            print(f"{name:18} {plan.planted}")
        return
    failed = []
    for name in names:
        start = time.monotonic()
        truth = record_apart(name, args.out.resolve())
        if truth is None:
            failed.append(name)
        outcome = f"{truth['step_s_pipelined'] * 1e3:9.3f} ms per step" if truth else "FAILED"
        print(f"{name:18} {outcome}, recorded in {time.monotonic() - start:.0f} s", flush=True)
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


if __name__ == "__main__":
    main()

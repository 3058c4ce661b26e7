"""Record jobs of two ranks on two GPUs of one host: traces, telemetry and a stopwatch.

    python sample_traces/two_gpus.py --list
    python sample_traces/two_gpus.py --out jobs ddp_small fsdp slow_gpu
    python -m tests.accuracy.jobs jobs

Each job is a folder: `0.trace.json.gz` and `1.trace.json.gz`, `telemetry.jsonl` (both GPUs at 10 Hz, during the whole job)
and one `truth_RANK.json` per rank. `step_s_pipelined` is a stopwatch time over many steps with one wait at the end, before
the profiler runs. The script needs PyTorch, two CUDA GPUs and nvidia-ml-py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path is set
import torch.distributed as dist  # noqa: E402

from sawtooth.sample_traces import measure  # noqa: E402
from sawtooth.sample_traces.two_gpu_jobs import JOBS, PAIRS  # noqa: E402
from sawtooth.sample_traces.two_gpu_steps import BF16, WORLD, Step, step_of_job  # noqa: E402

WARM, LIMIT_S = 24, 120.0  # Steps before the stopwatch; seconds after which a job has failed.


def crowd(gpu: int) -> None:
    """Compute on a GPU that another process uses, in turns of a few milliseconds, until killed."""
    torch.cuda.set_device(gpu)
    a = torch.randn(4096, 4096, device="cuda", dtype=BF16)
    while True:
        for _ in range(32):
            a @ a
        torch.cuda.synchronize()
        time.sleep(0.01)


def largest_over_ranks(mean: float) -> float:
    """Return the largest `mean` of all ranks, on every rank."""
    value = torch.tensor([mean], device="cuda")
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value.item())


def trace_of(step: Step, steps: int, target: Path) -> None:
    """Profile `steps` steps into `target`."""
    phases = torch.profiler.schedule(wait=1, warmup=2, active=steps)
    with (
        tempfile.TemporaryDirectory() as scratch,
        torch.profiler.profile(
            schedule=phases,
            record_shapes=True,
            on_trace_ready=lambda p: p.export_chrome_trace(f"{scratch}/trace.json"),
        ) as profiler,
    ):
        for _ in range(3 + steps):
            step()
            profiler.step()
        raw = Path(scratch, "trace.json").read_bytes()
    target.write_bytes(gzip.compress(measure.slim(measure.scrub(raw)), 6, mtime=0))


@dataclass(frozen=True)
class RecordingOptions:
    """How to record a job: the seed of weights and data, the stopwatch's seconds, and the port."""

    seed: int = 0
    timed_s: float = 6.0
    port: int = 29540


def run_rank(name: str, folder: Path, rank: int, options: RecordingOptions) -> None:
    """Train one rank of a job: stopwatch first, then the profile."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port), "RANK": str(rank), "WORLD_SIZE": str(WORLD)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(options.seed + rank)
    step = step_of_job(JOBS[name], rank)
    for _ in range(WARM):
        step()
    first, _, _ = measure.time_pipelined(step, 8)
    mean, window, _ = measure.time_pipelined(step, max(12, round(options.timed_s / largest_over_ranks(first))))
    trace_of(step, JOBS[name].profiled, folder / f"{rank}.trace.json.gz")
    truth = {"name": name, "rank": rank, "world": WORLD, "step_s_pipelined": mean, "window_ns": window}
    pair = PAIRS.get(name.rpartition("_")[0])
    truth |= {"after": pair.after or name.replace("_before", "_after"), "rule": pair.rule} if pair else {}
    truth |= {"seed": options.seed, "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    (folder / f"truth_{rank}.json").write_text(json.dumps(truth, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def record(name: str, out: Path, options: RecordingOptions) -> float | None:
    """Record one job in separate processes; return its step in seconds, None if a rank failed."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    fork = multiprocessing.get_context("fork")  # Torch is imported once, and only the children use the GPUs.
    second = [fork.Process(target=crowd, args=(JOBS[name].crowded,))] if JOBS[name].crowded >= 0 else []
    ranks = [fork.Process(target=run_rank, args=(name, folder, rank, options)) for rank in range(WORLD)]
    with measure.telemetry(folder / "telemetry.jsonl", ",".join(map(str, range(WORLD)))):
        for process in [*second, *ranks]:
            process.start()
        until = time.monotonic() + LIMIT_S
        for process in ranks:
            process.join(max(0.0, until - time.monotonic()))
        for process in [*second, *ranks]:
            process.kill()
            process.join()
    if any(process.exitcode for process in ranks):
        return None
    return float(json.loads((folder / "truth_0.json").read_text())["step_s_pipelined"])


def main() -> None:
    """Record the jobs that the command line names; exit with 1 if one could not be recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="jobs to record (default: all)")
    parser.add_argument("--list", action="store_true", help="list the jobs and stop")
    parser.add_argument("--out", type=Path, default=Path("jobs"), help="folder that gets one folder per job")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the data")
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each job's stopwatch")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no further job after this time")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:14} {job}" for name, job in JOBS.items()))
        return
    failed, until = [], time.monotonic() + 60 * args.minutes
    for index, name in enumerate(args.jobs or JOBS):
        if time.monotonic() > until:
            break
        seconds = record(name, args.out.resolve(), RecordingOptions(args.seed, args.seconds, 29540 + index))
        failed += [name] if seconds is None else []
        print(f"{name:14} {'FAILED' if seconds is None else f'{seconds * 1e3:.3f} ms per step'}", flush=True)
    if failed:
        sys.exit(f"not recorded: {', '.join(failed)}")


if __name__ == "__main__":
    main()

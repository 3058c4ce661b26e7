"""Train a job of two ranks, one of which may have a planted fault, with a stopwatch in the script.

    sawtooth run -o out/run.sawtooth torchrun --nproc-per-node 2 sample_traces/planted_jobs.py python_dense out
    python -m tests.accuracy.jobs out

The second argument is the folder that gets rank 0's stopwatch, truth.json: seconds per step before the recorder's profile
(`step_s_pipelined`) and after it (`step_s_after_profile`), over up to 3 s each. `--fixed` trains without the fault.
The script needs PyTorch and two CUDA GPUs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - after the path is set
import torch.distributed as dist  # noqa: E402

from sawtooth.sample_traces import two_gpu_jobs as jobs  # noqa: E402
from sawtooth.sample_traces.sets.first.models import GptShape, python_work  # noqa: E402
from sawtooth.sample_traces.two_gpu_jobs import Job  # noqa: E402
from sawtooth.sample_traces.two_gpu_steps import Step, step_of_job  # noqa: E402
from sawtooth.sample_traces.two_gpus import crowd, largest_over_ranks  # noqa: E402

WARM, TIMED = 16, 12  # Steps before the length of a step is measured, and steps that measure it.
TOTAL_S = 12.5  # The recorder profiles about 5 s after the loop's start.
WINDOWS = {"step_s_pipelined": (0.12, 0.34), "step_s_after_profile": (0.7, 0.95)}  # Shares of all steps.


@dataclass(frozen=True)
class Fault:
    """Time that one rank loses before each `every`-th step, in addition to the faults of its `Job`."""

    rank: int
    seconds: float
    every: int = 1
    sleeps: bool = False  # Waits instead of computing in Python.

    def lose_time(self, rank: int, step: int) -> None:
        """Lose the time if it is this rank's and this step's turn."""
        if rank == self.rank and step % self.every == self.every - 1:
            (time.sleep if self.sleeps else python_work)(self.seconds)


@dataclass(frozen=True)
class Planted:
    """A job, its fault, and the right values of those fields of the job that are faults."""

    job: Job
    fault: Fault | None = None
    repair: tuple[tuple[str, object], ...] = ()

    def fixed(self) -> Planted:
        """Return the job without its fault."""
        return Planted(replace(self.job, **dict(self.repair)))  # type: ignore[arg-type]


NARROW = GptShape(layers=8, width=640, heads=10, seq=512)
PLANTED = {
    "even_llama": Planted(Job(jobs.LLAMA, 4, model="llama")),
    "even_whisper": Planted(Job(jobs.WHISPER, 12, model="whisper")),
    "python_dense": Planted(Job(jobs.DENSE, 64, model="dense"), Fault(1, 0.02)),
    "sometimes_bert": Planted(Job(jobs.BERT, 24, model="bert"), Fault(0, 0.06, every=5, sleeps=True)),
    "sometimes_conformer": Planted(Job(jobs.CONFORMER, 32, model="conformer"), Fault(1, 0.04, every=3)),
    "uneven_unet": Planted(Job(jobs.UNET, 16, model="unet", more_work=(1.0, 1.7)), None, (("more_work", (1.0, 1.0)),)),
    "loader_clicks": Planted(
        Job(jobs.CLICKS, 8192, model="clicks", late_s=(0.0, 0.03), sleeps=True), None, (("late_s", (0.0, 0.0)),)
    ),
    "sleeps_fsdp": Planted(Job(jobs.CODER, 8, "fsdp", "coder"), Fault(1, 0.025, sleeps=True)),
    "evaluates_t5": Planted(Job(jobs.T5, 24, model="t5"), Fault(0, 0.4, every=40)),
    "crowded_convnext": Planted(Job(jobs.CONVNEXT, 48, model="convnext", crowded=1), None, (("crowded", -1),)),
    "python_tensor": Planted(Job(NARROW, 24, "tensor"), Fault(0, 0.015)),
    "python_pipeline": Planted(Job(jobs.LARGE, 4, "pipeline", micro=4), Fault(1, 0.04)),
    "unused_mixer": Planted(Job(jobs.MIXER, 64, model="mixer", unused=True), None, (("unused", False),)),
    "one_by_one_linear": Planted(Job(jobs.LINEAR, 12, "by_hand", "linear"), None, (("share", "ddp"),)),
}


def train(planted: Planted, rank: int, step: Step) -> dict[str, float]:
    """Train for about `TOTAL_S` seconds and return the stopwatch's seconds per step."""

    def run(first: int, end: int) -> float:
        """Return the seconds per step of some steps, with one wait at their end."""
        begin = time.perf_counter()
        for index in range(first, end):
            if planted.fault is not None:
                planted.fault.lose_time(rank, index)
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / max(1, end - first)

    run(0, WARM)
    steps = max(60, round(TOTAL_S / largest_over_ranks(run(WARM, WARM + TIMED))))
    # The steps so far count, because the first window must end before the recorder's profile, which begins after 5 s.
    times, done = {}, WARM + TIMED
    for key, window in WINDOWS.items():
        first = max(round(window[0] * steps), done)
        end = max(round(window[1] * steps), first + TIMED)
        run(done, first)
        times[key] = run(first, end)
        done = end
    run(done, steps)
    return times


def main() -> None:
    """Train this process's rank of the job that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("job", choices=PLANTED)
    parser.add_argument("folder", type=Path, help="folder that gets truth.json")
    parser.add_argument("--fixed", action="store_true", help="train without the fault")
    args = parser.parse_args()
    planted = PLANTED[args.job].fixed() if args.fixed else PLANTED[args.job]
    rank = int(os.environ["LOCAL_RANK"])
    second = []
    if planted.job.crowded == rank:  # Forked before this process uses its GPU.
        second = [multiprocessing.get_context("fork").Process(target=crowd, args=(rank,), daemon=True)]
        second[0].start()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    times = train(planted, rank, step_of_job(planted.job, rank))
    if rank == 0:
        args.folder.mkdir(parents=True, exist_ok=True)
        fault = asdict(planted.fault) if planted.fault else None
        truth = {"name": args.job, "fixed": args.fixed, "job": asdict(planted.job), "fault": fault, **times}
        (args.folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    dist.barrier()
    dist.destroy_process_group()
    for process in second:
        process.kill()


if __name__ == "__main__":
    main()

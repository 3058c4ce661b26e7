"""Measure what `sawtooth run` costs a step of a host-bound loop, in processor time.

    python -m tests.benchmarks.hook --pairs 8

A small step runs with and without marks in turn. Then the hook alone is measured: the thread's time in a loop of pure Python,
with and without the hook in turn. The loop is 3 calls deep, 35 calls deep, and 22 calls deep. The last one is like Lightning:
from the loop to the optimizer's step, there are 13 more calls of an installed package. Last, ready batches are taken from a
loader, with and without timing of the waits, in turn. No GPU is needed: the optimizer is PyTorch's on the processor, and
neither telemetry nor a profile is taken. It needs PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sawtooth.ingest.capture.command.hook import Hook
from sawtooth.ingest.capture.command.settings import HookSettings
from sawtooth.ingest.capture.in_process.loader_waits import ITERATORS, LoaderWaits
from tests.support.paths import ROOT

RECORDER = "from sawtooth.ingest.capture.commands import main; main()"
LOOP = """
import time, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
def steps(count):
    for _ in range(count):
        optimizer.zero_grad()
        (weight * weight).sum().backward()
        optimizer.step()
steps(2000)
rounds = []
for _ in range(10):
    start = time.process_time()
    steps(3000)
    rounds.append((time.process_time() - start) / 3000 * 1e6)
print(sorted(rounds)[2])
"""

DEPTHS = {"3 calls deep": (0, 0), "35 calls deep": (32, 0), "22 calls deep, 13 of a package to the step": (19, 13)}
ROUND = 20_000  # steps
CALLS = """
import time
def step(hook, within):
    if within:
        return step(hook, within - 1)
    sum(range(100))
    if hook is not None:
        hook(step)
def loop(hook, within, count):
    start = time.thread_time_ns()
    for _ in range(count):
        step(hook, within)
    return (time.thread_time_ns() - start) / count / 1e3
def deep(outside, *rest):
    return deep(outside - 1, *rest) if outside else loop(*rest)
"""


def alone(outside: int, within: int, pairs: int) -> float:
    """Return the hook's own time per step after the profile, µs."""
    calls: dict[str, Any] = {}
    exec(compile(CALLS, "/env/site-packages/trainer.py", "exec"), calls)
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        hook = Hook(HookSettings(Path(folder), 5, float("inf"), None, 1, 1))
        for _ in range(pairs + 1):
            marked = calls["deep"](outside, hook.on_step, within, ROUND)
            differences.append(marked - calls["deep"](outside, None, within, ROUND))
            hook._watch.note_profile(time.monotonic_ns())
    return statistics.median(differences[1:])


class ReadyBatches:
    """A loader that is also its dataset and iterator, with ready batches."""

    dataset = range(8)
    _num_yielded = 1

    def __iter__(self) -> Any:
        return type(self)()

    def __next__(self) -> int:
        return self._next_data()

    def _next_data(self) -> int:
        return 0


def per_batch(pairs: int) -> list[float]:
    """Return the time that measuring the wait for a batch adds to a step, µs, for each pair."""
    differences = []
    for _ in range(pairs + 1):
        took_us = []
        for timed in (False, True):
            loader = type("Loader", (ReadyBatches,), dict(vars(ReadyBatches)))
            waits = LoaderWaits()
            if timed:
                waits.watch(SimpleNamespace(DataLoader=loader, **dict.fromkeys(ITERATORS, loader)))
            batches, since = iter(loader()), waits.wait_reader()
            start_ns = time.thread_time_ns()
            for _ in range(ROUND):
                next(batches)
                since(0, "train")
            took_us.append((time.thread_time_ns() - start_ns) / ROUND / 1e3)
        differences.append(took_us[1] - took_us[0])
    return differences[1:]


def microseconds(script: Path, *before: str) -> float:
    """Return the processor time of a step in µs: the third fastest of ten rounds.

    So other work on the machine hardly counts.
    """
    line = [sys.executable, *before, *((sys.executable,) if before else ()), str(script)]
    done = subprocess.run(line, cwd=script.parent, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    return float(next(word for word in done.stdout.split() if word.replace(".", "", 1).isdigit()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    pairs = parser.parse_args().pairs
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(LOOP, encoding="utf-8")
        for _ in range(pairs):
            plain = microseconds(script)
            marked = microseconds(script, "-c", RECORDER, "run", "--no-profile", "--no-sample", "-o", f"{folder}/run.sawtooth")
            differences.append(marked - plain)
            print(f"plain {plain:.2f} µs, marked {marked:.2f} µs, difference {marked - plain:+.2f} µs", flush=True)
    print(f"median of {pairs}: {statistics.median(differences):+.2f} µs a step")
    for where, (outside, within) in DEPTHS.items():
        print(f"by itself, {where}: {alone(outside, within, pairs):.2f} µs")
    waits = per_batch(pairs)
    print(f"wait for a batch: {statistics.median(waits):.2f} µs a step ({min(waits):.2f} to {max(waits):.2f})")


if __name__ == "__main__":
    main()

"""Measure what `sawtooth run` costs a loop with very many tiny operators.

    python -m tests.benchmarks.many_operators --operators 500 2000 8000
    python -m tests.benchmarks.many_operators --operators 1000 --device cuda

On a GPU, each step ends with a synchronisation.
Each loop runs alone and recorded. The output has the median step by its own stopwatch, the processor time of steps that take more than
twice the median (the profile and the steps after it), the peak memory, and the recorder's messages. It needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.hook import RECORDER
from tests.support.paths import ROOT

LOOP = """
import json, resource, sys, time, torch
torch.set_num_threads(1)
operators, seconds, device = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
weight = torch.nn.Parameter(torch.ones(4, device=device))
optimizer = torch.optim.SGD([weight], lr=1e-6)
times, used = [time.perf_counter()], [time.process_time()]
while times[-1] - times[0] < seconds:
    optimizer.zero_grad()
    x = weight
    for _ in range(operators):
        x = x * 1.0
    x.sum().backward()
    optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    times.append(time.perf_counter())
    used.append(time.process_time())
print("STEPS", json.dumps([times, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measured(folder: Path, loop: tuple[int, float, str], *before: str) -> tuple[list[float], list[float], float, str]:
    """Return the steps of a loop and their processor time in s, its peak memory in MB, and messages.

    ``loop`` is the number of operators, the seconds and the device.
    """
    script = folder / "train.py"
    script.write_text(LOOP, encoding="utf-8")
    words = [sys.executable, *before, *((sys.executable,) if before else ()), str(script), *map(str, loop)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SAWTOOTH_DATA": str(folder / "data")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("STEPS"))
    times, used, peak = json.loads(line.removeprefix("STEPS"))
    steps, cpu = ([b - a for a, b in pairwise(readings)] for readings in (times, used))
    return steps, cpu, peak, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operators", type=int, nargs="+", default=[500, 2000, 8000], help="multiplications in a step")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    for operators in arguments.operators:
        for before in ((), ("-c", RECORDER, "run", "-o", "run.sawtooth")):
            with tempfile.TemporaryDirectory() as name:
                loop = (operators, arguments.seconds, arguments.device)
                steps, cpu, peak, messages = measured(Path(name), loop, *before)
            median, typical = 1e3 * statistics.median(steps), statistics.median(cpu)
            long = [s for s in cpu if s > 2 * typical]
            print(f"{operators} operators, {'recorded' if before else 'alone'}: median {median:.1f} ms, peak {peak:.0f} MB")
            print(f"  long steps, s of a core: {' '.join(f'{s:.2f}' for s in long)}, together {sum(long):.2f}")
            print("".join(f"  {line}\n" for line in messages.splitlines() if "step" in line.lower()), end="", flush=True)


if __name__ == "__main__":
    main()

"""Record small training loops under `sawtooth run`, in several processes and with one change.

    python sample_traces/processes.py --out processes --rounds 3 --seconds 540

Each round records every loop once in its own process. The first round also records each loop with its change. A round is a folder of recordings.
`python -m tests.accuracy.comparisons processes/1 processes/2 …` compares loops of different rounds, in which nothing changed, and each loop with its change.
A recording is a folder with `run.sawtooth`, as the recorder wrote it, and `truth.json`, which has stopwatch times of the steps before and after the profile.
Different lines of code call the stopwatches' steps, so the recorder does not count the marks of these steps to the loop. The stopwatches therefore check the
step time on steps from which it was not computed. The script needs PyTorch, a CUDA GPU, nvidia-ml-py and psutil. To try the script itself, use `--device cpu`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # A script's own folder is on the path, but not the folder above it.
    sys.path.insert(0, str(ROOT))

from sawtooth.sample_traces.process_gpu_loops import GPU_LOOPS  # noqa: E402 - after the path is set
from sawtooth.sample_traces.process_host_loops import HOST_LOOPS  # noqa: E402

LOOPS = {**GPU_LOOPS, **HOST_LOOPS}
RECORDER = [sys.executable, "-c", "from sawtooth.ingest.capture.commands import main; main()", "run"]
WARM_STEPS = 10
WATCH_S = 1.0  # Shortest duration of each stopwatch, s.
PROFILE_AFTER_S = 1.5
TRAIN_S = 4.5  # The loop's length without its warm-up. The profile of five steps lies inside it.
LIMIT_S = 60.0  # A process that takes longer is stopped.


@dataclass(frozen=True)
class Durations:
    """Shortest duration of each stopwatch, time before the profile, and length of the loop, s."""

    watch_s: float = WATCH_S
    after_s: float = PROFILE_AFTER_S
    length_s: float = TRAIN_S

    def as_options(self) -> list[str]:
        """Return the options of this script for these durations."""
        return ["--watch", str(self.watch_s), "--after", str(self.after_s), "--length", str(self.length_s)]


def train(name: str, device: str, changed: bool, durations: Durations) -> dict[str, object]:
    """Run a loop, and return the step times by a stopwatch before and after the profile."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(4)
    step = LOOPS[name](device, changed)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def run(seconds: float) -> tuple[int, float]:
        """Return the number of steps and their duration in s; the GPU is idle at both ends."""
        wait()
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds or count < 3:
            step()
            count += 1
        wait()
        return count, time.perf_counter() - began

    for _ in range(WARM_STEPS):
        step()
    began = time.perf_counter()
    watches = [run(durations.watch_s)]
    run(durations.length_s - 2 * durations.watch_s)
    watches.append(run(max(durations.watch_s, durations.length_s - (time.perf_counter() - began))))
    return {"step_s_pipelined": watches[0][1] / watches[0][0], "step_s_after_profile": watches[1][1] / watches[1][0]}


def record(name: str, device: str, changed: bool, folder: Path, durations: Durations) -> str:
    """Record one process into its folder, and return a line about it."""
    folder.mkdir(parents=True)
    bundle, truth = folder / "run.sawtooth", folder / "truth.json"
    own = [sys.executable, __file__, "--train", name, "--device", device, "--truth", str(truth), *["--changed"] * changed]
    own += durations.as_options()
    command = [*RECORDER, "--after", str(durations.after_s), "-o", str(bundle), *own]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        try:
            code = subprocess.run(
                command, stdout=output, stderr=output, timeout=LIMIT_S, env=environment, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    if code or not bundle.exists() or not truth.exists():
        return f"exit code {code}, see {folder / 'output.txt'}"
    facts = json.loads(truth.read_text(encoding="utf-8"))
    facts["planted"] = "changed" if changed else LOOPS[name].__doc__
    facts["fixed_by"] = [] if changed else [{"recording": f"{name}_changed", "change": LOOPS[name].__doc__}]
    truth.write_text(json.dumps(facts), encoding="utf-8")
    return f"{1e3 * facts['step_s_pipelined']:.3f} ms before the profile, {1e3 * facts['step_s_after_profile']:.3f} ms after it"


def main(
    out: Path, rounds: int, seconds: float, device: str, chosen: Sequence[str], durations: Durations, *, changes: bool
) -> None:
    """Record round after round until the time is over."""
    began, took = time.monotonic(), [10.0]
    for number in range(1, rounds + 1):
        for changed in (False, True) if number == 1 and changes else (False,):
            for name in chosen:
                if time.monotonic() - began + 1.5 * statistics.mean(took) > seconds:
                    print(f"The time is over in round {number}.")
                    return
                start = time.monotonic()
                folder = out / str(number) / (f"{name}_changed" if changed else name)
                line = record(name, device, changed, folder, durations)
                took.append(time.monotonic() - start)
                print(f"{number} {name}{' changed' * changed}: {line}; {took[-1]:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--watch", type=float, default=WATCH_S, help="seconds of each stopwatch")
    parser.add_argument("--after", type=float, default=PROFILE_AFTER_S, help="seconds before the profile")
    parser.add_argument("--length", type=float, default=TRAIN_S, help="seconds of the loop")
    parser.add_argument("--unchanged", action="store_true", help="do not record the changed loops")
    parser.add_argument("--loops", nargs="*", default=list(LOOPS), choices=list(LOOPS))
    parser.add_argument("--train", choices=list(LOOPS), help=argparse.SUPPRESS)
    parser.add_argument("--truth", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--changed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    durations = Durations(options.watch, options.after, options.length)
    if options.train:
        facts = train(options.train, options.device, options.changed, durations)
        options.truth.write_text(json.dumps(facts), encoding="utf-8")
    else:
        out, rounds, seconds, device = options.out, options.rounds, options.seconds, options.device
        main(out, rounds, seconds, device, options.loops, durations, changes=not options.unchanged)

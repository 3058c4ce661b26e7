"""Trainings that use a profiler themselves, each without and with `sawtooth run`: exit code, output and written files have to be the same.

    python -m tests.benchmarks.other_profilers            # every pattern that this machine can run, as a table
    python -m tests.benchmarks.other_profilers schedule   # some patterns

Needs PyTorch and this repository, nothing else; on a machine with a GPU the trainings use it. "CUPTI taken" is simulated: only the variable
that Nsight Systems sets is there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

RECORDER = "from sawtooth.ingest.capture.commands import main; main()"
LIMIT_S = 300  # of one training
START = """
import contextlib, json, os, pickle, sys, threading, time
from collections import Counter
import torch
from torch.profiler import profile, schedule
torch.manual_seed(0)
torch.set_num_threads(1)
GPU = torch.cuda.is_available()
device = "cuda" if GPU else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def train(steps, after=lambda: None):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(8, 32, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        after()
    print("trained", steps, f"{loss.item():.6f}")
def own_capture():
    if os.environ.get("PLAIN"):
        return contextlib.nullcontext(type("Nothing", (), {"step": lambda self: None})())
    from sawtooth.capture import profile as capture
    return capture("own", sampler=False, skip=3, seconds=0.001, warmup=1, active=5)
def counts(prof):
    print(sorted((each.key, each.count) for each in prof.key_averages()))
"""
TAKEN, POSTPONED, NONE = "taken", "postponed", "none"


@dataclass(frozen=True)
class Pattern:
    """A training, what becomes of the recorder's profile in it, and what it needs besides PyTorch."""

    script: str
    profile: str
    needs: str = ""
    steps: int = 3  # that the recorder profiles
    environment: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0


PATTERNS = {
    "no other profiler": Pattern("train(200)", TAKEN),
    "around the loop": Pattern(
        "with profile() as prof:\n    train(150)\nprof.export_chrome_trace('theirs.json')\ncounts(prof)", NONE
    ),
    "fails in its profile": Pattern("with profile() as prof:\n    train(150)\n    raise KeyError('x')", NONE, exit_code=1),
    "begins during ours, then ends": Pattern(
        "train(60)\nwith profile(record_shapes=True) as prof:\n    train(60)\nprof.export_chrome_trace('theirs.json')\ncounts(prof)\ntrain(400)",
        POSTPONED,
        steps=100,
    ),
    "schedule, repeat=0": Pattern(
        "number = iter(range(10**6))\n"
        "def ready(prof): prof.export_chrome_trace(f'theirs-{next(number)}.json')\n"
        "with profile(schedule=schedule(wait=4, warmup=1, active=2, repeat=0), on_trace_ready=ready) as prof:\n    train(140, prof.step)",
        NONE,
        steps=20,
    ),
    "schedule, repeat=2": Pattern(
        "def ready(prof): prof.export_chrome_trace(f'theirs-{prof.step_num}.json.gz')\n"
        "with profile(schedule=schedule(wait=2, warmup=20, active=20, repeat=2), on_trace_ready=ready) as prof:\n    train(400, prof.step)",
        POSTPONED,
    ),
    "torch.autograd.profiler": Pattern(
        "with torch.autograd.profiler.profile() as prof:\n    train(150)\ncounts(prof)\nprof.export_chrome_trace('theirs.json')",
        NONE,
    ),
    "another thread's profile": Pattern(
        "def other():\n    with profile() as prof:\n        torch.ones(9).sum(); time.sleep(0.3)\n    counts(prof)\n"
        "train(60)\nthread = threading.Thread(target=other)\nthread.start()\n"
        "train(400, lambda: time.sleep(0.001))\nthread.join()",
        POSTPONED,
        steps=100,
    ),
    "capture inside a profile": Pattern(
        "with profile() as prof, own_capture() as capture:\n    train(150, capture.step)\nprof.export_chrome_trace('theirs.json')\ncounts(prof)",
        NONE,
    ),
    "two recorders": Pattern("with own_capture() as capture:\n    train(400, capture.step)", POSTPONED, steps=100),
    "emit_nvtx": Pattern("with torch.autograd.profiler.emit_nvtx():\n    train(150)", NONE, needs="GPU"),
    "emit_itt": Pattern("with torch.autograd.profiler.emit_itt():\n    train(150)", NONE, needs="ITT"),
    "execution trace": Pattern(
        "from torch.profiler import ExecutionTraceObserver\n"
        "observer = ExecutionTraceObserver().register_callback('theirs.et.json')\n"
        "observer.start()\ntrain(200)\nobserver.stop()\nobserver.unregister_callback()",
        TAKEN,
    ),
    "memory history": Pattern(
        "torch.cuda.memory._record_memory_history()\ntrain(200)\nsnapshot = torch.cuda.memory._snapshot()\n"
        "print(sorted(Counter(each['action'] for trace in snapshot['device_traces'] for each in trace).items()))",
        TAKEN,
        needs="GPU",
    ),
    "CUPTI taken (simulated)": Pattern("train(200)", NONE, environment={"NSYS_PROFILING_SESSION_ID": "1"}),
    "Lightning's profiler": Pattern(
        "import lightning\nfrom lightning.pytorch.profilers import PyTorchProfiler\n"
        "class Task(lightning.LightningModule):\n"
        "    def __init__(self): super().__init__(); self.model = model\n"
        "    def training_step(self, batch, index): return self.model(batch).square().mean()\n"
        "    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=1e-3)\n"
        "trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, "
        "enable_model_summary=False, profiler=PyTorchProfiler('.', 'theirs', export_to_chrome=False))\n"
        "trainer.fit(Task(), torch.utils.data.DataLoader(torch.ones(300, 32), batch_size=1))",
        POSTPONED,
        needs="lightning",
    ),
    "Accelerate's profiler": Pattern(
        "from accelerate import Accelerator\nfrom accelerate.utils import ProfileKwargs\n"
        "kwargs = ProfileKwargs(activities=['cpu'], output_trace_dir='theirs')\n"
        "with Accelerator(cpu=not GPU, kwargs_handlers=[kwargs]).profile() as prof:\n    train(150)\ncounts(prof)",
        NONE,
        needs="accelerate",
    ),
}


def lacks(pattern: Pattern) -> str | None:
    """Return what this machine lacks for a pattern."""
    if pattern.needs in ("GPU", "ITT"):
        asked = "torch.cuda.is_available()" if pattern.needs == "GPU" else "torch.profiler.itt.is_available()"
        done = subprocess.run([sys.executable, "-c", f"import torch; raise SystemExit(not {asked})"], check=False)
        return f"no {pattern.needs}" if done.returncode else None
    return f"no {pattern.needs}" if pattern.needs and importlib.util.find_spec(pattern.needs) is None else None


def written(folder: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return, for each trace that a training wrote, how many operators, annotations and kernels of each name are in it."""
    found = {}
    for path in sorted(folder.rglob("theirs*")):
        if path.is_dir() or ".json" not in path.name:
            continue
        if path.suffix == ".gz":
            import gzip

            text = gzip.decompress(path.read_bytes())
        else:
            text = path.read_bytes()
        about = json.loads(text)
        events = about.get("traceEvents")
        if events is None:
            names = Counter(("node", node["name"]) for node in about["nodes"])
        else:
            kept = ("cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset")
            names = Counter((event["cat"], event["name"]) for event in events if event.get("cat") in kept)
        found[str(path.relative_to(folder))] = names
    return found


@dataclass(frozen=True)
class Outcome:
    """What a pattern did without and with the recorder."""

    code: int
    same_output: bool
    same_files: bool
    files: int
    profile: str
    answer: str

    def is_right(self, pattern: Pattern) -> bool:
        """Tell whether nothing changed, and our profile became what it should."""
        profiles = (
            (TAKEN, POSTPONED) if pattern.profile == POSTPONED else (pattern.profile,)
        )  # it may be steady later than theirs
        return self.code == pattern.exit_code and self.same_output and self.same_files and self.profile in profiles


def compare(pattern: Pattern, folder: Path) -> Outcome:
    """Run a pattern without and with the recorder, in two folders below ``folder``."""
    alone, recorded = folder / "alone", folder / "recorded"
    for place in (alone, recorded):
        place.mkdir()
        (place / "train.py").write_text(START + pattern.script + "\n", encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **pattern.environment}
    recorder = [sys.executable, "-c", RECORDER, "run", "-o", "run.sawtooth", "--no-sample", "--after", "0.001"]
    plain = _run([sys.executable, "train.py"], alone, {**variables, "PLAIN": "1"})
    done = _run([*recorder, "--steps", str(pattern.steps), sys.executable, "train.py"], recorded, variables)
    one, other = written(alone), written(recorded)
    if plain.returncode != pattern.exit_code:
        raise RuntimeError(f"the training alone ended with exit code {plain.returncode}: {plain.stderr}")
    return Outcome(
        done.returncode,
        done.stdout == plain.stdout,
        one == other,
        len(one),
        _profile(recorded / "run.sawtooth", done.stderr),
        done.stderr,
    )


def _run(command: Sequence[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def _profile(bundle: Path, answer: str) -> str:
    import zipfile

    with zipfile.ZipFile(bundle) as archive:
        kinds = {about["kind"] for about in json.loads(archive.read("manifest.json"))["runs"][0]["recordings"]}
    return NONE if "trace" not in kinds else POSTPONED if "The profile began after step" in answer else TAKEN


def main() -> None:
    """Print a table; exit with 1 where a pattern is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="parts of names; all if none")
    parser.add_argument("--answers", action="store_true", help="print what the recorder said, too")
    chosen = parser.parse_args()
    wrong = 0
    print(
        "| pattern | exit code | same output | same files | our profile | as expected |\n|---|---|---|---|---|---|", flush=True
    )
    for name, pattern in PATTERNS.items():
        if chosen.patterns and not any(part in name for part in chosen.patterns):
            continue
        missing = lacks(pattern)
        if missing is not None:
            print(f"| {name} | not run: {missing} | | | | |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = compare(pattern, Path(folder))
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                wrong += 1
                print(f"| {name} | {str(error)[:200]} | | | | no |", flush=True)
                continue
        right = done.is_right(pattern)
        wrong += not right
        words = ["no", "yes"]
        cells = (done.code, words[done.same_output], f"{words[done.same_files]} ({done.files})", done.profile, words[right])
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        if chosen.answers or not right:
            print(done.answer, file=sys.stderr, flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

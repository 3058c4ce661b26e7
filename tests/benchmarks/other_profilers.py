"""Compare trainings that use a profiler themselves, without and with `sawtooth run`.

    python -m tests.benchmarks.other_profilers            # every pattern that this machine can run, as a table
    python -m tests.benchmarks.other_profilers schedule   # some patterns
    python -m tests.benchmarks.other_profilers --control  # alone twice, to leave out differences that occur without the recorder

Exit code, output (also on stderr) and written files must be the same. It needs only PyTorch and this repository; on a
machine with a GPU the trainings use it. "CUPTI taken" is simulated
by setting the variable that Nsight Systems sets.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.support.forked_torch import server
from tests.support.paths import ROOT

RECORDER = [sys.executable, "-c", "from sawtooth.ingest.capture.commands import main; main()", "run"]
LIMIT_S = 300  # longest time of one training
NOT_THE_SERVER = ("--no-sample", "--no-loader", "--after", "3600")  # The forks are recorded, and the server is not.
START = """
import contextlib, glob, itertools, os, sys, threading, time
os.dup2(os.open("stderr.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
from collections import Counter
import torch
from torch.profiler import profile, schedule
torch.manual_seed(0)
torch.set_num_threads(1)
GPU, PLAIN = torch.cuda.is_available(), "SAWTOOTH_RUN_FOLDER" not in os.environ
device = "cuda" if GPU else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
LIMIT = time.monotonic() + 60
def train(after, least=0):  # until after() is true
    for number in itertools.count(1):
        optimizer.zero_grad()
        loss = model(torch.ones(8, 32, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        if time.monotonic() > LIMIT:
            raise TimeoutError("the recorder did not get where this training expects it")
        if after() and number >= least:
            break
    print("trained", f"{loss.item():.6f}")
def steps(count, then=lambda: None):
    left = iter(range(count - 1))
    def after():
        then()
        return next(left, None) is None
    return after
def in_turn(*parts):  # each is (whether its time has come, what is done then), one after the other
    parts = list(parts)
    def after():
        if parts and parts[0][0]():
            parts.pop(0)[1]()
        return not parts
    return after
def counted(count):  # steps since it was asked first
    left = iter(range(count))
    return lambda: next(left, None) is None
def nothing(): pass
def recorders():
    return getattr(sys.modules.get("_sawtooth_in_this_process"), "profilers", None)
def ours_runs():
    return PLAIN or recorders().ours is not None
def ours_waits():
    return PLAIN or bool(glob.glob(os.environ["SAWTOOTH_RUN_FOLDER"] + "/other_profiler-*.json"))
def ours_is_taken():
    return PLAIN or bool(glob.glob(os.environ["SAWTOOTH_RUN_FOLDER"] + "/trace-*.json"))
def own_capture():
    if PLAIN:
        return contextlib.nullcontext(type("Nothing", (), {"step": lambda self: None})())
    from sawtooth.capture import profile as capture
    return capture("own", sampler=False, skip=3, seconds=0.001, warmup=1, active=5)
def counts(prof):
    print(sorted((each.key, each.count) for each in prof.key_averages()))
"""
T = TypeVar("T")
TAKEN, POSTPONED, NONE = "taken", "postponed", "none"


@dataclass(frozen=True)
class Pattern:
    """A training, the outcome of the recorder's profile in it, and its requirements besides PyTorch."""

    script: str
    profile: str
    needs: str = ""
    steps: int = 3  # number of steps that the recorder profiles
    environment: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0
    or_postponed: bool = False


PATTERNS = {
    "no other profiler": Pattern("train(ours_is_taken, 50)", TAKEN),
    "around the loop": Pattern(
        "with profile() as prof:\n    train(steps(150))\nprof.export_chrome_trace('theirs.json')\ncounts(prof)", NONE
    ),
    "fails in its profile": Pattern(
        "with profile() as prof:\n    train(steps(150))\n    raise KeyError('x')", NONE, exit_code=1
    ),
    "after ours": Pattern(
        "prof = profile(record_shapes=True)\n"
        "train(in_turn((ours_is_taken, prof.start), (counted(60), prof.stop)))\nprof.export_chrome_trace('theirs.json')\ncounts(prof)",
        TAKEN,
    ),
    "begins during ours, then ends": Pattern(
        "prof = profile(record_shapes=True)\n"
        "train(in_turn((ours_runs, prof.start), (counted(60), prof.stop), (ours_is_taken, nothing)))\n"
        "prof.export_chrome_trace('theirs.json')\ncounts(prof)",
        POSTPONED,
        steps=100,
    ),
    "begins during ours, with stacks": Pattern(
        "prof = profile(with_stack=True)\n"
        "train(in_turn((ours_runs, prof.start), (counted(60), prof.stop), (ours_is_taken, nothing)))\n"
        "prof.export_chrome_trace('theirs.json')",  # Its Python calls include those of the recorder.
        POSTPONED,
        steps=100,
    ),
    "schedule, repeat=0": Pattern(
        "number = iter(range(10**6))\n"
        "def ready(prof): prof.export_chrome_trace(f'theirs-{next(number)}.json')\n"
        "with profile(schedule=schedule(wait=4, warmup=1, active=2, repeat=0), on_trace_ready=ready) as prof:\n"
        "    train(steps(140, prof.step))",
        NONE,
        steps=20,
    ),
    "schedule, repeat=2": Pattern(
        "def ready(prof): prof.export_chrome_trace(f'theirs-{prof.step_num}.json.gz')\n"
        "with profile(schedule=schedule(wait=2, warmup=20, active=20, repeat=2), on_trace_ready=ready) as prof:\n"
        "    def step():\n        if prof.step_num != 10 or ours_waits(): prof.step()\n"
        "    train(lambda: step() or (prof.step_num > 90 and ours_is_taken()))",
        POSTPONED,
    ),
    "torch.autograd.profiler": Pattern(
        "with torch.autograd.profiler.profile() as prof:\n    train(steps(150))\ncounts(prof)\nprof.export_chrome_trace('theirs.json')",
        NONE,
    ),
    "another thread's profile": Pattern(
        "def other():\n    with profile() as prof:\n        torch.ones(9).sum(); time.sleep(0.2)\n    counts(prof)\n"
        "thread = threading.Thread(target=other)\n"
        "train(in_turn((ours_runs, thread.start), (lambda: not thread.is_alive(), nothing), (ours_is_taken, nothing)))",
        POSTPONED,
        steps=100,
    ),
    "capture inside a profile": Pattern(
        "with profile() as prof, own_capture() as capture:\n    train(steps(150, capture.step))\n"
        "prof.export_chrome_trace('theirs.json')\ncounts(prof)",
        NONE,
    ),
    "two recorders": Pattern(  # The one that sees a steady loop first begins, and the other one waits.
        "with own_capture() as capture:\n    train(lambda: capture.step() or (ours_is_taken() and getattr(capture, 'done', True)), 50)",
        TAKEN,
        steps=100,
        or_postponed=True,
    ),
    "emit_nvtx": Pattern("with torch.autograd.profiler.emit_nvtx():\n    train(steps(150))", NONE, needs="GPU"),
    "emit_itt": Pattern("with torch.autograd.profiler.emit_itt():\n    train(steps(150))", NONE, needs="ITT"),
    "execution trace": Pattern(
        "from torch.profiler import ExecutionTraceObserver\n"
        "observer = ExecutionTraceObserver().register_callback('theirs.et.json')\n"
        "train(in_turn((ours_runs, observer.start), (counted(40), observer.stop), (ours_is_taken, nothing)))\n"
        "observer.unregister_callback()",
        TAKEN,
        steps=100,
    ),
    "memory history": Pattern(
        "def report():\n    snapshot = torch.cuda.memory._snapshot()\n"
        "    print(sorted(Counter(each['action'] for trace in snapshot['device_traces'] for each in trace).items()))\n"
        "train(in_turn((ours_runs, torch.cuda.memory._record_memory_history), (counted(40), report), (ours_is_taken, nothing)))",
        TAKEN,
        needs="GPU",
        steps=100,
    ),
    "CUPTI taken (simulated)": Pattern("train(ours_waits, 50)", NONE, environment={"NSYS_PROFILING_SESSION_ID": "1"}),
    "Lightning's profiler": Pattern(
        "import lightning\nfrom lightning.pytorch.profilers import PyTorchProfiler\n"
        "class Task(lightning.LightningModule):\n"
        "    def __init__(self): super().__init__(); self.model = model\n"
        "    def training_step(self, batch, index): return self.model(batch).square().mean()\n"
        "    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=1e-3)\n"
        "trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, "
        "enable_model_summary=False, profiler=PyTorchProfiler('.', 'theirs', export_to_chrome=False))\n"
        "trainer.fit(Task(), torch.utils.data.DataLoader(torch.ones(300, 32), batch_size=1))",
        TAKEN,
        needs="lightning",
        or_postponed=True,  # Its schedule may end before the recorder's profile begins.
    ),
    "Accelerate's profiler": Pattern(
        "from accelerate import Accelerator\nfrom accelerate.utils import ProfileKwargs\n"
        "kwargs = ProfileKwargs(activities=['cpu'], output_trace_dir='theirs')\n"
        "with Accelerator(cpu=not GPU, kwargs_handlers=[kwargs]).profile() as prof:\n    train(steps(150))\ncounts(prof)",
        NONE,
        needs="accelerate",
    ),
}


def lacks(pattern: Pattern) -> str | None:
    """Return what this machine lacks for a pattern, without importing PyTorch."""
    if pattern.needs == "GPU":
        return None if Path("/dev/nvidiactl").exists() else "no GPU"
    if pattern.needs == "ITT":
        return None if platform.machine() in ("x86_64", "AMD64") else "no ITT"
    return f"no {pattern.needs}" if pattern.needs and importlib.util.find_spec(pattern.needs) is None else None


def written(folder: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return the number of operators, annotations and kernels of each name in each written trace."""
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
            kinds = ("cpu_op", "user_annotation", "kernel", "gpu_memcpy", "gpu_memset")
            names = Counter((event["cat"], event["name"]) for event in events if event.get("cat") in kinds)
        found[str(path.relative_to(folder))] = names
    return found


@dataclass(frozen=True)
class Outcome:
    """The results of a pattern without and with the recorder."""

    code: int
    same_output: bool
    same_files: bool
    files: int
    profile: str
    answer: str
    errors: str  # lines that the training itself wrote to stderr and that differ
    varying: int = 0  # number of names, lines and counts that differ between two runs alone and are not compared

    def is_right(self, pattern: Pattern) -> bool:
        """Return whether nothing changed and the recorder's profile has the expected outcome."""
        same = self.same_output and self.same_files and not self.errors
        profiles = (TAKEN, POSTPONED) if pattern.or_postponed else (pattern.profile,)
        return self.code == pattern.exit_code and same and self.profile in profiles


def compare(
    pattern: Pattern, folder: Path, alone_by: str = sys.executable, recorded_by: str = sys.executable, *, control: bool = False
) -> Outcome:
    """Run a pattern without and with the recorder, in folders below ``folder``.

    ``alone_by`` and ``recorded_by`` are the commands that run a script. With ``control`` it runs alone a second time.
    """
    alone, recorded, again = folder / "alone", folder / "recorded", folder / "again"
    for place in (alone, recorded, *[again][:control]):
        place.mkdir()
        (place / "train.py").write_text(START + pattern.script + "\n", encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **pattern.environment}
    recorder = [*RECORDER, "-o", "run.sawtooth", "--no-sample", "--after", "0.001"]
    plain = _run([alone_by, "train.py"], alone, variables)
    done = _run([*recorder, "--steps", str(pattern.steps), recorded_by, "train.py"], recorded, variables)
    if not (recorded / "run.sawtooth").exists():
        raise RuntimeError(f"no file was recorded: {done.stderr} {_errors(recorded)}")
    one, other = written(alone), written(recorded)
    repeated = _run([alone_by, "train.py"], again, variables) if control else plain
    traces, errors = (written(again), _errors(again)) if control else (one, _errors(alone))
    varying = {
        "output": _unequal(_printed(plain.stdout), _printed(repeated.stdout)),
        "errors": _unequal(_errors(alone), errors),
        **{name: _unequal(one.get(name, Counter()), traces.get(name, Counter())) for name in one | traces},
    }
    if plain.returncode != pattern.exit_code:
        raise RuntimeError(f"the training alone ended with exit code {plain.returncode}: {_errors(alone)} {plain.stderr}")
    return Outcome(
        done.returncode,
        not _unequal(_printed(plain.stdout), _printed(done.stdout)) - varying["output"],
        one.keys() == other.keys() and not any(_unequal(one[name], other[name]) - varying[name] for name in one),
        len(one),
        _profile(recorded / "run.sawtooth", done.stderr),
        done.stderr,
        _differ(
            *(
                Counter({line: found[line] for line in found.keys() - varying["errors"]})
                for found in (_errors(alone), _errors(recorded))
            )
        ),
        sum(map(len, varying.values())),
    )


def _printed(text: str) -> Counter[str]:
    """Return the printed lines and, of printed lists of counts, each count."""
    return Counter(part for line in text.splitlines() for part in re.split(r"(?<=\)), (?=\()", line.strip("[]")))


def _unequal(one: Counter[T], other: Counter[T]) -> set[T]:
    """Return the items with different counts."""
    return {name for name in one | other if one[name] != other[name]}


def _errors(place: Path) -> Counter[str]:
    """Return the lines that the training in ``place`` wrote to stderr, for comparison.

    Times, process numbers and the text of our own capture are removed.
    """
    lines = (place / "stderr.txt").read_text().splitlines() if (place / "stderr.txt").exists() else []
    return Counter(re.sub(r"\d+", "0", line.replace(str(place), "")) for line in lines if not line.startswith("sawtooth: "))


def _differ(alone: Counter[str], recorded: Counter[str]) -> str:
    """Return the lines that are missing or new.

    Lines that Kineto prints for every profile, also for ours, are ignored.
    """
    lost = [line for line in alone - recorded if "External init callback" not in line]  # of a first profile on another thread
    new = [line for line in recorded - alone if not (line.startswith("USDT") and line in alone)]
    return "\n".join([*(f"lost: {line}" for line in lost), *(f"new: {line}" for line in new)])


def _run(command: Sequence[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def _profile(bundle: Path, answer: str) -> str:
    import zipfile

    with zipfile.ZipFile(bundle) as archive:
        kinds = {about["kind"] for about in json.loads(archive.read("manifest.json"))["runs"][0]["recordings"]}
    return NONE if "trace" not in kinds else POSTPONED if "The profile began only after step" in answer else TAKEN


@contextmanager
def forked(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the commands that run a script without and with the recorder.

    They use forks of two processes that have imported PyTorch.
    """
    places = folder / "alone", folder / "recorded"
    for place in places:
        place.mkdir()
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        server(places[0], variables) as alone,
        server(places[1], variables, *RECORDER, *NOT_THE_SERVER) as recorded,
    ):
        yield alone.ready(), recorded.ready()


def _is_right(name: str, by: Sequence[str], answers: bool, control: bool) -> bool:
    """Compare a pattern and print its row."""
    pattern = PATTERNS[name]
    missing = lacks(pattern)
    if missing is not None:
        print(f"| {name} | not run: {missing} | | | | | | |", flush=True)
        return True
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = compare(pattern, Path(folder), *by, control=control)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            print(f"| {name} | {str(error)[:900]} | | | | | | no |", flush=True)
            return False
    right, words = done.is_right(pattern), ["no", "yes"]
    same = words[done.same_output], words[not done.errors], f"{words[done.same_files]} ({done.files})"
    print("|", " | ".join((name, str(done.code), *same, str(done.varying), done.profile, words[right])), "|", flush=True)
    if answers or not right:
        print(done.answer, done.errors, file=sys.stderr, flush=True)
    return right


def main() -> None:
    """Print a table; exit with 1 if a pattern is not as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="parts of names; all if none")
    parser.add_argument("--forked", action="store_true", help="import PyTorch once, as the tests do; not on a GPU")
    parser.add_argument("--control", action="store_true", help="run alone twice, and do not compare what differs between these")
    parser.add_argument("--answers", action="store_true", help="also print the recorder's messages")
    chosen = parser.parse_args()
    print(
        "| pattern | exit code | same stdout | same stderr | same files | varies alone | our profile | as expected |\n|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    named = [name for name in PATTERNS if not chosen.patterns or any(part in name for part in chosen.patterns)]
    with tempfile.TemporaryDirectory() as folder, forked(Path(folder)) if chosen.forked else nullcontext(()) as by:
        wrong = sum([not _is_right(name, by, chosen.answers, chosen.control) for name in named])
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

"""Scripts of trainings that use a profiler.

Each has the expected outcome of the recorder's own profile.
"""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import dataclass, field
from pathlib import Path

TAKEN, POSTPONED, NONE = "taken", "postponed", "none"
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
DEADLINE = time.monotonic() + 60
def train(after, min_steps=0):  # ends once after() is true
    for number in itertools.count(1):
        optimizer.zero_grad()
        loss = model(torch.ones(8, 32, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        if time.monotonic() > DEADLINE:
            raise TimeoutError("the recorder did not reach the state that this training waits for")
        if after() and number >= min_steps:
            break
    print("trained", f"{loss.item():.6f}")
def steps(count, then=lambda: None):
    left = iter(range(count - 1))
    def after():
        then()
        return next(left, None) is None
    return after
def one_after_another(*parts):  # each part is (condition, action); the next part follows when the action is done
    parts = list(parts)
    def after():
        if parts and parts[0][0]():
            parts.pop(0)[1]()
        return not parts
    return after
def after_steps(count):  # true from the count-th call on
    left = iter(range(count))
    return lambda: next(left, None) is None
def nothing(): pass
def recorders():
    return getattr(sys.modules.get("_sawtooth_in_this_process"), "profilers", None)
def recorder_profiles():
    return PLAIN or recorders().ours is not None
def recorder_waits():
    return PLAIN or bool(glob.glob(os.environ["SAWTOOTH_RUN_FOLDER"] + "/other_profiler-*.json"))
def recorder_has_trace():
    return PLAIN or bool(glob.glob(os.environ["SAWTOOTH_RUN_FOLDER"] + "/trace-*.json"))
def capture_in_script():
    if PLAIN:
        return contextlib.nullcontext(type("Nothing", (), {"step": lambda self: None})())
    from sawtooth.capture import profile as capture
    return capture("own", sampler=False, skip=3, seconds=0.001, warmup=1, active=5)
def print_counts(prof):
    print(sorted((each.key, each.count) for each in prof.key_averages()))
"""


@dataclass(frozen=True)
class Pattern:
    """A training that uses a profiler, and the expected outcome of the recorder's own profile.

    ``needs`` is what the training requires besides PyTorch.
    """

    script: str
    profile: str
    needs: str = ""
    steps: int = 3  # Number of profiled steps.
    environment: dict[str, str] = field(default_factory=dict)
    exit_code: int = 0
    or_postponed: bool = False  # The profile may also be postponed.


PATTERNS = {
    "no other profiler": Pattern("train(recorder_has_trace, 50)", TAKEN),
    "around the loop": Pattern(
        "with profile() as prof:\n    train(steps(150))\nprof.export_chrome_trace('theirs.json')\nprint_counts(prof)", NONE
    ),
    "fails in its profile": Pattern(
        "with profile() as prof:\n    train(steps(150))\n    raise KeyError('x')", NONE, exit_code=1
    ),
    "after ours": Pattern(
        "prof = profile(record_shapes=True)\n"
        "train(one_after_another((recorder_has_trace, prof.start), (after_steps(60), prof.stop)))\nprof.export_chrome_trace('theirs.json')\nprint_counts(prof)",
        TAKEN,
    ),
    "begins during ours, then ends": Pattern(
        "prof = profile(record_shapes=True)\n"
        "train(one_after_another((recorder_profiles, prof.start), (after_steps(60), prof.stop), (recorder_has_trace, nothing)))\n"
        "prof.export_chrome_trace('theirs.json')\nprint_counts(prof)",
        POSTPONED,
        steps=100,
    ),
    "begins during ours, with stacks": Pattern(
        "prof = profile(with_stack=True)\n"
        "train(one_after_another((recorder_profiles, prof.start), (after_steps(60), prof.stop), (recorder_has_trace, nothing)))\n"
        "prof.export_chrome_trace('theirs.json')",  # Events are not counted, because the trace's Python calls include those of the recorder.
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
        "    def step():\n        if prof.step_num != 10 or recorder_waits(): prof.step()\n"
        "    train(lambda: step() or (prof.step_num > 90 and recorder_has_trace()))",
        POSTPONED,
    ),
    "torch.autograd.profiler": Pattern(
        "with torch.autograd.profiler.profile() as prof:\n    train(steps(150))\nprint_counts(prof)\nprof.export_chrome_trace('theirs.json')",
        NONE,
    ),
    "another thread's profile": Pattern(
        "def other():\n    with profile() as prof:\n        torch.ones(9).sum(); time.sleep(0.2)\n    print_counts(prof)\n"
        "thread = threading.Thread(target=other)\n"
        "train(one_after_another((recorder_profiles, thread.start), (lambda: not thread.is_alive(), nothing), (recorder_has_trace, nothing)))",
        POSTPONED,
        steps=100,
    ),
    "capture inside a profile": Pattern(
        "with profile() as prof, capture_in_script() as capture:\n    train(steps(150, capture.step))\n"
        "prof.export_chrome_trace('theirs.json')\nprint_counts(prof)",
        NONE,
    ),
    "two recorders": Pattern(  # The recorder that detects a steady loop first begins, and the other one waits.
        "with capture_in_script() as capture:\n    train(lambda: capture.step() or (recorder_has_trace() and getattr(capture, 'done', True)), 50)",
        TAKEN,
        steps=100,
        or_postponed=True,
    ),
    "emit_nvtx": Pattern("with torch.autograd.profiler.emit_nvtx():\n    train(steps(150))", NONE, needs="GPU"),
    "emit_itt": Pattern("with torch.autograd.profiler.emit_itt():\n    train(steps(150))", NONE, needs="ITT"),
    "execution trace": Pattern(
        "from torch.profiler import ExecutionTraceObserver\n"
        "observer = ExecutionTraceObserver().register_callback('theirs.et.json')\n"
        "train(one_after_another((recorder_profiles, observer.start), (after_steps(40), observer.stop), (recorder_has_trace, nothing)))\n"
        "observer.unregister_callback()",
        TAKEN,
        steps=100,
    ),
    "memory history": Pattern(
        "def report():\n    snapshot = torch.cuda.memory._snapshot()\n"
        "    print(sorted(Counter(each['action'] for trace in snapshot['device_traces'] for each in trace).items()))\n"
        "train(one_after_another((recorder_profiles, torch.cuda.memory._record_memory_history), (after_steps(40), report), (recorder_has_trace, nothing)))",
        TAKEN,
        needs="GPU",
        steps=100,
    ),
    "CUPTI taken (simulated)": Pattern("train(recorder_waits, 50)", NONE, environment={"NSYS_PROFILING_SESSION_ID": "1"}),
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
        "with Accelerator(cpu=not GPU, kwargs_handlers=[kwargs]).profile() as prof:\n    train(steps(150))\nprint_counts(prof)",
        NONE,
        needs="accelerate",
    ),
}


def missing_requirement(pattern: Pattern) -> str | None:
    """Return what this machine lacks for a pattern, or None. PyTorch is not imported."""
    if pattern.needs == "GPU":
        return None if Path("/dev/nvidiactl").exists() else "no GPU"
    if pattern.needs == "ITT":
        return None if platform.machine() in ("x86_64", "AMD64") else "no ITT"
    return f"no {pattern.needs}" if pattern.needs and importlib.util.find_spec(pattern.needs) is None else None

"""Traces, step marks and facts of trainings without GPU work."""

from __future__ import annotations

from pathlib import Path

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.manifest import UserFacts
from sawtooth.ingest.runs.manifests import register_run
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.prepared import prepared

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loop(steps: int = 4) -> ChromeTrace:
    """Add steps of 1000 µs: 600 in the loader, 300 in mm and 100 in neither.

    100 of the loader's are in an operator, and 50 of mm's are in its child.
    """
    trace = ChromeTrace()
    for k in range(steps):
        at = 1000 * k
        trace.thread = 1
        trace.step(k, at, at + 1000)
        trace.host("user_annotation", LOADER, at, at + 600)
        trace.op("aten::stack", at + 100, at + 200)
        trace.op("aten::mm", at + 620, at + 920)
        trace.op("aten::empty", at + 630, at + 680)
        trace.thread = 2
        trace.op("aten::copy_", at + 10, at + 50)
    return trace


def analysed(data: DataFolder, path: Path, **facts: float) -> RunResult:
    manifest = prepared(data, path, name="on the host")
    if facts:
        manifest = register_run(data, manifest.recordings, "on the host", {}, facts=UserFacts(**facts))
    library = Library(data)
    try:
        return result_of(manifest, library)
    finally:
        library.close()


RECORDED_CALL_MS = 0.0007  # The cost of recording a Python call.


def python_loop() -> ChromeTrace:
    """Add steps of 1000 µs: 700 in features, 100 in the loop itself and 200 in mm.

    Of features' time, 200 are in a library that it calls and 100 in an operator there.
    """
    trace = ChromeTrace()
    for k in range(4):
        at = 1000 * k
        trace.step(k, at, at + 1000)
        calls = [
            ("train.py(20): main", 0, 1000, None),
            ("data.py(4): features", 0, 700, 0),
            ("numpy/core/fromnumeric.py(7): sum", 100, 300, 1),
        ]
        for number, (name, begin, end, parent) in enumerate(calls):
            above = {} if parent is None else {"Python parent id": 10 * k + parent}
            trace.host("python_function", name, at + begin, at + end, **{"Python id": 10 * k + number}, **above)
        trace.op("aten::sum", at + 150, at + 250)
        trace.op("aten::mm", at + 750, at + 950)
    return trace


def recorded_with_stacks() -> ChromeTrace:
    """Return four optimizer steps of 1000 µs: 600 in env_step, of which 400 in sin, and 100 in Adam.

    In the last step Sawtooth's hook ends the profile for 90 ms.
    """
    trace = ChromeTrace()
    for k in range(4):
        at, end = 1000 * k, 1000 * k + (91_000 if k == 3 else 1000)
        calls = [
            ("rl/loop.py(5): env_step", 0, 600),
            ("<built-in function sin>", 100, 500),
            ("rl/loop.py(18): learn", 700, end - at),
            ("torch/optim/adam.py(2): step", 800, end - at),
            ("ingest/capture/command/hook.py(117): _advance", 960, end - at),
        ]
        for number, (name, first, last) in enumerate(calls):
            above = {"Python parent id": 10 * k + {1: 0, 3: 2, 4: 3}[number]} if number in (1, 3, 4) else {}
            trace.host("python_function", name, at + first, at + last, **{"Python id": 10 * k + number}, **above)
        trace.host("user_annotation", "Optimizer.step#Adam.step", at + 800, end)
        trace.op("aten::mm", at + 850, at + 950)
    return trace


TIMED = {"loader_cores": 4, "loader_batch": 16, "loader_sample_error_ms": 0.0}
WAITS = {**TIMED, "loader_sample_ms": 1.0, "loader_sample_cpu_ms": 0.1, "loader_collate_ms": 0.0}


def marked(path: Path, step_ms: float, steps: int = 100) -> Path:
    """Write marks of steps of ``step_ms`` each."""
    path.parent.mkdir(exist_ok=True)
    clock = iter(range(0, 10**12, int(step_ms * 1e6)))
    writer = MarkWriter(path, wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(steps):
        writer.mark(step)
    writer.close()
    return path

"""A training loop with the recorder's hook, on a clock that tests set."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sawtooth.ingest.capture.between_steps import BetweenSteps
from sawtooth.ingest.capture.command.call_site import CallSite
from sawtooth.ingest.capture.command.hook import Hook
from sawtooth.ingest.capture.command.settings import HookSettings

MS = 1_000_000


class HookedLoop:
    """A training loop with a clock set by hand and a profiler that records when it runs."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now_ns = 0
        self.profiled: list[tuple[str, int]] = []
        self.steps = 0
        chosen = {"steps": 3, "after_s": 1.0, "rank": None, "ranks": 1, "ranks_here": 1, **settings}
        self.between_steps = BetweenSteps()
        self.site = CallSite()
        self.hook = Hook(
            HookSettings(folder, **chosen),
            torch=self._torch(),
            clock_ns=lambda: self.now_ns,
            between_steps=self.between_steps,
            call_site=lambda *_: self.site,
        )

    def _torch(self) -> Any:
        loop = self

        class Profile:
            def __init__(self, on_trace_ready: Callable[[Any], None], **options: Any) -> None:
                assert options["record_shapes"]
                self._on_trace_ready = on_trace_ready

            def start(self) -> None:
                loop.profiled.append(("start", loop.steps))

            def stop(self) -> None:
                loop.profiled.append(("stop", loop.steps))
                self._on_trace_ready(self)

            def export_chrome_trace(self, path: str) -> None:
                Path(path).write_text('{"traceEvents": []}')

        kinds = SimpleNamespace(CPU="cpu", CUDA="cuda")
        cuda = SimpleNamespace(is_available=lambda: True)
        return SimpleNamespace(profiler=SimpleNamespace(ProfilerActivity=kinds, profile=Profile), cuda=cuda)

    def run(self, steps: int, ms: float, optimizer: object = "one") -> None:
        for _ in range(steps):
            self.now_ns += int(ms * MS)
            self.hook.on_step(optimizer)
            self.steps += 1


def marks_of(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("marks-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


WARM_UP, MAIN = CallSite(0, ("train.py:40",)), CallSite(1, ("train.py:55",))

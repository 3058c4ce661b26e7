"""Real loops on the CPU for the capture helper, with a clock of 20 ms per step and a scripted sampler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sawtooth.ingest.capture import loop_capture, sampler_process
from sawtooth.ingest.capture.loop_capture import Capture
from tests.support.sampler_bench import recorded


class SteppingClock:
    """A clock that the loop itself advances."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class FakeSampler:
    """A sampler that has written a session and prints to stderr when stopped."""

    def __init__(self, out: Path, *, says: bytes = b"") -> None:
        if not says:
            recorded(out)
        self.says = says
        self.returncode = 0
        self.stopped = False

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        self.stopped = True

    def communicate(self, timeout: float | None = None) -> tuple[None, bytes]:
        return None, self.says


def train(capture: Capture, clock: SteppingClock, steps: int, step_ms: float = 20.0) -> int:
    model, x = torch.nn.Linear(16, 16), torch.randn(4, 16)
    for done in range(steps):
        model(x).square().mean().backward()
        clock.ns += int(step_ms * 1e6)
        capture.step()
        if capture.done:
            return done + 1
    return steps


def use_stepping_clock(monkeypatch: pytest.MonkeyPatch) -> SteppingClock:
    """Replace the capture helper's clock and its sampler, and return the clock."""
    made = SteppingClock()
    monkeypatch.setattr(loop_capture.time, "perf_counter_ns", made)
    monkeypatch.setitem(Capture.__init__.__kwdefaults__, "clock_ns", made)  # type: ignore[arg-type]
    monkeypatch.setattr(sampler_process, "start_sampler", FakeSampler)
    return made

"""Tests of the allocator's counters in a trace, at the beginning and end of the profile."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sawtooth.ingest.capture.devices import ALLOCATOR_KEY, SETTINGS, AllocatorNotes
from sawtooth.ingest.capture.profiler import StepProfiler


class CountingAllocator:
    """A GPU whose allocator reports one more retry at each query."""

    def __init__(self) -> None:
        self.queries = 0

    def memory_stats(self) -> dict[str, int]:
        self.queries += 1
        return {"num_alloc_retries": self.queries, "reserved_bytes.all.peak": 9 << 30, "active.all.peak": 7}


def gpu(*, used: bool = True) -> Any:
    allocator = CountingAllocator()
    return SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: used, current_device=lambda: 1, memory_stats=allocator.memory_stats)
    )


def test_allocator_notes_are_written_at_the_end_of_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata: dict[str, str] = {}
    profiler = SimpleNamespace(add_metadata_json=metadata.__setitem__)
    monkeypatch.setenv(SETTINGS[1], "expandable_segments:True")
    AllocatorNotes(gpu()).write(profiler)
    assert json.loads(metadata[ALLOCATOR_KEY]) == {
        "device": 1,
        "settings": "expandable_segments:True",
        "began": {"num_alloc_retries": 1, "reserved_bytes.all.peak": 9 << 30},
        "ended": {"num_alloc_retries": 2, "reserved_bytes.all.peak": 9 << 30},
    }


@pytest.mark.parametrize("torch_module", [gpu(used=False), object(), None])
def test_a_process_without_a_gpu_writes_no_allocator_notes(torch_module: Any) -> None:
    metadata: dict[str, str] = {}
    AllocatorNotes(torch_module).write(SimpleNamespace(add_metadata_json=metadata.__setitem__))
    AllocatorNotes(gpu()).write(object())
    assert metadata == {}


@pytest.mark.parametrize("steps", [3, 2])
def test_the_trace_contains_allocator_notes_for_every_end_of_a_profile(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = CountingAllocator()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_stats", allocator.memory_stats)
    profiler = StepProfiler(torch, tmp_path / "trace.json", warmup=1, active=2)
    for _ in range(steps):
        torch.ones(4).cos()
        profiler.step()
    profiler.stop()
    notes = json.loads((tmp_path / "trace.json").read_text())[ALLOCATOR_KEY]
    assert (notes["began"]["num_alloc_retries"], notes["ended"]["num_alloc_retries"]) == (1, 2)
    assert allocator.queries == 2, "a query takes time, so there is none during the profiled steps"

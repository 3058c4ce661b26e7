"""Tests of recording a loop with PyTorch's own profiler.

They check what a profile contains, and that an abandoned profile is never written.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sawtooth.ingest.capture.command.parts import NO_MEMORY, keep_snapshots
from sawtooth.ingest.capture.in_process.memory_history import MemoryHistory
from sawtooth.ingest.capture.profiler import StepProfiler


def names_in(trace: Path) -> set[str]:
    return {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}


def test_a_profile_without_limit_records_until_it_is_stopped(tmp_path: Path) -> None:
    profiler = StepProfiler(torch, tmp_path / "trace.part")
    torch.ones(4) + torch.ones(4)
    profiler.stop()
    names = names_in(tmp_path / "trace.part")
    assert "aten::add" in names
    assert not any(name.startswith("ProfilerStep") for name in names), "the profiler does not know where a step ends"


def test_the_profile_starts_after_the_warm_up_steps(tmp_path: Path) -> None:
    profiler = StepProfiler(torch, tmp_path / "trace.json", warmup=1, active=2)
    for operation in (
        torch.cos,
        torch.sin,
        torch.exp,
        torch.tan,
    ):  # The first operation is in the warm-up, and the last one is after the profile.
        operation(torch.ones(4))
        profiler.step()
    profiler.stop()
    names = names_in(tmp_path / "trace.json")
    assert {"aten::sin", "aten::exp"} <= names
    assert not {"aten::cos", "aten::tan"} & names


def test_a_cancelled_profile_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda self, path: written.append(path))
    for schedule in ({}, {"warmup": 1, "active": 5}):
        profiler = StepProfiler(torch, tmp_path / "trace.json", **schedule)
        torch.ones(4) + torch.ones(4)
        profiler.abandon()
    assert written == []
    StepProfiler(torch, tmp_path / "trace.json").stop()
    assert written == [str(tmp_path / "trace.json")], "a profile that is not cancelled is written"


def _torch_with_gpu(*, begun: bool = False, fails: bool = False) -> tuple[Any, list[Any]]:
    """Return a fake PyTorch that writes memory snapshots, and a list of its history's states."""
    states: list[Any] = [begun]

    def dump(path: str) -> None:
        Path(path).write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
        if fails:
            raise OSError("the disk is full")

    memory = SimpleNamespace(
        _record_memory_history=lambda enabled="all", **_: states.append(enabled is not None), _dump_snapshot=dump
    )
    cuda = SimpleNamespace(is_initialized=lambda: True, memory=memory)
    return SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_cuda_isHistoryEnabled=lambda: states[-1])), states


def test_a_memory_snapshot_is_stored_next_to_the_recording(tmp_path: Path) -> None:
    for rank in (0, 1):
        history, (with_gpu, states) = MemoryHistory(), _torch_with_gpu()
        history.begin(with_gpu)
        history.end(tmp_path / f"memory-rank{rank}.pickle")
        history.end(tmp_path / "again.pickle")
        assert states == [False, True, False]
    messages = keep_snapshots(tmp_path, tmp_path / "run.sawtooth")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["run-memory-rank0.pickle", "run-memory-rank1.pickle"]
    assert f"`sawtooth memory {tmp_path / 'run-memory-rank1.pickle'}`" in messages[1]


def test_the_snapshot_of_a_training_that_ends_in_its_profile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training may end with a failed allocation, which the snapshot explains."""
    ends: list[tuple[str, Path | None]] = []
    monkeypatch.setattr(MemoryHistory, "end", lambda self, path=None: ends.append(("memory", path)))
    monkeypatch.setattr(torch.profiler.profile, "stop", lambda self: ends.append(("profile", None)))
    profiler = StepProfiler(torch, tmp_path / "trace.json", memory=tmp_path / "memory-1.pickle")
    started = profiler._profiler
    profiler.abandon()
    monkeypatch.undo()
    started.stop()
    assert ends[:2] == [("memory", tmp_path / "memory-1.pickle"), ("profile", None)]


def test_no_incomplete_snapshot_is_kept_and_the_history_continues(tmp_path: Path) -> None:
    history, (full_disk, states) = MemoryHistory(), _torch_with_gpu(fails=True)
    history.begin(full_disk)
    history.end(tmp_path / "memory-1.pickle")
    assert states[-1] is False and list(tmp_path.iterdir()) == []
    with_own, states = _torch_with_gpu(begun=True)
    history.begin(with_own)
    history.end(tmp_path / "memory-1.pickle")
    assert states == [True]
    profiler = StepProfiler(torch, tmp_path / "trace.json", memory=tmp_path / "memory-1.pickle")  # This PyTorch uses no GPU.
    profiler.stop()
    assert keep_snapshots(tmp_path, tmp_path / "run.sawtooth") == [NO_MEMORY]

"""torch.profiler over somebody else's loop, with PyTorch itself: what a profile holds, and that one given up is never written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sawtooth.ingest.capture.profiler import StepProfiler


def names_in(trace: Path) -> set[str]:
    return {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}


def test_all_until_it_is_stopped(tmp_path: Path) -> None:
    profiler = StepProfiler(torch, tmp_path / "trace.part")
    torch.ones(4) + torch.ones(4)
    profiler.stop()
    names = names_in(tmp_path / "trace.part")
    assert "aten::add" in names
    assert not any(name.startswith("ProfilerStep") for name in names), "nobody has told where a step ends"


def test_the_steps_after_those_that_warm_up(tmp_path: Path) -> None:
    profiler = StepProfiler(torch, tmp_path / "trace.json", warmup=1, active=2)
    for operation in (torch.cos, torch.sin, torch.exp, torch.tan):  # the first warms up, the last comes after the profile
        operation(torch.ones(4))
        profiler.step()
    profiler.stop()
    names = names_in(tmp_path / "trace.json")
    assert {"aten::sin", "aten::exp"} <= names
    assert not {"aten::cos", "aten::tan"} & names


def test_a_profile_that_is_given_up_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda self, path: written.append(path))
    for schedule in ({}, {"warmup": 1, "active": 5}):
        profiler = StepProfiler(torch, tmp_path / "trace.json", **schedule)
        torch.ones(4) + torch.ones(4)
        profiler.abandon()
    assert written == []
    StepProfiler(torch, tmp_path / "trace.json").stop()
    assert written == [str(tmp_path / "trace.json")], "and one that is not is"

"""Tests of replaying recorded sessions and files of JSON lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sawtooth.ingest.sampler import __main__ as command
from tests.support.fake_nvml import FakeClock, FakeNvml
from tests.support.sampler_bench import Direct, recorded
from tests.support.sessions import read_session


def plain_recording(path: Path) -> Path:
    time = FakeClock()
    arguments = ["--format", "jsonl", "--out", str(path), "--seconds", "3", "--gpus", "0"]
    assert command.main(arguments, nvml=FakeNvml(time), clock=time.clock(), caller=Direct()) == 0
    return path


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_replay_of_lines_writes_a_session(tmp_path: Path, speed: float) -> None:
    source = plain_recording(tmp_path / "nvml.jsonl")
    time = FakeClock()
    before = time.m
    out = tmp_path / "live"
    assert command.main(["--replay", str(source), "--out", str(out), "--speed", str(speed)], clock=time.clock()) == 0
    assert (time.m - before) / 1e9 == pytest.approx(2.9 / speed, abs=0.02)
    (folder,) = out.iterdir()
    columns = read_session(folder).columns()
    assert len(columns["time_ns"]) == 30
    assert set(np.diff(columns["time_ns"])) == {100_000_000}  # The speed does not change the recorded spacing.
    assert columns["time_ns"][-1] <= time.m + time.offset
    assert columns["util_pct"][5] == 71 and columns["pcie_rx_bps"][5] == 21 * 1048576


def test_replay_with_copies_and_loops(tmp_path: Path) -> None:
    source = recorded(tmp_path / "a", 2)
    time = FakeClock()
    out = tmp_path / "live"
    arguments = ["--replay", str(source), "--out", str(out), "--copies", "4", "--loop", "--seconds", "10"]
    assert command.main(arguments, clock=time.clock()) == 0
    (folder,) = out.iterdir()
    table = read_session(folder)
    assert len(table.devices) == 8 and len({d["uuid"] for d in table.devices.values()}) == 8
    columns = table.columns()
    assert (columns["device"] == 7).sum() == 100
    assert set(np.diff(columns["time_ns"][columns["device"] == 7])) == {100_000_000}


def test_replay_rejects_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert command.main(["--replay", str(tmp_path / "x.csv"), "--out", str(tmp_path)]) == 2
    assert "has no samples" in capsys.readouterr().err

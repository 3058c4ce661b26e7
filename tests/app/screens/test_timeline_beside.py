"""Tests of a second run below the first on the timeline, aligned at the start of a step.

Each lane names its run, and the address contains the second run.
"""

import json
from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.pages import opened, opened_at, run_of, words_of
from tests.support.sent_steps import written_out


def tracks(run: str, **query: str) -> list[dict]:
    """Return the tracks that the page passes to the timeline's component."""
    test = opened("timeline", run, **query)
    words_of(test)
    (proto,) = (element.proto for element in test.main if "tracks" in str(element.proto))
    return list(json.loads(proto.json)["tracks"])


@pytest.fixture
def two(app_data: DataFolder, tmp_path: Path) -> tuple[str, str]:
    """Return two runs with steps of 1 ms and 0.7 ms."""
    before, after = matmul_loop(steps=5, step_us=1000.0), matmul_loop(steps=4, step_us=700.0)
    return run_of(app_data, before.write(tmp_path / "before.json")), run_of(app_data, after.write(tmp_path / "after.json"))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("step", [1, 2])
def test_both_runs_are_aligned_at_the_start_of_a_step(two: tuple[str, str], step: int) -> None:
    run, other = two
    a, b = tracks(run, beside=other, aligned=str(step))
    alone, there = tracks(run)[0], tracks(other)[0]
    assert a["api"].split("/")[-2] == run
    assert b["api"].split("/")[-2] == other
    assert (a["offset"], b["recording"]) == (0, there["recording"])
    assert a["recording"] == alone["recording"]
    begins = [_counted(item)[step - 1] for item in (_steps(run), b["steps"])]
    assert begins[1] + b["offset"] == begins[0]
    assert all(lane["label"].startswith("A · ") for lane in a["lanes"])
    assert all(lane["label"].startswith("B · ") for lane in b["lanes"])
    assert {lane["source"] for lane in b["lanes"]} >= {"gaps", "gpu", "operators"}


def _steps(run: str) -> dict:
    test = opened("timeline", run)
    (proto,) = (element.proto for element in test.main if "tracks" in str(element.proto))
    return dict(json.loads(proto.json)["steps"])


def _counted(sent: dict) -> list[int]:
    return [start for start, _, _, counted in written_out(sent) if counted]


def test_a_missing_or_identical_second_run_is_ignored(two: tuple[str, str]) -> None:
    run, _ = two
    assert len(tracks(run, beside="0123456789abcdef")) == 1
    assert len(tracks(run, beside=run)) == 1


def test_a_step_missing_in_the_other_run_becomes_the_first(two: tuple[str, str]) -> None:
    run, other = two
    assert tracks(run, beside=other, aligned="99")[1]["offset"] == tracks(run, beside=other)[1]["offset"]


@pytest.mark.slow
def test_a_run_without_gpu_work_is_not_offered_as_second_run(app_data: DataFolder, tmp_path: Path) -> None:
    host = ChromeTrace()
    host.op("aten::add", 0.0, 100.0)
    run, other = run_of(app_data, matmul_loop().write(tmp_path / "a.json")), run_of(app_data, host.write(tmp_path / "b.json"))
    assert "no GPU work to show below" in words_of(opened_at("timeline", run=run, beside=other))
    assert len(tracks(run, beside=other)) == 1

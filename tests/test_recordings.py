"""Tests of the committed recordings: complete, small, with a truth file and anonymous."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.paths import ROOT

BUNDLED_LIMIT_BYTES = 2_000_000  # The wheel contains these recordings.
# Most fixtures have 300 kB, fixtures of two ranks 700 kB. The largest one contains a compilation.
FIXTURE_LIMIT_BYTES = 850_000
TOTAL_LIMIT_BYTES = 34_000_000  # With more, a clone would be slow.
TRUTH_KEYS = {
    "name",
    "planted",
    "fixed_by",
    "cfg",
    "step_s_pipelined",
    "step_s_synced",
    "step_s_synced_median",
    "flops_per_step",
}
TRUTH_KEYS |= {"achieved_tflops", "mfu_vs_989", "nvml_mean", "peak_mem", "torch", "gpu", "window_ns", "profiled_window_ns"}
BUNDLED = {"resnet_starved", "resnet_fixed", "gpt"}
LAST_KEY = re.compile(rb'"traceName": "[^"]*"\s*\}\s*\Z')  # PyTorch's writer ends a trace with this key.
MACHINE = re.compile(rb'"(host|host_name|username|uuid)"|/(home|root|work|opt|Users)/|/tmp/')


class Event(msgspec.Struct, gc=False):
    cat: str | None = None


class Trace(msgspec.Struct, rename={"events": "traceEvents"}):
    """The checked keys of a trace, so that decoding makes no dictionaries of other keys."""

    events: list[Event]


def folders() -> list[Path]:
    roots = (ROOT / "sample_traces", ROOT / "tests" / "recordings", ROOT / "tests" / "recordings_after")
    return sorted(path.parent for root in roots for path in root.glob("*/truth.json"))


@pytest.fixture(params=folders(), ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def truth_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "truth.json").read_text()))


def test_three_recordings_are_bundled() -> None:
    assert {path.name for path in folders() if path.parent.name == "sample_traces"} == BUNDLED


def test_truth_files_have_stopwatch_and_counters(folder: Path) -> None:
    truth = truth_of(folder)
    assert truth.keys() >= TRUTH_KEYS
    assert truth["name"] == folder.name
    assert 0 < truth["step_s_pipelined"] < 10
    assert len(truth["step_s_synced"]) >= 4
    if truth["flops_per_step"] is not None:
        rate = truth["flops_per_step"] / truth["step_s_pipelined"] / 1e12
        assert truth["achieved_tflops"] == pytest.approx(rate, rel=1e-9)


def test_size_stays_within_its_limit(folder: Path) -> None:
    limit = BUNDLED_LIMIT_BYTES if folder.parent.name == "sample_traces" else FIXTURE_LIMIT_BYTES
    assert sum(path.stat().st_size for path in folder.iterdir()) <= limit


def test_total_size_of_the_recordings_is_limited() -> None:
    assert sum(path.stat().st_size for folder in folders() for path in folder.iterdir()) <= TOTAL_LIMIT_BYTES


@pytest.mark.sweep(20)
def test_traces_are_complete_and_anonymous(folder: Path) -> None:
    for path in folder.glob("*trace.json.gz"):
        raw = gzip.decompress(path.read_bytes())
        assert not MACHINE.search(raw)
        assert any(event.cat == "kernel" for event in msgspec.json.decode(raw, type=Trace).events)
        assert LAST_KEY.search(raw), "nothing was cut off"


def test_telemetry_runs_before_through_and_after_the_profiled_steps(folder: Path) -> None:
    truth = truth_of(folder)
    for path in folder.glob("nvml*.jsonl*"):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert not MACHINE.search(raw)
        lines = [json.loads(line) for line in raw.splitlines()]
        assert lines[0]["meta"] is True
        assert lines[0]["name"] == truth["gpu"]
        times = [line["t_ns"] for line in lines[1:] if "gpu_util" in line]
        begin, end = truth["profiled_window_ns"]
        assert times == sorted(times)
        assert times[0] < begin < end < times[-1]


def test_marks_count_the_steps_in_order_through_the_profile(folder: Path) -> None:
    truth = truth_of(folder)
    for path in folder.glob("marks.jsonl.gz"):
        marks = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        assert [mark["step"] for mark in marks] == list(range(len(marks)))
        times = [mark["t_ns"] for mark in marks]
        assert times == sorted(times)
        timed = [t for t in times if truth["window_ns"][0] <= t <= truth["window_ns"][1]]
        assert len(timed) == truth["steps_timed"]
        begin, end = truth["profiled_window_ns"]
        assert {mark["phase"] for mark in marks if begin <= mark["t_ns"] <= end} == {"profile"}


def test_every_fix_has_a_recording(folder: Path) -> None:
    names = {path.name for path in folders()}
    for fix in truth_of(folder)["fixed_by"]:
        assert fix["change"]
        assert fix["recording"] in names


def test_the_readme_lists_every_recording() -> None:
    readme = (ROOT / "sample_traces" / "README.md").read_text()
    assert [path.name for path in folders() if f"\n| {path.name} | " not in readme] == []


def test_scenario_names_are_unique_across_sets() -> None:
    pytest.importorskip("torch")
    from sawtooth.sample_traces import record

    assert len(record.SCENARIOS) == sum(len(scenarios) for scenarios in record.SETS.values())
    assert all(not plan.fixed_by or plan.fixed_by in record.SCENARIOS for plan in record.SCENARIOS.values())

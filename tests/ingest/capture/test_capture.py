"""Tests of the capture helper around real loops on the CPU.

The sampler is a fake, and the clock advances by 20 ms per step.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from sawtooth.ingest.capture import sampler_process
from sawtooth.ingest.capture.recorder import profile
from sawtooth.ingest.runs.bundle import import_bundle
from sawtooth.ingest.runs.bundle_file import open_bundle
from sawtooth.ingest.schema import DataFolder
from tests.support.captured_loops import FakeSampler, SteppingClock, train
from tests.support.paths import ROOT


def test_one_file_has_trace_telemetry_and_stopwatch(tmp_path: Path, stepping_clock: SteppingClock) -> None:
    model = torch.nn.Linear(10, 10)
    target = tmp_path / "baseline"
    with profile(
        target, samples=64, tokens=1024, parameters=model, settings={"batch": 64}, notes="hello", seconds=1.0
    ) as capture:
        used = train(capture, stepping_clock, 500)
    # 10 steps are skipped, 50 are timed (1 s), 3 + 5 are profiled, and 10 follow, a fifth of the timed steps.
    assert used == 10 + 50 + 8 + 10
    assert capture.path == tmp_path / "baseline.sawtooth" and capture.why_not == []
    assert capture.step_time_ms == pytest.approx(20.0) and capture.step_time_after_ms == pytest.approx(20.0)
    with open_bundle(capture.path) as bundle:
        (run,) = bundle.manifest.runs
    assert (
        run.name == "baseline"
        and run.settings["batch"] == "64"
        and run.notes.startswith("hello\nStep time measured over 50 steps")
    )
    assert run.facts.step_time_ms == pytest.approx(20.0)
    assert (run.facts.samples_per_step, run.facts.tokens_per_step, run.facts.parameters) == (64, 1024, 110)
    assert [r.kind for r in run.recordings] == ["trace", "telemetry", "marks"]
    (made,) = import_bundle(capture.path, DataFolder(tmp_path / "data"))
    assert [r.kind for r in made.recordings] == ["trace", "telemetry", "marks"] and made.facts == run.facts


def test_the_loop_continues_after_the_file_is_written(tmp_path: Path, stepping_clock: SteppingClock) -> None:
    with profile(tmp_path / "x.sawtooth", seconds=0.1, skip=1) as capture:
        train(capture, stepping_clock, 500)
        assert capture.done and (tmp_path / "x.sawtooth").exists()
        before = (tmp_path / "x.sawtooth").read_bytes()
        for _ in range(100):
            capture.step()
    assert (tmp_path / "x.sawtooth").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.sawtooth"]


@pytest.mark.parametrize(("chosen", "then"), [(None, "1"), ("0", "0")])
def test_cupti_is_detached_after_the_profile_by_default(
    tmp_path: Path, stepping_clock: SteppingClock, monkeypatch: pytest.MonkeyPatch, chosen: str | None, then: str
) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", chosen or "")  # The fixture restores the variable after the test.
    if chosen is None:
        monkeypatch.delenv("TEARDOWN_CUPTI")
    with profile(tmp_path / "x.sawtooth", seconds=0.1, skip=1) as capture:
        train(capture, stepping_clock, 200)
    assert os.environ["TEARDOWN_CUPTI"] == then


def test_without_a_gpu_missing_telemetry_is_noted(
    tmp_path: Path, stepping_clock: SteppingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = b"sampling into x\nsawtooth sample: This machine has no working NVIDIA driver.\n"
    monkeypatch.setattr(sampler_process, "start_sampler", lambda out: FakeSampler(out, says=says))
    with profile(tmp_path / "x", seconds=0.1) as capture:
        train(capture, stepping_clock, 200)
    assert capture.why_not == ["no telemetry: This machine has no working NVIDIA driver."]
    assert capture.path is not None
    with open_bundle(capture.path) as bundle:
        assert "no telemetry" in bundle.manifest.runs[0].notes


def test_the_real_sampler_is_started_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = sampler_process.start_sampler(tmp_path / "live")
    answer = sampler_process.stop_sampler(process)
    assert process.returncode is not None
    assert answer is None or "sampl" in answer or "driver" in answer  # The message on a machine without a GPU.


@pytest.mark.parametrize("steps", [4, 12, 30, 60, 200])
def test_a_short_loop_of_known_length_is_captured(tmp_path: Path, stepping_clock: SteppingClock, steps: int) -> None:
    """The capture wants 10 s of undisturbed steps, but these loops take at most 4 s."""
    with profile(tmp_path / "x", steps=steps) as capture:
        train(capture, stepping_clock, steps)
    assert capture.path is not None and capture.why_not == []
    with open_bundle(capture.path) as bundle:
        assert [r.kind for r in bundle.manifest.runs[0].recordings] == ["trace", "telemetry", "marks"]
    if steps >= 12:
        assert capture.step_time_ms == pytest.approx(20.0)
    else:
        assert capture.step_time_ms is None  # A stopwatch over one or two steps is not reliable.


def test_start_profile_and_end_are_announced(
    tmp_path: Path, stepping_clock: SteppingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path / "x", seconds=1.0) as capture:
        train(capture, stepping_clock, 200)
    start, profiling, end = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sawtooth: ")]
    assert start.endswith("x.sawtooth: after 10 steps the loop is timed for 1 s, then 5 steps are profiled")
    assert profiling == "sawtooth: 50 steps took 20 ms each; profiling 5 steps now"
    assert end == f"sawtooth: wrote {tmp_path / 'x.sawtooth'}"


def test_ranks_write_their_own_files_and_one_per_host_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(key, value)
    capture = profile(tmp_path / "run.sawtooth")
    assert capture.target.name == "run-rank3.sawtooth" and capture._with_sampler is False
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert profile(tmp_path / "run")._with_sampler is True


def test_the_helper_needs_only_the_standard_library_and_torch() -> None:
    program = (
        "import sys, sawtooth.ingest.capture.recorder; "
        "print([m for m in ('duckdb', 'numpy', 'pyarrow', 'msgspec', 'isal', 'torch', 'pynvml', 'streamlit') if m in sys.modules])"
    )
    root = str(ROOT)
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_evaluations_between_steps_are_separated_like_in_sawtooth_run(tmp_path: Path, stepping_clock: SteppingClock) -> None:
    """The stopwatch's time includes the evaluation, so the step time comes from the marks."""
    plain = torch.nn.Module.eval
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    with profile(tmp_path / "run", seconds=1.0) as capture:
        train(capture, stepping_clock, 30)
        model.eval()
        stepping_clock.ns += 5_000_000_000
        model.train()
        train(capture, stepping_clock, 300)
    assert capture.done and torch.nn.Module.eval is plain
    with open_bundle(tmp_path / "run.sawtooth") as bundle:
        (run,) = bundle.manifest.runs
    with zipfile.ZipFile(tmp_path / "run.sawtooth") as archive:
        (run_json,) = json.loads(archive.read("manifest.json"))["runs"]
        member = next(about["member"] for about in run_json["recordings"] if about["kind"] == "marks")
        phases = [json.loads(line)["p"] for line in gzip.decompress(archive.read(member)).splitlines()[1:]]
    assert phases.count("eval") == 1 and phases[30] == "eval"
    assert run.facts.step_time_ms is None and "measured" not in run.notes

"""Tests of the capture helper around real loops on the CPU.

Its clock gives each step 20 ms, and its sampler is scripted.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from sawtooth.app.jobs.ingest_files import bring_in, files_of
from sawtooth.ingest import children
from sawtooth.ingest.capture import loop_capture, sampler_process
from sawtooth.ingest.capture.callbacks import hugging_face_callback, lightning_callback
from sawtooth.ingest.capture.loop_capture import Capture
from sawtooth.ingest.capture.recorder import profile
from sawtooth.ingest.runs.bundle import import_bundle
from sawtooth.ingest.runs.bundle_file import open_bundle
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppingClock:
    made = SteppingClock()
    monkeypatch.setattr(loop_capture.time, "perf_counter_ns", made)
    monkeypatch.setitem(Capture.__init__.__kwdefaults__, "clock_ns", made)  # type: ignore[arg-type]
    monkeypatch.setattr(sampler_process, "start_sampler", FakeSampler)
    return made


def test_one_file_has_trace_telemetry_and_stopwatch(tmp_path: Path, clock: SteppingClock) -> None:
    model = torch.nn.Linear(10, 10)
    target = tmp_path / "baseline"
    with profile(
        target, samples=64, tokens=1024, parameters=model, settings={"batch": 64}, notes="hello", seconds=1.0
    ) as capture:
        used = train(capture, clock, 500)
    # 10 skipped, 50 in the timed second, 3 + 5 profiled, a fifth of 50 after.
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


def test_the_loop_continues_after_the_file_is_written(tmp_path: Path, clock: SteppingClock) -> None:
    with profile(tmp_path / "x.sawtooth", seconds=0.1, skip=1) as capture:
        train(capture, clock, 500)
        assert capture.done and (tmp_path / "x.sawtooth").exists()
        before = (tmp_path / "x.sawtooth").read_bytes()
        for _ in range(100):
            capture.step()
    assert (tmp_path / "x.sawtooth").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.sawtooth"]


@pytest.mark.parametrize(("chosen", "then"), [(None, "1"), ("0", "0")])
def test_cupti_is_detached_after_the_profile_by_default(
    tmp_path: Path, clock: SteppingClock, monkeypatch: pytest.MonkeyPatch, chosen: str | None, then: str
) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", chosen or "")  # restored afterwards, whatever the profiler sets
    if chosen is None:
        monkeypatch.delenv("TEARDOWN_CUPTI")
    with profile(tmp_path / "x.sawtooth", seconds=0.1, skip=1) as capture:
        train(capture, clock, 200)
    assert os.environ["TEARDOWN_CUPTI"] == then


def test_a_loop_that_ends_early_keeps_its_recorded_data(tmp_path: Path, clock: SteppingClock) -> None:
    with profile(tmp_path / "x", seconds=0.4, skip=2, warmup=2, active=5) as capture:
        train(capture, clock, 2 + 20 + 2 + 3)
    assert capture.path is not None and any("only 3 of 5 steps" in why for why in capture.why_not)
    with profile(tmp_path / "y", seconds=100) as capture:
        train(capture, clock, 30)
    assert capture.path is not None and any("no trace" in why for why in capture.why_not)
    with open_bundle(capture.path) as bundle:
        assert [r.kind for r in bundle.manifest.runs[0].recordings] == ["telemetry", "marks"]
        assert bundle.manifest.runs[0].facts.step_time_ms == pytest.approx(20)


def test_without_a_gpu_missing_telemetry_is_noted(
    tmp_path: Path, clock: SteppingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = b"sampling into x\nsawtooth sample: This machine has no working NVIDIA driver.\n"
    monkeypatch.setattr(sampler_process, "start_sampler", lambda out: FakeSampler(out, says=says))
    with profile(tmp_path / "x", seconds=0.1) as capture:
        train(capture, clock, 200)
    assert capture.why_not == ["no telemetry: This machine has no working NVIDIA driver."]
    assert capture.path is not None
    with open_bundle(capture.path) as bundle:
        assert "no telemetry" in bundle.manifest.runs[0].notes


def test_the_real_sampler_is_started_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = sampler_process.start_sampler(tmp_path / "live")
    said = sampler_process.stop_sampler(process)
    assert process.returncode is not None
    assert said is None or "sampl" in said or "driver" in said  # on a machine without a GPU it says so


def test_too_few_steps_say_how_many_are_needed(
    tmp_path: Path, clock: SteppingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path / "x", sampler=False) as capture:
        train(capture, clock, 5)
    assert capture.path is None and list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err
    assert "after 5 steps, but 38 are needed" in said  # 10 skipped + 20 timed + 3 + 5 profiled
    assert "profile(steps=…)" in said


def test_a_loop_that_ends_while_timed_is_not_called_too_short(
    tmp_path: Path, clock: SteppingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path / "x", sampler=False) as capture:
        train(capture, clock, 60)
    said = capsys.readouterr().err
    assert capture.path is not None or ("ended after 60 steps, while it was timed" in said and "are needed" not in said)


@pytest.mark.parametrize("steps", [4, 12, 30, 60, 200])
def test_a_short_loop_of_known_length_is_captured(tmp_path: Path, clock: SteppingClock, steps: int) -> None:
    """10 s of undisturbed steps are wanted, and the longest of these loops takes 4 s."""
    with profile(tmp_path / "x", steps=steps) as capture:
        train(capture, clock, steps)
    assert capture.path is not None and capture.why_not == []
    with open_bundle(capture.path) as bundle:
        assert [r.kind for r in bundle.manifest.runs[0].recordings] == ["trace", "telemetry", "marks"]
    if steps >= 12:
        assert capture.step_time_ms == pytest.approx(20.0)
    else:
        assert capture.step_time_ms is None  # a stopwatch over a step or two says nothing


def test_start_profile_and_end_are_announced(tmp_path: Path, clock: SteppingClock, capsys: pytest.CaptureFixture[str]) -> None:
    with profile(tmp_path / "x", seconds=1.0) as capture:
        train(capture, clock, 200)
    start, profiling, end = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sawtooth: ")]
    assert start.endswith("x.sawtooth: after 10 steps the loop is timed for 1 s, then 5 steps are profiled")
    assert profiling == "sawtooth: 50 steps took 20 ms each; profiling 5 steps now"
    assert end == f"sawtooth: wrote {tmp_path / 'x.sawtooth'}"


DIES = """
import os, signal, sys, time, torch
from pathlib import Path
from sawtooth.app.jobs.ingest_files import bring_in, files_of
from sawtooth.ingest import children
from sawtooth.ingest.capture import sampler_process
from sawtooth.capture import profile
from tests.support.sampler_bench import recorded
sampler_process.start_sampler = lambda out: recorded(out)
with profile(sys.argv[1]) as capture:
    for _ in range(5):
        torch.ones(2).sum()
        capture.step()
    capture._marks.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_recorded_data_of_a_killed_job_can_be_read(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path / "run")]
    died = subprocess.run(command, env=children.environment(), cwd=ROOT, capture_output=True, timeout=120)
    assert died.returncode == -9, died.stderr
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("run-recording-")
    files, is_folder = files_of(left)
    (run,) = bring_in(DataFolder(tmp_path / "data").create(), files, tolerant=is_folder).runs
    assert {ref.kind for ref in run.recordings} == {"telemetry", "marks"}


def test_an_error_of_the_loop_is_raised_unchanged(tmp_path: Path, clock: SteppingClock) -> None:
    with pytest.raises(ZeroDivisionError), profile(tmp_path / "x", sampler=False) as capture:
        train(capture, clock, 3)
        raise ZeroDivisionError
    assert capture.path is None


def test_a_failing_profiler_does_not_stop_the_training(tmp_path: Path, clock: SteppingClock) -> None:
    with profile(tmp_path / "x", sampler=False, seconds=0.1, no_such_option=True) as capture:
        assert train(capture, clock, 100) < 100
    assert "TypeError" in capture.why_not[-1]


def test_ranks_write_their_own_files_and_one_per_host_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key, value in {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(key, value)
    capture = profile(tmp_path / "run.sawtooth")
    assert capture.target.name == "run-rank3.sawtooth" and capture._with_sampler is False
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert profile(tmp_path / "run")._with_sampler is True


@pytest.mark.parametrize(("rank", "size"), [("a", "8"), ("-1", "8"), ("", ""), ("3", "many"), ("0.5", "0")])
def test_an_invalid_rank_is_ignored(
    rank: str, size: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: SteppingClock
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with profile(tmp_path / "x", sampler=False, seconds=0.1) as capture:
        train(capture, clock, 200)
    assert capture.path == tmp_path / "x.sawtooth", capture.why_not


def test_a_capture_that_cannot_begin_does_not_affect_the_training(
    tmp_path: Path, clock: SteppingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sawtooth.ingest.capture.packing.tempfile.mkdtemp", full)
    with profile(tmp_path / "x", sampler=False) as capture:
        train(capture, clock, 30)
    assert capture.path is None and "No space left" in capture.why_not[0]


def test_lightning(tmp_path: Path, clock: SteppingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("lightning"), ModuleType("lightning.pytorch")
    module.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    callback = lightning_callback(tmp_path / "l", seconds=0.1)
    assert isinstance(callback, module.Callback)
    callback.on_train_start(SimpleNamespace(num_training_batches=50, max_epochs=2), torch.nn.Linear(2, 2))
    assert callback.capture._plan.latest == 100 - 3 - 5 - 5
    for index in range(100):
        clock.ns += 20_000_000
        callback.on_train_batch_end(None, None, None, None, index)
    callback.on_train_end(None, None)
    assert (tmp_path / "l.sawtooth").exists()
    with open_bundle(tmp_path / "l.sawtooth") as bundle:
        assert bundle.manifest.runs[0].facts.parameters == 6


def test_hugging_face(tmp_path: Path, clock: SteppingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("transformers")
    module.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    callback = hugging_face_callback(tmp_path / "h", seconds=0.1)
    assert isinstance(callback, module.TrainerCallback)
    args: Any = SimpleNamespace(per_device_train_batch_size=8, gradient_accumulation_steps=4)
    callback.on_train_begin(args, SimpleNamespace(max_steps=100), None, model=torch.nn.Linear(2, 2))
    assert callback.capture._plan.latest == 100 - 3 - 5 - 5
    for _ in range(100):
        clock.ns += 20_000_000
        callback.on_step_end(args, None, None)
    callback.on_train_end(args, None, None)
    with open_bundle(tmp_path / "h.sawtooth") as bundle:
        assert bundle.manifest.runs[0].facts.samples_per_step == 32


def test_without_the_frameworks_the_callbacks_are_plain_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert hasattr(lightning_callback("x"), "on_train_batch_end") and hasattr(hugging_face_callback("x"), "on_step_end")


def test_the_helper_needs_only_the_standard_library_and_torch() -> None:
    import subprocess

    program = (
        "import sys, sawtooth.ingest.capture.recorder; "
        "print([m for m in ('duckdb', 'numpy', 'pyarrow', 'msgspec', 'isal', 'torch', 'pynvml', 'streamlit') if m in sys.modules])"
    )
    root = str(ROOT)
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_evaluations_between_steps_are_separated_like_in_sawtooth_run(tmp_path: Path, clock: SteppingClock) -> None:
    """The timed steps contain a validation of 5 s.

    The stopwatch includes it, so it is not the run's step time; the marks give its position.
    """
    plain = torch.nn.Module.eval
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    with profile(tmp_path / "run", seconds=1.0) as capture:
        train(capture, clock, 30)
        model.eval()
        clock.ns += 5_000_000_000
        model.train()
        train(capture, clock, 300)
    assert capture.done and torch.nn.Module.eval is plain
    with open_bundle(tmp_path / "run.sawtooth") as bundle:
        (run,) = bundle.manifest.runs
    with zipfile.ZipFile(tmp_path / "run.sawtooth") as archive:
        (run_json,) = json.loads(archive.read("manifest.json"))["runs"]
        member = next(about["member"] for about in run_json["recordings"] if about["kind"] == "marks")
        phases = [json.loads(line)["p"] for line in gzip.decompress(archive.read(member)).splitlines()[1:]]
    assert phases.count("eval") == 1 and phases[30] == "eval"
    assert run.facts.step_time_ms is None and "measured" not in run.notes

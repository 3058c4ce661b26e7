"""Tests of `sawtooth attach`, which hooks, records and releases running trainings.

``sys.remote_exec`` needs Python 3.14. These tests use a signal instead, at which the main thread of the training executes a file.
"""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.capture.attach import attach as attaching
from sawtooth.ingest.capture.attach.attach import ENDED, RECORDED_ALREADY, AttachOptions, attach
from sawtooth.ingest.capture.attach.injection import Injection
from sawtooth.ingest.capture.attach.targets import AttachError, Process, read_process
from sawtooth.ingest.capture.command.settings import FOLDER
from tests.support.launches import WITHOUT_COMPILER
from tests.support.remote_execution import BySignal

EXIT_CODE = 3  # Exit code of each rank.
SIGNAL_HANDLER = """
import os, signal, sys
def execute(*_):
    with open(f"script-{os.getpid()}") as note, open(note.read()) as script:
        exec(compile(script.read(), "<string>", "exec"), {})
signal.signal(signal.SIGUSR1, execute)
"""
TRAINING = (
    SIGNAL_HANDLER
    + WITHOUT_COMPILER
    + """
import importlib, pathlib, time, torch
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import fetch, pin_memory
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
optimizer.register_step_post_hook(lambda *_: sum(range(100)))  # a hook of the training
hooks = importlib.import_module("torch.optim.optimizer")._global_optimizer_post_hooks
def patched():
    return [torch.nn.Module.eval, torch.save, os._exit, pin_memory.pin_memory, fetch._MapDatasetFetcher.fetch,
            torch.cuda.graphs.CUDAGraph.replay, torch.autograd._engine_run_backward, dataloader._BaseDataLoaderIter.__next__, list(hooks), "sawtooth" in sys.modules]
before = patched()
def ends_at(step):  # The ranks wait for each other, as in a job, and exchange whether the file exists.
    mine = b"1" if step % 10 == 0 and os.path.exists("stop") else b"0"
    os.write(to_other, mine)
    return b"1" in (mine, os.read(from_other, 1))
from_other, to_other = (os.open(f"meets-{of}", os.O_RDWR) for of in (rank, 1 - rank))
for step, batch in enumerate(DataLoader(torch.ones(10**6, 8), batch_size=4)):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    time.sleep(0.001)
    if step == 5:
        pathlib.Path(f"trains-{rank}").touch()
    if step % 10 == 0 and os.path.exists("look") and not os.path.exists(f"unchanged-{rank}"):
        pathlib.Path(f"unchanged-{rank}").write_text(str(patched() == before))
    if ends_at(step):
        break
sys.stdout.write(f"trained {rank}\\n")  # one write, because the ranks end at the same time
"""
    + f"sys.exit({EXIT_CODE})"
)
RANKS = "for RANK in 0 1; do (RANK=$RANK {python} train.py; echo ended $RANK $?) & done; wait"


def wait_for_files(*files: Path) -> None:
    limit = time.monotonic() + 170
    while not all(file.exists() for file in files):
        assert time.monotonic() < limit, files
        time.sleep(0.02)


def recorded(bundle: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(bundle) as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
        return run, {one["source_name"]: gzip.decompress(archive.read(one["member"])) for one in run["recordings"]}


def marks_in(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()][1:]


@pytest.fixture
def launcher(tmp_path: Path) -> "Iterator[subprocess.Popen[str]]":
    """Start a shell that has started two training ranks."""
    (tmp_path / "train.py").write_text(TRAINING)
    for rank in (0, 1):
        os.mkfifo(tmp_path / f"meets-{rank}")
    words = ("bash", "-c", RANKS.format(python=sys.executable))
    variables = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, cwd=tmp_path, env=variables, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        wait_for_files(tmp_path / "trains-0", tmp_path / "trains-1")
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_ranks_of_a_launcher_can_be_recorded_twice_and_may_end_meanwhile(
    launcher: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "MIN_PROFILED_S", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options, remote = AttachOptions(steps=2, after_s=0.05, sample=False), BySignal(tmp_path)
    first_recording = attach(launcher.pid, tmp_path / "first.sawtooth", options, remote=remote)
    assert first_recording.exit_code == 0 and len(first_recording.stays) == 2 and all(first_recording.stays.values())
    assert [sentence.partition(" ")[0] for sentence in first_recording.missing] == ["Process"] * 2
    (tmp_path / "look").touch()
    wait_for_files(*(tmp_path / f"unchanged-{rank}" for rank in (0, 1)))
    assert [(tmp_path / f"unchanged-{rank}").read_text() for rank in (0, 1)] == ["True", "True"]

    def stop_once_marked() -> None:
        until_marked = iter(lambda: len(list(tmp_path.glob("sawtooth-run-*/marks-rank*.jsonl"))) == 2, True)
        for _ in until_marked:
            time.sleep(0.02)
        (tmp_path / "stop").touch()

    stopping = threading.Thread(target=stop_once_marked)
    stopping.start()
    ended = attach(launcher.pid, tmp_path / "second.sawtooth", replace(options, steps=0, seconds=600), remote=remote)
    stopping.join()
    out, err = launcher.communicate(timeout=240)
    ended_with = [f"ended {rank} {EXIT_CODE}" for rank in (0, 1)]
    assert sorted(out.split("\n")) == ["", *ended_with, "trained 0", "trained 1"] and err == ""
    assert ENDED in ended.missing

    for bundle in (first_recording.bundle, ended.bundle):
        assert bundle is not None
        run, sources = recorded(bundle)
        assert run["name"] == "train" and run["command"][-1] == "train.py"
        assert run["notes"].startswith(f"Recorded by `sawtooth attach {launcher.pid}` for")
        assert {one["rank"] for one in run["recordings"]} == {0, 1}
        for rank in (0, 1):
            marks = marks_in(sources[f"marks-rank{rank}.jsonl"])
            assert [mark["i"] for mark in marks] == list(range(len(marks))) != []
            assert any(line.startswith("train.py:") for line in marks[0]["at"])
    run, sources = recorded(tmp_path / "first.sawtooth")
    assert run["facts"]["loader_batch"] == 4  # The iterator of the loader is older than the hook.
    assert all(b"Optimizer.step#Adam.step" in sources[f"rank{rank}.json.gz"] for rank in (0, 1))
    # Ranks that wait for each other profile the same steps. Other ranks may be many steps apart.
    profiled = [[m["i"] for m in marks_in(sources[f"marks-rank{rank}.jsonl"]) if m["p"] == "profile"] for rank in (0, 1)]
    assert profiled[0] == profiled[1] != []


def test_a_recording_waits_a_limited_time_for_the_profile_of_each_rank(tmp_path: Path) -> None:
    own_process = read_process(os.getpid())
    assert own_process is not None
    recording = attaching._Recording([own_process, own_process], tmp_path, AttachOptions(), BySignal(tmp_path))
    profiled = []
    for recording.seconds, trace in ((1.0, "0.part"), (2.0, "0.json"), (31.0, "1.part"), (32.0, "1.part"), (33.0, "1.json")):
        (tmp_path / f"trace-rank{trace}").touch()
        profiled.append(recording._are_profiled(2))
    assert profiled == [False, False, False, True, True]
    again = attaching._Recording([own_process, own_process], tmp_path, AttachOptions(), BySignal(tmp_path))
    assert again._are_profiled(2) and not again._are_profiled(3)


def test_a_silent_or_already_recorded_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SilentProcess(BySignal):
        def execute(self, target: Process, script: Path) -> str | None:
            self.script = script
            return None

    own_process = read_process(os.getpid())
    assert own_process is not None
    silent = SilentProcess(tmp_path)
    why_not = Injection([own_process], tmp_path, {}, silent, answer_s=0.05).attach()
    assert why_not is not None and "did not answer" in why_not
    assert silent.script.read_text() == ""  # A process that reads the script later does nothing.
    silent.script.unlink()
    recorded_already = replace(own_process, environment={FOLDER: "/there"})
    monkeypatch.setattr(attaching, "find_trainings", lambda pid: [recorded_already])
    with pytest.raises(AttachError) as refused:
        attach(own_process.pid, None, AttachOptions())
    assert str(refused.value) == RECORDED_ALREADY.format(pid=own_process.pid)

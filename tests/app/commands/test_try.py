"""Tests of `sawtooth try`: it applies changes and measures them in real trainings.

A trial that fails ends only itself, and existing files are not changed.
"""

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
import typer

from sawtooth.app.commands import try_ as command
from sawtooth.ingest import children
from sawtooth.ingest.capture.command import interpreter
from sawtooth.ingest.schema import DataFolder

# The loader sleeps, so that the base run's step time does not depend on how busy the machine is. A fused optimizer crashes this training, and a
# foreach optimizer lets it be killed as the kernel does without memory.
STARVED = """
import os, signal, time, torch
from torch.utils.data import DataLoader, Dataset

class Sentences(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.full((4 if i % 2 else 16,), 1.0)

def padded(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
if optimizer.defaults["fused"]:
    raise RuntimeError("planted crash")
if optimizer.defaults["foreach"]:
    os.kill(os.getpid(), signal.SIGKILL)
for batch in DataLoader(Sentences(), batch_size=4, collate_fn=padded):
    optimizer.zero_grad()
    model(batch.mean(1, keepdim=True)).square().mean().backward()
    optimizer.step()
"""
# An update of one tensor after the other waits, so that the gain of a fused one does not depend on how busy the machine is.
RANKS = """
import time, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(10)))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
while True:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    if not optimizer.defaults["fused"]:
        time.sleep(0.04)
    optimizer.step()
"""
SAVES = """
import os, time, torch
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(0.005)
            yield torch.ones(8)

model = torch.nn.Linear(8, 1)
model.load_state_dict(torch.load("last.pt"))
optimizer = torch.optim.Rprop(model.parameters())
for step, batch in enumerate(DataLoader(Stream(), batch_size=4)):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    if step % 10 == 9:
        torch.save(model.state_dict(), "last.pt")
        os.system("echo saved >> log.txt")  # a program whose writes Sawtooth does not see
"""


def words(folder: Path, *options: str) -> list[str]:
    return children.command("sawtooth.app.cli", "try", "--json", "--seconds", "2", "--data", str(folder / "data"), *options)


def started(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run `sawtooth try` in ``folder``; return its exit code, its JSON and its messages."""
    done = subprocess.run(
        words(folder, *options), cwd=folder, env=children.environment(), capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def by_change(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trial["change"]: trial for trial in result["trials"]}


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("starved")
    (folder / "train.py").write_text(STARVED)
    return started(folder, "--yes", "train.py")


def test_more_workers_are_kept_for_a_starved_loop(starved: tuple[int, dict[str, Any], str]) -> None:
    code, result, messages = starved
    assert code == 0, messages
    # Four samples of 10 ms make a batch; n workers deliver one each 40 ms / n.
    assert (
        result["base"]["low_ms"] <= result["base"]["step_ms"] <= result["base"]["high_ms"] and result["base"]["step_ms"] >= 40
    )
    trial = by_change(result)["loader-workers"]
    assert trial["status"] == "kept", messages
    assert trial["low_ms"] <= trial["measured_step_ms"] <= trial["high_ms"] < result["base"]["low_ms"]
    workers = trial["values"]["workers"]
    assert workers >= 2 and trial["proof"] == f"{workers} worker processes of the loader were alive."
    assert trial["code"] == [f"DataLoader(…, num_workers={workers})"] and trial["result"] == "same result"
    stored = Path(messages.strip().splitlines()[-1].removeprefix("sawtooth: The result is stored in ").removesuffix("."))
    assert json.loads(stored.read_text()) == result


def test_a_trial_that_crashes_or_is_killed_for_memory_ends_only_itself(
    starved: tuple[int, dict[str, Any], str],
) -> None:
    trials = by_change(starved[1])
    assert list(trials) == ["loader-workers", "fused-optimizer", "foreach-optimizer", "group-by-length"], starved[2]
    assert trials["fused-optimizer"]["status"] == "failed" and "planted crash" in trials["fused-optimizer"]["why"]
    assert trials["foreach-optimizer"]["status"] == "out_of_memory" and "SIGKILL" in trials["foreach-optimizer"]["why"]
    assert trials["fused-optimizer"]["measured_step_ms"] is None


def test_padding_is_left_to_the_user(starved: tuple[int, dict[str, Any], str]) -> None:
    trial = by_change(starved[1])["group-by-length"]
    # Of lengths 4, 16, 4 and 16 padded to 16, 24 of 64 values are padding.
    assert trial["status"] == "by_hand" and trial["why"].startswith("38 % of a batch is padding.")


@dataclass
class Stopped:
    code: int
    result: dict[str, Any]
    folder: Path
    messages: str


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """Run two ranks that are stopped by Ctrl-C in the run after the first trial."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "ranks.py").write_text(RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"]
    process = subprocess.Popen(
        words(folder, "--yes", *launcher),
        cwd=folder,
        env=children.environment() | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    messages = ""
    for line in process.stderr:
        messages += line
        if "3. base 2" in line:
            process.send_signal(signal.SIGINT)
            break
    output, rest = process.communicate()
    yield Stopped(process.returncode, json.loads(output), folder, messages + rest)


def test_each_rank_makes_the_change_and_ctrl_c_keeps_results(stopped: Stopped) -> None:
    assert stopped.code == 130, stopped.messages
    (trial,) = stopped.result["trials"]
    assert (trial["change"], trial["status"]) == ("fused-optimizer", "kept"), trial
    assert 0 < trial["low_ms"] <= trial["measured_step_ms"] <= trial["high_ms"]
    assert trial["measured_step_ms"] < stopped.result["base"]["step_ms"]
    assert trial["proof"] == "The optimizer called _fused_adam."
    (run,) = (run for run in DataFolder(stopped.folder / "data").manifests() if run.id == trial["run"])
    assert {recording.rank for recording in run.recordings if recording.kind == "marks"} == {0, 1}
    assert f"after={stopped.result['base']['runs'][0]}" in run.tags


def test_no_process_of_a_stopped_training_continues(stopped: Stopped) -> None:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            assert process.cwd() != os.fspath(stopped.folder), process.cmdline()


def test_a_checkpoint_is_not_overwritten_and_a_copy_allows_the_trials(tmp_path: Path) -> None:
    import torch

    torch.save(torch.nn.Linear(8, 1).state_dict(), tmp_path / "last.pt")
    (tmp_path / "log.txt").write_text("old")
    before = hashlib.sha256((tmp_path / "last.pt").read_bytes()).hexdigest()
    (tmp_path / "train.py").write_text(SAVES)
    code, result, messages = started(tmp_path, "--yes", "train.py")
    assert (code, result["trials"]) == (2, []) and command.WOULD_CHANGE.format(files=tmp_path / "last.pt") in messages
    code, result, messages = started(tmp_path, "--yes", "--copy", "train.py")
    assert hashlib.sha256((tmp_path / "last.pt").read_bytes()).hexdigest() == before
    assert (tmp_path / "log.txt").read_text() == "old"
    assert result["base"]["step_ms"] >= 20, messages  # Four samples of 5 ms.
    trial = by_change(result)["loader-workers"]
    assert trial["status"] == "by_hand" and trial["why"].startswith("The dataset is an IterableDataset")


def test_without_a_terminal_trials_need_the_option_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr(command, "_try", lambda *_: pytest.fail("a run was started"))
    context = typer.Context(click.Command("try"))
    context.args = ["train.py"]
    with pytest.raises(typer.Exit) as stopped:
        command.try_(context)
    assert stopped.value.exit_code == 2 and "Write --yes before the command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["no-such-command", "train.py"], "There is no command 'no-such-command'."),
        # Python would not load the hook, which protects the files.
        (
            [sys.executable, "-I", "train.py"],
            interpreter.IGNORES_RECORDER.format(options="I", python=Path(sys.executable).name),
        ),
    ],
)
def test_a_command_that_cannot_be_tried_is_not_started(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    context = typer.Context(click.Command("try"))
    context.args = ["--yes", "--data", str(tmp_path), *words]
    with pytest.raises(typer.Exit) as stopped:
        command.try_(context)
    out = capsys.readouterr()
    assert stopped.value.exit_code == 2 and out.err == f"sawtooth: {why}\n" and not out.out

"""Tests of the names and files of recorded runs."""

import sys
from pathlib import Path

import pytest

from sawtooth.ingest.capture import commands
from sawtooth.ingest.capture.command import launch, recorded_runs
from sawtooth.ingest.capture.command.recorded_runs import LEFT_OUT, left_out_message, runs_to_pack
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.capture.packing import name_from_file
from tests.support.launches import members


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--epochs", "3"], "train"),
        (["python", "-m", "vision.train"], "vision.train"),
        (["torchrun", "--nproc_per_node", "2", "scripts/finetune.py"], "finetune"),
        (["./train"], "train"),
        (["numactl", "-m", "1", "python", "train.py"], "train"),  # This -m is numactl's option for a memory node.
        (["srun", "-m", "block", "python3.12", "-u", "-m", "vision.train"], "vision.train"),
        (["numactl", "-m", "1", "./train"], "numactl"),
        (["torchrun", "--nproc_per_node", "2", "-m", "vision.train"], "vision.train"),
        (["python", "-m", "torch.distributed.run", "-m", "vision.train"], "vision.train"),
    ],
)
def test_the_file_is_named_after_the_script_or_module(command: list[str], name: str, tmp_path: Path) -> None:
    assert launch.default_run_name(command) == name


def test_a_run_is_named_after_its_output_file() -> None:
    assert name_from_file(Path("runs/bert_before.sawtooth")) == "bert_before"
    assert name_from_file(None) == name_from_file(Path("runs/run.sawtooth")) == ""


@pytest.mark.parametrize(
    ("variables", "member"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, "rank 1"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}, "task 3"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # A batch script outside of srun.
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "task 0"),
    ],
)
def test_separately_recorded_ranks_have_their_own_names_and_files(
    variables: dict[str, str], member: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[Path, str]] = []
    monkeypatch.setattr(launch, "run", lambda command, bundle, options, *, name: runs.append((bundle, name)))
    for key in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(key, raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(tmp_path)
    commands.record(commands.run_parser().parse_args(["train.py"]), ["train.py"])
    ((bundle, name),) = runs
    assert name == ("train" if member is None else f"train, {member}")
    assert bundle.name.startswith("train-" if member is None else f"train-{member.replace(' ', '')}-")


def test_one_of_several_trainings_is_recorded_and_named(tmp_path: Path) -> None:
    for process, steps in ((1, 30), (2, 50), (3, 2)):
        writer = MarkWriter(tmp_path / f"marks-{process}.jsonl")
        for step in range(steps):
            writer.mark(step)
        writer.close()
    assert left_out_message(tmp_path) == [LEFT_OUT.format(count=2, steps=50, all=80)]
    (tmp_path / "marks-1.jsonl").unlink()
    assert left_out_message(tmp_path) == [], "a process with two steps is not a training"
    mark_calls(tmp_path, 400)
    assert left_out_message(tmp_path) == [], "a process that evaluates is not a training"
    assert [path.name for path, _ in runs_to_pack(tmp_path)[0].sources] == ["marks-2.jsonl"]


def mark_calls(folder: Path, steps: int) -> None:
    writer = MarkWriter(folder / "marks-9.sign.jsonl", boundary=("call", "Model"))
    for step in range(steps):
        writer.mark(step)
    writer.close()


MARKING_SCRIPT = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["SAWTOOTH_RUN_FOLDER"])
(folder / "marks-1.jsonl").write_text("{}")
(folder / "batches-1.jsonl").write_text('{"dataset": "a:1", "workers": 1}')
sys.exit(5)
"""


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize(("error", "why"), [(ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"), (OSError(28, "No space left on device"), "No space left on device")])  # fmt: skip
def test_recorded_files_are_kept_if_packing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(launch, "MIN_TELEMETRY_S", 0.0)
    monkeypatch.setattr(launch, "pack_runs", fails)
    done = launch.run([sys.executable, "-c", MARKING_SCRIPT], tmp_path / "x.sawtooth")
    assert (done.exit_code, done.bundle) == (5, None)
    assert (
        done.at_end[-1]
        == f"{tmp_path / 'x.sawtooth'} cannot be written: {why}. The recorded files are in {tmp_path / 'x-files'}. Run `sawtooth ingest {tmp_path / 'x-files'}`."
    )
    assert (tmp_path / "x-files" / "marks-1.jsonl").read_text() == "{}"


@pytest.mark.usefixtures("sampled")
def test_unreadable_loader_times_do_not_affect_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MIN_TELEMETRY_S", 0.0)
    monkeypatch.setattr(recorded_runs.batch_files, "read_loading", lambda _: 1 // 0)
    done = launch.run([sys.executable, "-c", MARKING_SCRIPT], tmp_path / "x.sawtooth")
    assert done.exit_code == 5 and done.bundle is not None
    assert set(members(done.bundle)) == {"marks", "telemetry"}

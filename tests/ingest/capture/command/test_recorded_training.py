"""Tests of the steps, profiles and loader times that `sawtooth run` records.

Most trainings are forks of a process that has imported PyTorch (``recorded_python``). The first two start like a user's.
"""

import json
import re
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from sawtooth.ingest.runs.bundle_file import open_bundle
from sawtooth.installation import recorder_version
from tests.support.launches import TRAINING, WITHOUT_COMPILER, facts_of, marks_of, members, started


def test_a_script_with_flags_keeps_its_output_and_exit_code_and_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = started(
        *("-o", "run.sawtooth", "--no-sample", "--after", "0.001", "--steps", "2"),
        *("train.py", "--profiles", "1", "--code", "7"),
        cwd=tmp_path,
    )
    assert done.returncode == 7, done.stderr
    steps = int(done.stdout.removeprefix("trained "))
    assert f"The command ended with exit code 7 after {steps} steps." in done.stderr and "No profile" not in done.stderr
    # The profiler's lines are not part of the training's output.
    assert {line.partition(":")[0] for line in done.stderr.splitlines()} == {"sawtooth"}
    recorded = members(tmp_path / "run.sawtooth")
    assert [mark["i"] for mark in marks_of(tmp_path / "run.sawtooth")] == list(range(steps))
    assert b"Optimizer.step#SGD.step" in recorded["trace"] and b'"python_function"' not in recorded["trace"]
    with zipfile.ZipFile(tmp_path / "run.sawtooth") as archive:
        packed_by = json.loads(archive.read("manifest.json"))["tool_version"]
    assert packed_by == json.loads(recorded["marks"].splitlines()[0])["recorder"] == recorder_version() != ""


def test_a_module_runs_with_the_python_that_has_pytorch(tmp_path: Path) -> None:
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl" / "train.py").write_text(WITHOUT_COMPILER + TRAINING)
    done = started("--no-sample", "--no-profile", "--after", "0.001", "-m", "rl.train", "--epochs", "60", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained 60\n"), done.stderr
    assert "No profile" not in done.stderr and "exit code" not in done.stderr
    (bundle,) = tmp_path.glob("rl.train-*.sawtooth")
    with zipfile.ZipFile(bundle) as archive:
        (run,) = json.loads(archive.read("manifest.json"))["runs"]
    assert (run["name"], run["command"]) == ("rl.train", ["-m", "rl.train", "--epochs", "60"])
    assert set(members(bundle)) == {"marks"}


@pytest.mark.slow
def test_steps_after_an_evaluation_or_a_checkpoint_are_marked(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(
        TRAINING.replace(
            "    optimizer.zero_grad()\n",
            "    optimizer.zero_grad()\n    if step in (7, 9): model.eval(); model.train()\n    if step == 8: torch.save(model.state_dict(), 'state.pt')\n",
        )
    )
    words = ("-o", "run.sawtooth", "--no-sample", "--steps", "0", recorded_python, "train.py", "--epochs", "12")
    done = started(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    marked = marks_of(tmp_path / "run.sawtooth")
    assert {mark["i"]: mark["p"] for mark in marked if mark["p"] != "train"} == {7: "eval", 8: "checkpoint", 9: "eval"}
    assert (tmp_path / "state.pt").exists()


def test_python_calls_are_recorded_if_requested(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = ("-o", "run.sawtooth", "--no-sample", "--stacks", "--after", "0.001", "--steps", "2")
    done = started(*words, recorded_python, "train.py", "--profiles", "1", cwd=tmp_path)
    assert done.returncode == 0 and b'"python_function"' in members(tmp_path / "run.sawtooth")["trace"], done.stderr


def test_a_training_that_fails_before_its_profile_is_not_called_too_short(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = (
        "-o",
        "run.sawtooth",
        "--no-sample",
        "--after",
        "600",
        recorded_python,
        "train.py",
        "--epochs",
        "30",
        "--code",
        "3",
    )
    done = started(*words, cwd=tmp_path)
    assert "The command ended with exit code 3 after 30 steps, before a profile was taken." in done.stderr
    assert "No profile" not in done.stderr


LEAVES = """
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
os._exit(given.code)
"""


def test_every_step_is_marked_once_despite_exit_and_forks(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING.replace("sys.exit(given.code)", LEAVES))
    words = ("-o", "run.sawtooth", "--no-sample", recorded_python, "train.py", "--epochs", "30", "--code", "9")
    done = started(*words, cwd=tmp_path)
    assert done.returncode == 9 and "exit code 9 after 30 steps" in done.stderr
    assert [mark["i"] for mark in marks_of(tmp_path / "run.sawtooth")] == list(range(30))


def test_a_loop_too_short_for_a_profile_learns_the_needed_steps(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = ("-o", "run.sawtooth", "--no-sample", "--after", "0", "--steps", "2", recorded_python, "train.py", "--epochs", "23")
    done = started(*words, cwd=tmp_path)
    assert "trace" not in members(tmp_path / "run.sawtooth")
    reported = r"the loop took 23 steps in [\d.]+ s, and a profile needs 24 steps\. Train longer\."
    assert re.search(reported, done.stderr), done.stderr


@pytest.mark.slow
def test_a_run_name_with_a_slash_is_a_valid_file_name(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = ("--no-sample", "--no-profile", "--name", "lr 1/3", recorded_python, "train.py", "--epochs", "3")
    done = started(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (bundle,) = tmp_path.glob("lr 1-3-*.sawtooth")
    with open_bundle(bundle) as opened:
        assert opened.manifest.runs[0].name == "lr 1/3"


def test_a_training_that_is_profiled_again_makes_several_runs(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    words = ("-o", "run.sawtooth", "--no-sample", "--after", "0.001", "--steps", "2", "--every", "40")
    done = started(*words, recorded_python, "train.py", "--profiles", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with open_bundle(tmp_path / "run.sawtooth") as bundle:
        runs = bundle.manifest.runs
    steps = [int(run.settings["step"]) for run in runs]
    assert len(steps) == 3 and all(after >= before + 40 for before, after in pairwise(steps))
    assert [run.name for run in runs] == ["train", *(f"train, step {step:,}" for step in steps[1:])]
    assert all([r.kind for r in run.recordings] == ["trace", "marks"] for run in runs)


LOADING = """
import time, torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(8)
def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers={workers}, multiprocessing_context={context!r}):
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    main()
"""


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("workers", "context"), [(2, "fork"), (0, None)])  # test_names.py tests spawn.
def test_the_loader_s_processes_are_timed(tmp_path: Path, recorded_python: str, workers: int, context: str | None) -> None:
    (tmp_path / "train.py").write_text(LOADING.format(workers=workers, context=context))
    done = started("-o", "run.sawtooth", "--no-sample", "--no-profile", recorded_python, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = facts_of(tmp_path / "run.sawtooth")
    assert facts["loader_workers"] == workers and facts["loader_batch"] == 4
    # Each row sleeps for 2 ms. On a busy machine, only the wall time is longer.
    assert facts["loader_sample_ms"] >= 2 and facts["loader_sample_cpu_ms"] < facts["loader_sample_ms"] / 2
    with open_bundle(tmp_path / "run.sawtooth") as bundle:
        assert bundle.manifest.runs[0].facts.loader_workers == workers


@pytest.mark.slow
def test_an_option_disables_timing_of_the_loader(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "train.py").write_text(LOADING.format(workers=0, context=None))
    words = ("-o", "run.sawtooth", "--no-sample", "--no-profile", "--no-loader", recorded_python, "train.py")
    done = started(*words, cwd=tmp_path)
    assert done.returncode == 0 and facts_of(tmp_path / "run.sawtooth") == {}


def test_a_loader_that_cannot_be_timed_still_trains(tmp_path: Path, recorded_python: str) -> None:
    """The folder of the recording was deleted, so no times can be written."""
    (tmp_path / "train.py").write_text(
        "import os, shutil; shutil.rmtree(os.environ['SAWTOOTH_RUN_FOLDER'])\n" + LOADING.format(workers=2, context="fork")
    )
    done = started("-o", "run.sawtooth", "--no-sample", "--no-profile", recorded_python, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

"""Tests of finding the trainings of a PID, with a fake /proc."""

import os
from pathlib import Path

import pytest

from sawtooth.ingest.capture.attach.targets import AttachError, find_trainings, read_process

USER = 1000
TORCH = "7f00-7f10 r-xp 00000000 08:01 99 /env/lib/python3.14/site-packages/torch/lib/libtorch_python.so\n"


class Proc:
    """Processes of a fake /proc. The start time of each process is 100 times the PID."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "self").mkdir()

    def add(
        self,
        pid: int,
        parent: int,
        command: str,
        *,
        torch: bool = True,
        gpu: bool = False,
        user: int = USER,
        state: str = "S",
        **environment: str,
    ) -> None:
        process_folder = self.folder / str(pid)
        (process_folder / "fd").mkdir(parents=True)
        fields = [state, str(parent), *["0"] * 17, str(100 * pid), "0"]
        (process_folder / "stat").write_text(f"{pid} (a (strange) name) {' '.join(fields)}\n")
        (process_folder / "status").write_text(f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\n")
        (process_folder / "cmdline").write_text("\0".join(command.split()) + "\0")
        (process_folder / "environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
        (process_folder / "maps").write_text(TORCH if torch else "")
        (process_folder / "fd" / "3").symlink_to("/dev/nvidiactl")
        if gpu:
            (process_folder / "fd" / "4").symlink_to("/dev/nvidia0")

    def trainings(self, pid: int) -> list[int]:
        return [item.pid for item in find_trainings(pid, user=USER, proc=self.folder)]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_loader_workers_are_not_trainings(proc: Proc) -> None:
    proc.add(10, 1, "python train.py", gpu=True)
    proc.add(11, 10, "python train.py", gpu=True)  # A fork has the parent's open files.
    proc.add(12, 10, "python -c from multiprocessing.spawn import spawn_main")
    proc.add(13, 10, "python /env/torch/_inductor/compile_worker/__main__.py")
    assert proc.trainings(10) == [10]


def test_ranks_of_torchrun_are_found_in_order_without_workers(proc: Proc) -> None:
    proc.add(10, 1, "bash job.sh", torch=False)
    proc.add(11, 10, "python /env/bin/torchrun --nproc-per-node 2 train.py")
    proc.add(13, 11, "python -u train.py", gpu=True, RANK="0")
    proc.add(12, 11, "python -u train.py", gpu=True, RANK="1")
    proc.add(14, 13, "python -u train.py", gpu=True, RANK="0")
    assert proc.trainings(10) == proc.trainings(11) == [13, 12]
    assert proc.trainings(12) == [12]


@pytest.mark.parametrize("gpu", [True, False])
def test_the_process_that_a_launcher_starts_is_the_training(proc: Proc, gpu: bool) -> None:
    proc.add(10, 1, "python /env/bin/accelerate launch train.py")
    proc.add(11, 10, "python train.py", gpu=gpu)
    assert proc.trainings(10) == [11]


def test_a_training_that_starts_another_program_is_still_the_training(proc: Proc) -> None:
    proc.add(10, 1, "python train.py", gpu=True)
    proc.add(11, 10, "python evaluate.py", gpu=True)
    assert proc.trainings(10) == [10]


def test_spawned_ranks_are_processes_that_use_a_gpu(proc: Proc) -> None:
    proc.add(10, 1, "python train.py")
    proc.add(11, 10, "python -c from multiprocessing.spawn import spawn_main(tracker_fd=3)", gpu=True)
    proc.add(12, 10, "python -c from multiprocessing.spawn import spawn_main(tracker_fd=4)", gpu=True)
    assert proc.trainings(10) == [11, 12]


def test_a_process_that_is_not_a_training_of_the_user_is_refused(proc: Proc) -> None:
    proc.add(10, 1, "python train.py", user=USER + 1)
    proc.add(20, 1, "bash", torch=False)
    proc.add(21, 20, "python other.py", user=USER + 1)
    proc.add(30, 1, "python", state="Z")
    proc.add(40, 1, "python train.py")
    (proc.folder / "40" / "status").unlink()  # The process ends while it is read.
    for pid, words in (
        (10, "belongs to user 1001, but you are user 1000"),
        (20, "imported PyTorch"),
        (30, "no process 30"),
        (40, "no process 40"),
        (99, "no process 99"),
    ):
        with pytest.raises(AttachError, match=words):
            proc.trainings(pid)


def test_a_later_process_with_the_same_pid_is_distinguished(proc: Proc) -> None:
    proc.add(10, 1, "python train.py")
    process = read_process(10, proc.folder)
    assert process is not None and process.is_alive(proc.folder)
    stat = proc.folder / "10" / "stat"
    stat.write_text(stat.read_text().replace(" 1000 ", " 7777 "))
    assert not process.is_alive(proc.folder)


def test_this_process_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    process = read_process(os.getpid())
    assert process is not None and process.is_alive() and process.owners == {os.getuid()} and process.parent == os.getppid()

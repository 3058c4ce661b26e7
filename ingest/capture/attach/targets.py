"""Find the training processes of a PID: the process itself, or the ranks that a launcher has started.

The functions read Linux's /proc. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sawtooth.ingest.capture.process_rank import environment_number
from sawtooth.ingest.sampler.host import HELPERS, is_worker

PROC = Path("/proc")
PYTORCH_LIBRARY = "/libtorch_python"  # A process's memory map contains this text after PyTorch was imported.
GPU_FILES = ("/dev/nvidia", "/dev/kfd")  # Paths of the device files of NVIDIA and AMD begin with these.
CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset")  # Processes that only query a GPU open these too.
NO_PROC = "sawtooth attach reads processes from /proc, so it works on Linux only."
NO_PROCESS = "There is no process {pid}. `pgrep -af python` lists the Python processes."
NOT_YOURS = "Process {pid} belongs to user {owner}, but you are user {user}. Run sawtooth attach as user {owner}."
NO_PYTORCH = (
    "Neither process {pid} nor any process below it has imported PyTorch. Give the PID of the training or of its launcher; "
    "if the training has just started, try again in a few seconds."
)


class AttachError(Exception):
    """Nothing can be recorded; the message says why."""


@dataclass(frozen=True)
class Process:
    """A process as /proc describes it.

    ``started`` is the process's start in clock ticks since boot, which distinguishes it from a later process with the same PID. ``owners``
    are the real, effective, saved and file-system user ids. ``environment`` is the environment at the process's start.
    """

    pid: int
    parent: int
    started: int
    owners: frozenset[int]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    uses_pytorch: bool
    uses_gpu: bool

    @property
    def rank(self) -> int | None:
        """Return the rank that a launcher gave to this process, None without one."""
        return environment_number("RANK", self.environment)

    def is_alive(self, proc: Path = PROC) -> bool:
        """Return whether this process still runs, and its PID was not reused."""
        stat = _stat(self.pid, proc)
        return stat is not None and stat[0] != "Z" and int(stat[19]) == self.started


def find_trainings(pid: int, *, user: int | None = None, proc: Path = PROC) -> list[Process]:
    """Return the training processes at or below ``pid``, by rank. Raises AttachError if there are none."""
    user = os.geteuid() if user is None else user
    if not (proc / "self").exists():
        raise AttachError(NO_PROC)
    root = read_process(pid, proc)
    if root is None:
        raise AttachError(NO_PROCESS.format(pid=pid))
    if root.owners != {user}:
        raise AttachError(NOT_YOURS.format(pid=pid, owner=min(root.owners - {user}), user=user))
    tree = {process.pid: process for process in (root, *_descendants(pid, proc)) if process.owners == {user}}
    with_pytorch = {
        process.pid: process
        for process in tree.values()
        if process.uses_pytorch and not any(helper in " ".join(process.command) for helper in HELPERS)
    }
    if not with_pytorch:
        raise AttachError(NO_PYTORCH.format(pid=pid))
    return _ranks(with_pytorch) or _unranked_trainings(with_pytorch, tree)


def _ranks(with_pytorch: Mapping[int, Process]) -> list[Process]:
    """Return the processes with a rank, without loader workers, which inherit the rank's number."""
    ranked = [process for process in with_pytorch.values() if process.rank is not None]
    trainings = [
        process for process in ranked if process.parent not in with_pytorch or with_pytorch[process.parent].rank != process.rank
    ]
    return sorted(trainings, key=lambda process: process.rank or 0)


def _unranked_trainings(with_pytorch: Mapping[int, Process], tree: Mapping[int, Process]) -> list[Process]:
    """Return the topmost processes that are not launchers.

    If none of these uses a GPU, the topmost processes that use a GPU are returned, because torch.multiprocessing may have started them.
    """
    launchers = {
        parent.pid
        for child in with_pytorch.values()
        if not _is_loader_worker(child, tree)
        and (parent := _nearest_ancestor(child, with_pytorch, tree)) is not None
        and not parent.uses_gpu
    }
    rest = {pid: process for pid, process in with_pytorch.items() if pid not in launchers}
    top = _topmost(rest, tree)
    if not any(process.uses_gpu for process in top):
        top = _topmost({pid: process for pid, process in rest.items() if process.uses_gpu}, tree) or top
    return sorted(top, key=lambda process: process.pid)


def _topmost(candidates: Mapping[int, Process], tree: Mapping[int, Process]) -> list[Process]:
    return [process for process in candidates.values() if _nearest_ancestor(process, candidates, tree) is None]


def _nearest_ancestor(process: Process, candidates: Mapping[int, Process], tree: Mapping[int, Process]) -> Process | None:
    """Return the nearest ancestor of a process that is in ``candidates``; None if there is none."""
    parent = tree.get(process.parent)
    while parent is not None and parent.pid not in candidates:
        parent = tree.get(parent.parent)
    return parent


def _is_loader_worker(process: Process, tree: Mapping[int, Process]) -> bool:
    parent = tree.get(process.parent)
    return is_worker(list(process.command), list(parent.command) if parent is not None else None)


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """Read a process from /proc; None if it does not exist or has ended."""
    stat = _stat(pid, proc)
    if stat is None or stat[0] == "Z":
        return None
    folder = proc / str(pid)
    owners = next((line for line in _text(folder / "status").splitlines() if line.startswith("Uid:")), None)
    if owners is None:
        return None  # The process ended after its stat file was read.
    return Process(
        pid,
        int(stat[1]),
        int(stat[19]),
        frozenset(map(int, owners.split()[1:])),
        tuple(_text(folder / "cmdline").rstrip("\0").split("\0")),
        dict(entry.split("=", 1) for entry in _text(folder / "environ").split("\0") if "=" in entry),
        PYTORCH_LIBRARY in _text(folder / "maps"),
        any(_is_gpu(file) for file in _open_files(folder / "fd")),
    )


def _descendants(pid: int, proc: Path) -> list[Process]:
    parents: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal() and (stat := _stat(int(folder.name), proc)) is not None:
            parents.setdefault(int(stat[1]), []).append(int(folder.name))
    descendants, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        waiting += children
        descendants += [process for child in children if (process := read_process(child, proc)) is not None]
    return descendants


def _stat(pid: int, proc: Path) -> Sequence[str] | None:
    """Return the fields of /proc/PID/stat that follow the name, which may contain any character."""
    return _text(proc / str(pid) / "stat").rpartition(")")[2].split() or None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_bytes().decode(errors="replace")
    return ""


def _open_files(folder: Path) -> list[str]:
    files = []
    with contextlib.suppress(OSError):
        for link in folder.iterdir():
            with contextlib.suppress(OSError):  # The file was closed in the meantime.
                files.append(str(link.readlink()))
    return files


def _is_gpu(file: str) -> bool:
    return file.startswith(GPU_FILES) and not file.startswith(CONTROL_FILES)

"""The working folder of a training: find files that a run changed, and copy the folder for a run."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

LINKED = ("pyvenv.cfg",)  # A folder with this file is a virtual environment.
SKIPPED = ("__pycache__", ".git")  # Folders without effect on a training, which other programs may write meanwhile.
MAX_LISTED = 200_000  # Files that are listed: of a larger data set, the rest is not checked.


def listing(folder: Path, without: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of up to MAX_LISTED files in ``folder``, but not in ``without``."""
    listed: dict[str, tuple[int, int]] = {}
    for path in _files(folder):
        if len(listed) >= MAX_LISTED:
            break
        if path.is_relative_to(without):
            continue
        with contextlib.suppress(OSError):
            status = path.stat()
            listed[str(path)] = status.st_size, status.st_mtime_ns
    return listed


def changed_files(before: Mapping[str, tuple[int, int]], folder: Path, without: Path) -> list[str]:
    """Return the files of ``before`` that were changed or removed since; call it after the training.

    Files that a process has open now, such as a log of this command, belong to other programs and are left out.
    """
    after = listing(folder, without)
    return _closed_files(path for path, status in before.items() if after.get(path) != status)


def added_files(before: Mapping[str, tuple[int, int]], folder: Path, without: Path) -> list[str]:
    """Return the files that are not in ``before``, without those that a process has open."""
    return _closed_files(listing(folder, without).keys() - before.keys()) if len(before) < MAX_LISTED else []


def _closed_files(paths: Iterable[str]) -> list[str]:
    """Return the sorted ``paths`` of files that no process has open."""
    files = sorted(paths)
    open_now = _open_files() if files else set()
    return [path for path in files if os.path.realpath(path) not in open_now]


def _open_files() -> set[str]:
    listed = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            listed |= {file.path for file in process.open_files()}
    return listed


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and not _is_linked(Path(place, name))]
        yield from (Path(place, name) for name in files)


def _is_linked(folder: Path) -> bool:
    return any((folder / name).exists() for name in LINKED)


def size_of_copy(folder: Path) -> int:
    """Return the bytes of the writable files in ``folder``; a copy has only links to the others."""
    total = 0
    for path in _files(folder):
        with contextlib.suppress(OSError):
            if not _is_read_only(path):
                total += path.stat(follow_symlinks=False).st_size
    return total


def _is_read_only(path: Path) -> bool:
    return not path.stat().st_mode & 0o222


def copy(folder: Path, target: Path) -> None:
    """Copy ``folder`` to ``target``; read-only files and virtual environments become links."""

    def copied(source: str, destination: str) -> str:
        if not Path(source).is_symlink() and _is_read_only(Path(source)):
            Path(destination).symlink_to(Path(source).resolve())
            return destination
        return str(shutil.copy2(source, destination, follow_symlinks=False))

    def left_out(place: str, names: list[str]) -> set[str]:
        inside = {name for name in names if _is_linked(Path(place, name)) or Path(place, name).resolve() == target.resolve()}
        for name in inside:
            relative = Path(place).relative_to(folder)
            if Path(place, name).resolve() != target.resolve():
                linked = target / relative / name
                linked.parent.mkdir(parents=True, exist_ok=True)
                linked.symlink_to(Path(place, name).resolve(), target_is_directory=True)
        return inside | {name for name in names if name in SKIPPED}

    target.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, target, symlinks=True, copy_function=copied, ignore=left_out, dirs_exist_ok=True)


def move_path(word: str, folder: Path, target: Path) -> str:
    """Return a word of a command, with paths below ``folder`` replaced by the same paths below ``target``."""
    return word.replace(f"{folder}{os.sep}", f"{target}{os.sep}")

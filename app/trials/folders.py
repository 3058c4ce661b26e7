"""The working folder of a training: find files that a run changed, and copy the folder for a run."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

ENVIRONMENT_FILE = "pyvenv.cfg"  # A folder with this file is a virtual environment. A copy has only a link to it.
SKIPPED_FOLDERS = ("__pycache__", ".git")  # Other programs may write them during a run. A training does not need them.
MAX_FILES = 200_000  # Listing more would take too long. The other files of a larger data set are not checked.


def listing(folder: Path, without: Path) -> dict[str, tuple[int, int]]:
    """Return size (bytes) and modification time (ns) of files in ``folder``, but not in ``without``.

    At most MAX_FILES files are listed.
    """
    listed: dict[str, tuple[int, int]] = {}
    for path in _files(folder):
        if len(listed) >= MAX_FILES:
            break
        if path.is_relative_to(without):
            continue
        with contextlib.suppress(OSError):
            status = path.stat()
            listed[str(path)] = status.st_size, status.st_mtime_ns
    return listed


def changed_files(before: Mapping[str, tuple[int, int]], folder: Path, without: Path) -> list[str]:
    """Return the files of ``before`` that have been changed or removed since.

    Call it after the training. Files that a process has open now are left out, because they belong to other programs.
    """
    after = listing(folder, without)
    return _closed_files(path for path, status in before.items() if after.get(path) != status)


def added_files(before: Mapping[str, tuple[int, int]], folder: Path, without: Path) -> list[str]:
    """Return the files that are not in ``before``, without those that a process has open."""
    return _closed_files(listing(folder, without).keys() - before.keys()) if len(before) < MAX_FILES else []


def _closed_files(paths: Iterable[str]) -> list[str]:
    """Return the sorted ``paths`` of files that no process has open."""
    files = sorted(paths)
    open_files = _open_files() if files else set()
    return [path for path in files if os.path.realpath(path) not in open_files]


def _open_files() -> set[str]:
    paths = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            paths |= {file.path for file in process.open_files()}
    return paths


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below ``folder``, without virtual environments and SKIPPED_FOLDERS."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not _is_environment(Path(parent, name))]
        yield from (Path(parent, name) for name in files)


def _is_environment(folder: Path) -> bool:
    return (folder / ENVIRONMENT_FILE).exists()


def size_of_copy(folder: Path) -> int:
    """Return the bytes that a copy of ``folder`` takes.

    These are the bytes of writable files, because ``copy`` links the others.
    """
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

    def copy_or_link_file(source: str, destination: str) -> str:
        if not Path(source).is_symlink() and _is_read_only(Path(source)):
            Path(destination).symlink_to(Path(source).resolve())
            return destination
        return str(shutil.copy2(source, destination, follow_symlinks=False))

    def link_environments(parent: str, names: list[str]) -> set[str]:
        """Link the virtual environments in ``parent``, and return the names that must not be copied."""
        excluded = {name for name in names if name in SKIPPED_FOLDERS}
        for name in names:
            path = Path(parent, name)
            if path.resolve() == target.resolve():
                excluded.add(name)
            elif _is_environment(path):
                link = target / Path(parent).relative_to(folder) / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.resolve(), target_is_directory=True)
                excluded.add(name)
        return excluded

    target.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        folder, target, symlinks=True, copy_function=copy_or_link_file, ignore=link_environments, dirs_exist_ok=True
    )


def move_path(word: str, folder: Path, target: Path) -> str:
    """Return a word of a command, with ``target`` instead of ``folder`` in paths."""
    return word.replace(f"{folder}{os.sep}", f"{target}{os.sep}")

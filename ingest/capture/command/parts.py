"""The temporary folder with the parts (files) of a recording, until they are packed.

This module also finds the folders of killed runs, and saves the parts if packing fails. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from ...locks import exclusive_lock, is_locked

PREFIX = "sawtooth-run-"
LOCK = "lock"
LOADED = "loaded"  # startup/sitecustomize.py creates this file in every Python that it reaches.
RECORDED_FILES = ("marks-*.jsonl", "trace-*.json", "live/*/meta.json")
STEP_INFIX = "-at"  # Later traces are named NAME-atSTEP, where STEP is the last step before the profile.
LATER_PROFILES = 9  # Only the newest profiles are stored, because the profiles of weeks would fill the disk.
RESERVED_BYTES = 4096  # A note about an error is smaller than this. It has the message, the process and the folder.
TAIL_BYTES = 64  # The closing brace of a trace must be in the last bytes. Only white space may follow it.
MIN_FREE_BYTES = 1 << 20  # With less free space, the disk counts as full. The sampler and the marks need more for one write.
DISK_FULL = "Recording stopped, because {place} is full ({why}). Free space there, or choose another folder with TMPDIR=…"
STOPPED = "Recording stopped in process {pid}: {error}."
MEMORY_SNAPSHOT_WRITTEN = (
    "The memory snapshot is in {file}. Read it with `sawtooth memory {file}`, or ingest it with the recording."
)
NO_MEMORY = (
    "There is no memory snapshot: no process with a CUDA GPU was profiled, or the training records its own memory history."
)
TAKEN = "{taken} exists already. This run is written to {free}."
UNWRITABLE = "{wanted} cannot be written ({why}). This run is written to {other}."
PARTS_LEFT = "An earlier run was killed, or its file could not be written. Its parts are in {folder}. Run `sawtooth ingest {folder}`, then delete the folder."


@contextmanager
def parts_folder() -> Iterator[Path]:
    """Provide a temporary folder for the parts, locked while this process lives.

    Raises OSError if no folder can be made.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / LOCK).touch()
        with contextlib.suppress(OSError):  # Reserve space for a note about an error before the disk is full.
            reserved_error(folder).write_bytes(b" " * RESERVED_BYTES)
        with (folder / LOCK).open("r+") as lock, exclusive_lock(lock):
            yield folder


def abandoned_folders() -> list[Path]:
    """Return the folders with recorded files of this user's killed runs."""
    abandoned: list[Path] = []
    try:
        folders = sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    except OSError:  # No temporary folder can be written.
        return abandoned
    for folder in folders:
        with contextlib.suppress(OSError):
            is_own = not hasattr(os, "getuid") or folder.lstat().st_uid == os.getuid()
            has_files = any(any(folder.glob(pattern)) for pattern in RECORDED_FILES)
            if is_own and folder.is_dir() and has_files and not _is_used(folder):
                abandoned.append(folder)
    return abandoned


def _is_used(folder: Path) -> bool:
    try:
        with (folder / LOCK).open("r+") as lock:
            return is_locked(lock)
    except FileNotFoundError:
        # Either an older version without locks made the folder and may still record, or ``keep`` made the folder.
        return "-files" not in folder.name


def reserved_error(folder: Path) -> Path:
    """Return the file that reserves disk space, so that an error can be noted on a full disk."""
    return folder / "trouble-reserved.json"


def note_error(path: Path, error: Exception, rank: int | None) -> None:
    """Note in ``path`` that recording stopped in this process.

    If the disk is full, the note is written into the reserved file in the same folder.
    """
    why = f"{error.strerror}" if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    place = str(path.parent.parent) if isinstance(error, OSError) else ""
    text = json.dumps({"pid": os.getpid(), "rank": rank, "error": why, "place": place})
    record = text[:RESERVED_BYTES].ljust(RESERVED_BYTES).encode()  # The full length overwrites an earlier note completely.
    try:
        path.write_bytes(record)
    except OSError:
        with contextlib.suppress(OSError), reserved_error(path.parent).open("r+b") as file:
            file.write(record)


def check_complete(trace: Path) -> None:
    """Raise OSError if a trace lacks its closing brace, because PyTorch does not report a full disk."""
    with trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - TAIL_BYTES))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def publish(part: Path, trace: Path, later_traces: list[Path], step: int | None) -> None:
    """Move the trace in ``part`` to ``trace``; insert ``step``, if any, into the name.

    ``step`` is the last step before a repeated profile. It is None for the first profile, and for a profile that replaces the first.
    ``later_traces`` lists the traces of repeated profiles. If there are more than LATER_PROFILES, the oldest is deleted. Raises OSError
    if the trace is incomplete.
    """
    check_complete(part)
    if step is not None:
        trace = trace.with_stem(f"{trace.stem}{STEP_INFIX}{step}")
        later_traces.append(trace)
    part.replace(trace)
    if len(later_traces) > LATER_PROFILES:
        later_traces.pop(0).unlink(missing_ok=True)


def errors_in(folder: Path) -> list[str]:
    """Return a sentence for each process that stopped recording because of an error or a full disk."""
    sentences = []
    for path in sorted(folder.glob("trouble-*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            note = json.loads(path.read_text())
            is_full = note.get("place") and shutil.disk_usage(folder).free < MIN_FREE_BYTES
            sentences.append(DISK_FULL.format(place=note["place"], why=note["error"]) if is_full else STOPPED.format(**note))
    return list(dict.fromkeys(sentences))


def output_file(wanted: Path, default: str) -> tuple[Path, str]:
    """Return the path to write, and a message if the path is not ``wanted`` (else "").

    If ``wanted`` is a folder, the path is ``default`` in this folder. Missing folders are made. If the folder cannot be written, the path is
    in the working folder, else in the temporary folder. If none of these folders can be written, ``wanted`` is returned. No file of the
    returned name exists yet.
    """
    if wanted.is_dir():
        wanted /= default
    why = _why_unwritable(wanted.parent)
    if why is None:
        free = free_name(wanted)
        return free, "" if free == wanted else TAKEN.format(taken=wanted, free=free)
    for folder in (Path(), Path(os.environ.get("TMPDIR", "/tmp"))):
        if _why_unwritable(folder) is None:
            free = free_name(folder / wanted.name)
            return free, UNWRITABLE.format(wanted=wanted, why=why, other=free.absolute())
    return wanted, ""


def _why_unwritable(folder: Path) -> str | None:
    """Make ``folder`` if it is missing; return the reason if it cannot be written, else None."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or type(error).__name__


def free_name(path: Path) -> Path:
    """Return ``path`` if it does not exist, else the first free one of NAME-2, NAME-3 …"""
    names = chain([path], (path.with_stem(f"{path.stem}-{number}") for number in count(2)))
    return next(path for path in names if not path.exists())


def keep(folder: Path, bundle: Path) -> Path:
    """Move the parts beside ``bundle``, else to a folder in the temporary folder; return the path."""
    for file in (folder / LOCK, reserved_error(folder)):
        file.unlink(missing_ok=True)
    for target in (bundle.with_name(f"{bundle.stem}-files"), folder.with_name(f"{folder.name}-files")):
        target = free_name(target)
        try:
            return Path(shutil.move(folder, target))
        except OSError:  # shutil.Error is an OSError too.
            shutil.rmtree(target, ignore_errors=True)  # An incomplete copy would look like a complete recording.
    return folder


def keep_unpacked(error: Exception, folder: Path, bundle: Path) -> str:
    """Save the files of ``folder`` as ``keep`` does; return a message with the ``error`` and the path."""
    place = keep(folder, bundle)
    why = f"{error.strerror}" if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return f"{bundle} cannot be written: {why}. The recorded files are in {place}. Run `sawtooth ingest {place}`."


def keep_samples(folder: Path, bundle: Path) -> str:
    """Move the telemetry beside ``bundle``; return a sentence with its path, "" if there is no telemetry."""
    samples = folder / "telemetry.jsonl"
    if not samples.exists():
        return ""
    target = free_name(bundle.with_name(f"{bundle.stem}-telemetry.jsonl"))
    shutil.move(samples, target)
    return f" The telemetry is in {target}."


def keep_snapshots(folder: Path, bundle: Path) -> list[str]:
    """Move the memory snapshots beside ``bundle``; return sentences with their paths."""
    sentences = []
    files = sorted(folder.glob("memory-*.pickle"))
    for file in files:
        process = file.stem.removeprefix("memory")  # The part may be empty or a suffix such as -rank0.
        target = free_name(bundle.with_name(f"{bundle.stem}-memory{process if len(files) > 1 else ''}.pickle"))
        try:
            shutil.move(file, target)
            sentences.append(MEMORY_SNAPSHOT_WRITTEN.format(file=target))
        except OSError as error:  # The rest of the recording is still packed.
            sentences.append(f"The memory snapshot cannot be written to {target} ({error.strerror}).")
    return sentences or [NO_MEMORY]

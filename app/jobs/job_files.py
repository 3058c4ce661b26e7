"""The files between a server and its ingest child: the order, the progress and the outcome of a job."""

from __future__ import annotations

from typing import Literal

import msgspec

Stage = Literal["waiting", "reading", "deriving", "done", "failed", "cancelled"]
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # Errors when reading a file that a power failure has damaged.
ACTIVE: tuple[Stage, ...] = ("waiting", "reading", "deriving")


class JobFile(msgspec.Struct, frozen=True):
    """One uploaded file: its path, and the name that the user gave it."""

    path: str
    name: str
    bytes: int


class JobRequest(msgspec.Struct, frozen=True):
    """The task of the child (``job.json``)."""

    data: str  # Path of the data folder.
    files: list[JobFile]
    keep_source: bool = True  # Whether the data folder keeps the original files.
    separate: bool = False  # Whether each trace becomes a run of its own.
    server_pid: int = 0  # The server that started the job. If it is gone, the job is left over.
    name: str = ""  # Name of the run; "" for a name from the files.
    bundled: bool = False  # Whether the run is one of Sawtooth's example recordings.
    created_ns: int = 0  # Creation time of a bundled run; 0 for the recording's own time.
    analyse: list[str] = []  # Ids of existing runs to analyse instead of files.
    tags: list[str] = []


class JobProgress(msgspec.Struct, frozen=True):
    """The child's progress (``progress.json``).

    ``share`` is the part that is read, None if it is not known. ``runs`` are registered and being analysed. ``seen`` describes the
    trace before its analysis, in words.
    """

    stage: Stage
    share: float | None = None
    file: str = ""
    events: int = 0
    runs: list[str] = []
    seen: str = ""


class JobOutcome(msgspec.Struct, frozen=True):
    """The child's result (``result.json``): run ids, or the code and sentence of an error.

    ``notices`` are for the user in both cases.
    """

    run_ids: list[str] = []
    code: str = ""
    sentence: str = ""
    notices: list[str] = []

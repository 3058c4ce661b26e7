"""The files between a server and its ingest child: the order, the progress and the outcome of a job."""

from __future__ import annotations

from typing import Literal

import msgspec

Stage = Literal["waiting", "reading", "deriving", "done", "failed", "cancelled"]
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # errors of files that a power failure damaged
ACTIVE: tuple[Stage, ...] = ("waiting", "reading", "deriving")


class JobFile(msgspec.Struct, frozen=True):
    """One uploaded file: its path, and the name that the user gave it."""

    path: str
    name: str
    bytes: int


class JobOrder(msgspec.Struct, frozen=True):
    """The task of the child (``job.json``)."""

    data: str
    files: list[JobFile]
    keep_source: bool = True
    separate: bool = False
    server_pid: int = 0
    name: str = ""
    bundled: bool = False
    created_ns: int = 0
    analyse: list[str] = []
    tags: list[str] = []


class JobProgress(msgspec.Struct, frozen=True):
    """The child's progress (``progress.json``).

    ``share`` is None if it is not known. ``runs`` are registered and being analysed. ``seen`` is what is known about the trace
    so far, in words.
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

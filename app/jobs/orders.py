"""What a server and the child that reads its uploads write for each other: the order, the progress and the outcome of a job."""

from __future__ import annotations

from typing import Literal

import msgspec

Stage = Literal["waiting", "reading", "deriving", "done", "failed", "cancelled"]
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)  # of files that a power cut damaged
ACTIVE: tuple[Stage, ...] = ("waiting", "reading", "deriving")


class JobFile(msgspec.Struct, frozen=True):
    """One uploaded file: where it lies and what the user called it."""

    path: str
    name: str
    bytes: int


class JobOrder(msgspec.Struct, frozen=True):
    """What the child is to do (``job.json``)."""

    data: str
    files: list[JobFile]
    keep_source: bool = True
    separate: bool = False
    server_pid: int = 0
    name: str = ""
    bundled: bool = False
    created_ns: int = 0
    analyse: list[str] = []


class Progress(msgspec.Struct, frozen=True):
    """How far the child is (``progress.json``). ``share`` is None where it cannot be known; ``runs`` are published and being analysed.

    ``seen`` is what is known of the trace by now, in words.
    """

    stage: Stage
    share: float | None = None
    file: str = ""
    events: int = 0
    runs: list[str] = []
    seen: str = ""


class Outcome(msgspec.Struct, frozen=True):
    """How the child ended (``result.json``): run ids, or the code and sentence of an error. ``notices`` are for the user either way."""

    run_ids: list[str] = []
    code: str = ""
    sentence: str = ""
    notices: list[str] = []

"""The facts about a session from its files: name, host, GPUs, start, and whether it still grows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from sawtooth.app.live.folders import newest_folders, newest_segment
from sawtooth.ingest.json_checksum import without_checksum
from sawtooth.ingest.receiver import is_pushed
from sawtooth.ingest.telemetry.session import INVALID_RECORD_ERRORS, is_time
from sawtooth.ingest.typed import from_json

FRESH_SECONDS = 10.0  # A session without new samples for this time is no longer live. A push takes up to two seconds.
NAME_LENGTH = 200  # Characters: a pusher may send thousands, and each refresh of the page would escape them again.
MAX_INFOS = 4096  # Twice the number of sessions that a receiver accepts.


@dataclass(frozen=True)
class SessionInfo:
    """One session according to its files.

    ``started_ns`` is its start by the sampler's clock. ``grown_s`` is the time by this machine's clock when it last grew.
    """

    id: str
    folder: Path
    name: str
    host: str
    gpus: int
    started_ns: int
    grown_s: float
    ended: bool
    pushed: bool
    replay_of: str | None
    pid: int | None

    def live(self, now_s: float) -> bool:
        """Return whether samples still arrive."""
        return not self.ended and now_s - self.grown_s <= FRESH_SECONDS


def session_info(folder: Path) -> SessionInfo | None:
    """Return the facts about a session; None if the folder has no session, or none with readable facts."""
    try:
        file_status = (folder / "meta.json").stat()
        meta = _meta(folder / "meta.json", file_status.st_mtime_ns, file_status.st_size)
        if not is_time(meta.started_w):
            return None
        pushed = is_pushed(folder)
        segment = newest_segment(folder)
        grown = max(file_status.st_mtime, segment.stat().st_mtime if segment else 0.0)
        ended = segment is not None and _ends(segment)
        return SessionInfo(
            id=folder.name, folder=folder, name=(meta.name or "")[:NAME_LENGTH], host=(meta.host or "")[:NAME_LENGTH], gpus=len(meta.devices), started_ns=meta.started_w, grown_s=grown, ended=ended,
            pushed=pushed, replay_of=meta.replay_of, pid=None if pushed else meta.pid,
        )  # fmt: skip
    except (OSError, RecursionError, *INVALID_RECORD_ERRORS):  # msgspec's errors are ValueErrors.
        return None


class _Meta(msgspec.Struct, frozen=True):
    """The fields of a session's meta.json that are shown; all others are skipped."""

    devices: list[msgspec.Raw]
    started_w: int
    name: str | None = None
    host: str | None = None
    replay_of: str | None = None
    pid: int | None = None


@lru_cache(maxsize=MAX_INFOS)
def _meta(path: Path, changed_ns: int, size: int) -> _Meta:
    """Return a meta.json, cached until it changes: the Live page reads all of them each second."""
    return from_json(without_checksum(path.read_bytes()), _Meta)


def sessions(live: Path) -> list[SessionInfo]:
    """Return the newest sessions, live ones first."""
    infos = [session_info(folder) for folder in newest_folders(live)]
    now = time.time()
    return sorted((s for s in infos if s is not None), key=lambda s: (s.live(now), s.grown_s), reverse=True)


def _ends(segment: Path) -> bool:
    with segment.open("rb") as file:
        file.seek(max(0, segment.stat().st_size - 400))
        return b'{"k":"end"' in file.read()

"""The folders of live sessions: list the newest ones, and remove one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.sampler.segments import SEGMENT, segment_name
from sawtooth.ingest.schema import DRAFT_PREFIX
from sawtooth.ingest.telemetry.session import is_session_id

# Sessions in the list: each costs the Live page 0.1 ms per second, and nobody could use a longer list.
MAX_LISTED_SESSIONS = 200


def newest_folders(live: Path) -> list[Path]:
    """Return the folders of the sessions that grew most recently, unordered."""
    if not live.is_dir():
        return []
    grown = [(_grown(folder), folder) for folder in live.iterdir() if is_session_id(folder.name)]
    return [folder for _, folder in sorted(grown, reverse=True)[:MAX_LISTED_SESSIONS]]


def _grown(folder: Path) -> float:
    """Return the time of a session's last sample, or 0 without samples, so that empty sessions come last."""
    with contextlib.suppress(OSError):
        if (segment := newest_segment(folder)) is not None:
            return segment.stat().st_mtime
    return 0.0


def newest_segment(folder: Path) -> Path | None:
    """Return the newest segment of a session, or None; raises OSError if the folder does not exist."""
    # The newest segment has the highest number. To read the times of thousands of files takes a hundred times as long.
    with os.scandir(folder) as entries:
        last = max((int(match[1]) for entry in entries if (match := SEGMENT.fullmatch(entry.name))), default=None)
    return folder / segment_name(last) if last is not None else None


def delete_session(live: Path, session: str) -> None:
    """Remove a session, at once for all readers; raises NotFoundError if it does not exist."""
    doomed = live / f"{DRAFT_PREFIX}{secrets.token_hex(8)}"
    try:
        if not is_session_id(session):
            raise FileNotFoundError
        (live / session).rename(doomed)
    except FileNotFoundError:
        raise NotFoundError("This server has no such session.") from None
    shutil.rmtree(doomed, ignore_errors=True)

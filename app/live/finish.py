"""Turn a live session into a run by ingesting its samples like an uploaded file."""

from __future__ import annotations

import secrets
from functools import lru_cache
from pathlib import Path

from sawtooth.app.jobs.queue import IngestJob
from sawtooth.app.live.folders import delete_session
from sawtooth.app.live.info import SessionInfo
from sawtooth.app.live.sessions import LiveSessions
from sawtooth.app.server.local_sampler import local_sampler
from sawtooth.app.server.process import jobs
from sawtooth.app.settings import settings
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.receiver import clock_offset_ns
from sawtooth.ingest.telemetry.session import write_session_file


def live_sessions() -> LiveSessions:
    """Return this server's readers of live sessions."""
    return _sessions_of(settings().data.create().live)


@lru_cache(maxsize=4)
def _sessions_of(live: Path) -> LiveSessions:
    return LiveSessions(live)


def delete(info: SessionInfo) -> None:
    """Remove a session with its samples; raises NotFoundError if it does not exist."""
    delete_session(settings().data.live, info.id)
    live_sessions().forget(info.id)


def finish(info: SessionInfo, name: str) -> IngestJob:
    """Stop the session's sampler if this server started it, and start reading its samples.

    Raises SawtoothError if the session has no samples.
    """
    if info.pid is not None and info.pid == local_sampler().pid:
        local_sampler().stop()
    source = settings().data.create().uploads / secrets.token_hex(16)
    try:
        write_session_file(info.folder, source, clock_offset_ns(info.folder) if info.pushed else None)
        return jobs().start([(source, f"{info.id}.jsonl")], name=name)
    except (SawtoothError, OSError):
        source.unlink(missing_ok=True)
        raise

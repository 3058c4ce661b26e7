"""Clean the uploads folder after stopped servers and disconnected clients."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sawtooth.app.jobs.job_files import UNREADABLE, JobRequest
from sawtooth.ingest.schema import DRAFT_PREFIX
from sawtooth.ingest.typed import from_json

MAX_AGE_WITHOUT_REQUEST_S = 60  # An older folder without job.json is abandoned, because job.json is written after milliseconds.
MAX_UPLOAD_PAUSE_S = 3600  # An upload without a job is abandoned if it has not grown for this time.


def remove_leftovers(uploads: Path, now: float) -> int:
    """Remove leftovers of stopped servers and disconnected clients; return the number of entries."""
    removed = 0
    for entry in uploads.iterdir() if uploads.is_dir() else ():
        if entry.name.startswith(DRAFT_PREFIX) or not _is_abandoned(entry, now):
            continue  # sawtooth.ingest.files removes drafts, because it knows their locks.
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
        removed += 1
    return removed


def is_stale_upload(entry: Path, now: float) -> bool:
    """Return whether an upload without a job has not grown for an hour; raises OSError if it is missing."""
    return now - entry.stat().st_mtime > MAX_UPLOAD_PAUSE_S


def _is_abandoned(entry: Path, now: float) -> bool:
    """Return whether ``entry`` is a stale upload, or the folder of a job whose server no longer exists."""
    try:
        if entry.name.startswith("job-"):
            if not (entry / "job.json").exists():
                return now - entry.stat().st_mtime > MAX_AGE_WITHOUT_REQUEST_S
            order = from_json((entry / "job.json").read_bytes(), JobRequest)
            # This server has just started and has no jobs. So a job with its process id is from an earlier process with this id.
            return order.server_pid == os.getpid() or not _alive(order.server_pid)
        return is_stale_upload(entry, now)
    except UNREADABLE:  # A power failure truncated job.json, so its writer no longer exists.
        return True
    except OSError:
        return False


def _alive(pid: int) -> bool:
    import psutil

    try:
        # A zombie counts as dead, because it was killed and only its parent has not noticed yet.
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False

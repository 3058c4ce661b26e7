"""Clean-up of the uploads folder after stopped servers and disconnected clients."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sawtooth.app.jobs.job_files import UNREADABLE, JobOrder
from sawtooth.ingest.schema import DRAFT_PREFIX
from sawtooth.ingest.typed import from_json

ORDER_SECONDS = 60  # a job's order is written within milliseconds after its folder
STALE_UPLOAD_SECONDS = 3600  # an upload without a job after an hour was abandoned


def sweep(uploads: Path, now: float) -> int:
    """Remove leftovers of stopped servers and disconnected clients; return the number of entries."""
    removed = 0
    for entry in uploads.iterdir() if uploads.is_dir() else ():
        if not entry.name.startswith(DRAFT_PREFIX) and _abandoned(
            entry, now
        ):  # drafts are locked: sawtooth.ingest.files removes them
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
            removed += 1
    return removed


def _abandoned(entry: Path, now: float) -> bool:
    """Return whether an entry is abandoned.

    A job folder is abandoned if its server no longer exists. An upload is abandoned if it has not grown for an hour.
    """
    try:
        if entry.name.startswith("job-"):
            if not (entry / "job.json").exists():
                return now - entry.stat().st_mtime > ORDER_SECONDS
            order = from_json((entry / "job.json").read_bytes(), JobOrder)
            return order.server_pid == os.getpid() or not _alive(order.server_pid)
        return now - entry.stat().st_mtime > STALE_UPLOAD_SECONDS
    except UNREADABLE:  # truncated by a power failure: its writer no longer exists
        return True
    except OSError:
        return False


def _alive(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)  # it was killed, but its parent has not noticed yet
    except psutil.Error:
        return False

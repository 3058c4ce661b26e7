"""Start and stop of the sampler process beside a training, and its session as one file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sawtooth.ingest import children
from sawtooth.ingest.json_checksum import without_checksum
from sawtooth.ingest.sampler.segments import join_segments

MAX_STOP_S = 10.0  # A sampler that has not ended after this time is killed. Normally it ends within one sampling period.
# With --push, the sampler first connects to the dashboard, which may take until the request's time limit.
MAX_PUSHING_START_S = 12.0
MAX_START_S = 1.0  # The training waits no longer for the sampler, which starts in 0.2 to 0.5 s.
POLL_PERIOD_S = 0.02  # Pause between two checks of whether the session has begun.


def start_sampler(out: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a sampler that writes a session under ``out`` until it is stopped or this process ends."""
    command = children.command("sawtooth.ingest.sampler", "--out", str(out), "--watch-pid", str(os.getpid()), *options)
    return subprocess.Popen(
        command, env=children.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def wait_for_start(process: Any, live: Path, clock: Callable[[], float] = time.monotonic, limit_s: float = MAX_START_S) -> bool:
    """Wait up to ``limit_s`` for the sampler's session to begin; return False if the sampler ended."""
    deadline = clock() + limit_s
    while clock() < deadline and not any(live.glob("*/meta.json")):
        if process.poll() is not None:
            return False
        time.sleep(POLL_PERIOD_S)
    return True


def why_no_gpu_samples(live: Path) -> str | None:
    """Return why the session under ``live`` has no GPU samples; None if it has."""
    for meta in live.glob("*/meta.json"):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return json.loads(without_checksum(meta.read_bytes())).get("host_only")
    return None


def stop_sampler(process: Any) -> str | None:
    """Stop the sampler; return its last error message, or None."""
    if process.poll() is None:
        process.terminate()  # A background process of a shell ignores SIGINT until it installs a handler.
    try:
        _, stderr = process.communicate(timeout=MAX_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, stderr = process.communicate()
    printed = (stderr or b"").decode(errors="replace").splitlines()
    lines = [line for line in printed if not line.startswith(("sampling into", "watch it at"))]
    if process.returncode == -signal.SIGTERM:
        return "the training ended before the sampler had started"
    return lines[-1].removeprefix("sawtooth sample: ") if lines else None


def stop_and_write(process: Any, live: Path, target: Path) -> str | None:
    """Stop the sampler and write its session into ``target``; return None, or why there is no file."""
    error = stop_sampler(process)
    sessions = sorted(live.glob("*/meta.json"))
    if not sessions:
        return error or "the sampler wrote nothing"
    if not join_segments(sessions[0].parent, target):
        return error or "the sampler took no sample"
    return None

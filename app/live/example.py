"""The bundled recording as a session that has ended: what the Live screen shows before there is one to look at."""

from __future__ import annotations

import tempfile
import threading
from functools import lru_cache
from pathlib import Path

from sawtooth.app.live.sessions import LiveSession
from sawtooth.ingest.sampler.clock import Clock
from sawtooth.ingest.sampler.replay import Replay, ReplayError, read_recording
from sawtooth.ingest.sampler.sinks import SessionSink

AT_ONCE = 1e6  # times as fast as recorded: half a minute takes no time to play


@lru_cache(maxsize=1)
def example(path: Path) -> LiveSession | None:
    """Return a recording's samples as a session, read once and kept in memory; None where the file holds none."""
    try:
        recording = read_recording(path)
    except ReplayError:
        return None
    with tempfile.TemporaryDirectory() as spare:
        sink = SessionSink(Path(spare), recording.duration_ns / 1e9 / len(recording.ticks))
        Replay(recording, [sink], clock=Clock(), stop=threading.Event(), speed=AT_ONCE).run()
        session = LiveSession(next(Path(spare).iterdir()))
        session.look()
    return session if session.last_ns is not None and session.gpus else None

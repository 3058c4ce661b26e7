"""The bundled recording as an ended session, shown on the Live screen if there is no other."""

from __future__ import annotations

import tempfile
import threading
from functools import lru_cache
from pathlib import Path

from sawtooth.app.live.sessions import LiveSession
from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.replay import Replay, ReplayError, read_recording
from sawtooth.ingest.sampler.sinks import SessionSink

FAST_REPLAY_SPEED = 1e6  # Speed-up of the replay. Half a minute of samples is read at once.


@lru_cache(maxsize=1)
def example(path: Path) -> LiveSession | None:
    """Return a recording's samples as a session, cached in memory; None if the file has none."""
    try:
        recording = read_recording(path)
    except ReplayError:
        return None
    with tempfile.TemporaryDirectory() as spare:
        sink = SessionSink(Path(spare), recording.duration_ns / 1e9 / len(recording.ticks))
        Replay(recording, [sink], clock=SamplerClock(), stop=threading.Event(), speed=FAST_REPLAY_SPEED).run()
        session = LiveSession(next(Path(spare).iterdir()))
        session.look()
    return session if session.last_ns is not None and session.gpus else None

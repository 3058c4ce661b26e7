"""Tests that 20 kills of the sampler and the receiver neither lose nor double an acknowledged sample."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.sampler.segments import decode_line
from sawtooth.ingest.telemetry.session import SessionReader
from tests.support.paths import ROOT
from tests.support.push_receiver import PushReceiver
from tests.support.sampler_bench import recorded
from tests.support.sessions import read_session

KILLS = 20


class Receiver:
    """A receiver over real HTTP, written from the protocol's docstring. It remembers what it acknowledged."""

    def __init__(self, state: PushReceiver) -> None:
        self.state = state
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.port = 0
        self._http: ThreadingHTTPServer | None = None

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, body: bytes | None) -> None:
                headers = {name: self.headers[name] or "" for name in ("Authorization", "X-Content-CRC32")}
                status, reply = receiver.state.send(self.command, f"http://x{self.path}", body, headers)
                content = json.dumps(reply).encode()
                if status == 200 and "size" in reply:
                    session = self.path.removeprefix("/api/v1/live/").split("?")[0]
                    segment = int(self.path.split("segment=")[1].split("&")[0])
                    receiver.acknowledged[session, segment] = max(
                        receiver.acknowledged.get((session, segment), 0), reply["size"]
                    )
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, format: str, *args: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def die(self) -> None:
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()


def sampler(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "sawtooth.ingest.sampler", *arguments], env=environment, stderr=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_twenty_kills_lose_or_duplicate_no_acknowledged_sample(tmp_path: Path) -> None:
    source = recorded(tmp_path / "source", 60)
    live, dice, receiver = tmp_path / "live", random.Random(7), Receiver(PushReceiver())
    receiver.start()
    push = ("--push", f"http://127.0.0.1:{receiver.port}", "--token", "T")
    for round_ in range(KILLS):
        child = sampler("--replay", str(source), "--out", str(live), "--loop", *push)
        time.sleep(dice.uniform(0.6, 2.5))
        if round_ % 4 == 1:
            receiver.die()
            time.sleep(dice.uniform(0.1, 0.8))
            receiver.start()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    records = 0
    for folder in sorted(live.iterdir()):
        if not (folder / "meta.json").exists():
            continue  # The process was killed before the session began.
        reader = SessionReader(folder)
        found = reader.poll()
        records += len(found)
        assert reader.damaged == 0 and [r["q"] for r in found] == list(range(len(found)))
        for (session, segment), size in receiver.acknowledged.items():
            if session == folder.name and segment:
                assert (folder / f"samples-{segment:04d}.jsonl").read_bytes()[:size] == bytes(
                    receiver.state.received[session][segment]
                )[:size]
        resumed = sampler("--resume-push", str(folder), *push)
        assert resumed.wait(timeout=30) == 0
        received = receiver.state.received[folder.name]
        lines = (folder / "samples-0001.jsonl").read_bytes() if (folder / "samples-0001.jsonl").exists() else b""
        complete_lines = lines[: lines.rfind(b"\n") + 1]
        assert bytes(received.get(1, b"")) == complete_lines and all(decode_line(line) for line in complete_lines.splitlines())
        if any(r["k"] == "tick" for r in found):
            read_session(folder)
    assert records > 5 * KILLS
    receiver.die()

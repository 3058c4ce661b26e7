"""Tests of pushed sessions whose receiver and sampler are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sawtooth.app.server.push import push_token
from sawtooth.ingest.telemetry.session import SessionReader
from tests.support.paths import ROOT
from tests.support.servers import Server, free_port, start_server, until, without_bundled

pytestmark = pytest.mark.usefixtures("push_threads_end")
KILLS = 6  # Kills of each side. SAWTOOTH_KILLS changes the number.
MIN_LINES = 10  # Each session has more lines than this.


def start_sampler(parent: Path, url: str, token: str) -> subprocess.Popen[bytes]:
    recording = ROOT / "sample_traces" / "resnet_starved" / "nvml.jsonl"
    command = [
        sys.executable,
        "-m",
        "sawtooth.ingest.sampler",
        "--replay",
        str(recording),
        "--loop",
        "--speed",
        "5",
        "--copies",
        "4",
    ]
    return subprocess.Popen(
        [*command, "--out", str(parent), "--push", url, "--token", token], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )  # fmt: skip


def lines_of(session: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in session.glob("samples-*.jsonl"))


def acknowledged(data: Path) -> dict[str, bytes]:
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in (data / "live").glob("*/samples-*.jsonl")}


@pytest.mark.slow
@pytest.mark.browser  # Starts real servers.
def test_killing_receiver_and_sampler_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    """Real processes are killed in turn.

    At the end the dashboard's data equals the samplers' files on disk byte for byte.
    """
    kills = int(os.environ.get("SAWTOOTH_KILLS", KILLS))
    dice, spool, data, port = random.Random(1), tmp_path / "spool", without_bundled(tmp_path / "data"), free_port()
    token, url = push_token(data), f"http://localhost:{port}"
    server: Server = start_server(data, port=port)
    sampler = start_sampler(spool, url, token)
    seen: dict[str, bytes] = {}
    try:
        for _ in range(kills):
            time.sleep(dice.uniform(1.0, 2.5))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            held = acknowledged(data)
            for name, content in seen.items():
                assert held[name].startswith(content)
            seen = held
            server = start_server(data, port=port)
            time.sleep(dice.uniform(1.0, 2.5))
            sampler.kill()
            sampler.wait()
            sampler = start_sampler(spool, url, token)
        until(
            lambda: (
                len(sessions := [*spool.iterdir()]) == kills + 1 and all(lines_of(session) > MIN_LINES for session in sessions)
            )
        )
        sampler.terminate()
        sampler.wait(60)
        sent = {p.name for p in spool.iterdir()}
        for session in sent:
            resume = [
                sys.executable,
                "-m",
                "sawtooth.ingest.sampler",
                "--resume-push",
                str(spool / session),
                "--push",
                url,
                "--token",
                token,
            ]
            subprocess.run(resume, cwd=ROOT, check=True, timeout=60, stderr=subprocess.DEVNULL)
    finally:
        sampler.kill()
        sampler.wait()
        server.stop()
    assert len(sent) == kills + 1
    for session in sent:
        for path in (spool / session).glob("samples-*.jsonl"):
            content = path.read_bytes()
            assert (data / "live" / session / path.name).read_bytes() == content[: content.rfind(b"\n") + 1]
        reader = SessionReader(data / "live" / session)
        numbers = [record["q"] for record in reader.poll()]
        assert reader.meta["session"] == session
        assert reader.damaged == 0
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > MIN_LINES

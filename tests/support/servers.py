"""A server of this app on a free port with its own data folder, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.error import URLError
from urllib.request import Request, urlopen

from sawtooth.app.server.login import session_cookie_of
from sawtooth.app.server.sessions import Sessions, token_hash
from tests.support.paths import ROOT

START_SECONDS = 60  # A cold start on a busy machine takes up to this time.
TOKEN = "a-token-of-the-tests"
LOGGED_IN = {"Authorization": f"Bearer {TOKEN}"}
COOKIE = (session_cookie_of(TOKEN), "a-session-of-the-tests")


@dataclass
class Server:
    url: str
    data: Path
    process: subprocess.Popen[bytes]
    log: Path
    extra: dict[str, str] = field(default_factory=dict)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(
    data: Path, *, port: int | None = None, command: Sequence[str] = (), cwd: Path | None = None, **environment: str
) -> Server:
    """Start the app and wait until it answers.

    The command is ``streamlit run app/main.py``, or ``command`` with ``--port``. The server requires TOKEN. It accepts the
    session of COOKIE, as if a browser of the tests had already logged in. Raises RuntimeError with the server's log if the
    server does not answer.
    """
    port = port or free_port()
    log = data.parent / f"server-{port}.log"
    streamlit = ("-m", "streamlit", "run", str(ROOT / "app" / "main.py"), "--server.port", str(port))
    line = [sys.executable, *(command or streamlit), *(("--port", str(port)) if command else ())]
    env = {**os.environ, "SAWTOOTH_DATA": str(data), "PYTHONPATH": str(ROOT), "SAWTOOTH_TOKEN": TOKEN, **environment}
    _log_in(data)
    with log.open("wb") as output:
        process = subprocess.Popen(
            line, cwd=cwd or data.parent, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    url = f"http://localhost:{port}"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{url}/_stcore/health", timeout=2):
                return Server(url, data, process, log)
        except (URLError, OSError):
            time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"The server did not start:\n{log.read_text(errors='replace')}")


def _log_in(data: Path) -> None:
    """Store the session of COOKIE, unless the folder is not writable."""
    sessions = Sessions(data / "access")
    with mock.patch("sawtooth.app.server.sessions.secrets.token_urlsafe", return_value=COOKIE[1]):
        sessions.open(sessions.new("token", "the tests", "", None, token_hash(TOKEN)))


def fetch(server: Server, path: str, timeout: float = 120) -> bytes:
    """Return the server's answer to a client that is logged in."""
    with urlopen(Request(f"{server.url}{path}", headers=LOGGED_IN), timeout=timeout) as answer:
        return bytes(answer.read())


def without_bundled(data: Path) -> Path:
    """Make a data folder into which the server imports no bundled recording at its first start."""
    data.mkdir()
    (data / "bundled.json").write_text(json.dumps({"imported": [p.name for p in (ROOT / "sample_traces").iterdir()]}))
    return data


def ask(server: Server, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", int(server.url.rsplit(":", 1)[1]), timeout=120)
    connection.request(method, path, body=body, headers={"X-Sawtooth": "1", **LOGGED_IN})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def reports(server: Server) -> dict[str, Any]:
    return {
        run["id"]: ask(server, "GET", f"/api/v1/runs/{run['id']}/report")[1]
        for run in ask(server, "GET", "/api/v1/runs")[1]["runs"]
    }


def start_job(server: Server, trace: Path) -> str:
    upload = ask(server, "PUT", f"/api/v1/uploads?name={trace.name}", trace.read_bytes())[1]["upload"]
    return str(
        ask(server, "POST", "/api/v1/jobs", json.dumps({"files": [{"upload": upload, "name": trace.name}]}).encode())[1]["job"]
    )


def until(found: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(0.05)
    raise AssertionError("the condition did not become true in time")

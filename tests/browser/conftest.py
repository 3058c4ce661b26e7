"""A server on a free port with a data folder of its own, and a Chromium that looks at it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.chromium import executable

ROOT = Path(__file__).parents[2]
START_SECONDS = 60  # a cold start on a busy machine
expect.set_options(timeout=30_000)  # ms; Playwright's 5 s are short where two servers and two browsers share two cores


@dataclass
class Server:
    """A running server: its address, process and data folder."""

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
    """Start the app as ``streamlit run app/main.py`` does, or with ``command`` and ``--port``, and wait until it answers.

    Raises RuntimeError with the server's log when it does not.
    """
    port = port or free_port()
    log = data.parent / f"server-{port}.log"
    streamlit = ("-m", "streamlit", "run", str(ROOT / "app" / "main.py"), "--server.port", str(port))
    line = [sys.executable, *(command or streamlit), *(("--port", str(port)) if command else ())]
    env = {**os.environ, "SAWTOOTH_DATA": str(data), "PYTHONPATH": str(ROOT), **environment}
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


def without_bundled(data: Path) -> Path:
    """Make a data folder into which no bundled recording is read at first start."""
    data.mkdir()
    (data / "bundled.json").write_text(json.dumps({"imported": [p.name for p in (ROOT / "sample_traces").iterdir()]}))
    return data


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = executable()
    if path is None:
        pytest.fail(
            "No Chromium was found. Install one (apt-get install chromium, playwright install chromium) or set SAWTOOTH_CHROMIUM."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the bundled recordings, shared by the tests of a module."""
    running = start_server(tmp_path_factory.mktemp("served") / "data")
    yield running
    running.stop()


class Seen:
    """What a page asked for and complained about."""

    def __init__(self, page: Page) -> None:
        self.urls: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def foreign(self, server_url: str) -> list[str]:
        """Return every address that is not this server's (data: and blob: stay in the browser)."""
        own = (server_url, server_url.replace("http", "ws", 1), "data:", "blob:")
        return [url for url in self.urls if not url.startswith(own)]


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(30_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def seen(page: Page) -> Seen:
    return Seen(page)

"""Tests of login in a real browser and against a real server.

Nothing has to be typed. Neither another user nor a page on another port gets access.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  (http.client needs it when a test runs as a user who cannot read the installation)
import http.client
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from sawtooth.app.server.start import link_to
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.servers import Server, free_port, start_server, until, without_bundled

pytestmark = pytest.mark.browser
NOBODY = 65534
FORGED = """<!doctype html><title>another port</title><body><script>
const seen = {};
const server = location.search.slice(1);
Promise.allSettled([
  fetch(server + "/api/v1/runs", {credentials: "include"}).then(r => r.text()).then(t => seen.read = t, () => 0),
  fetch(server + "/api/v1/jobs", {method: "POST", mode: "no-cors", credentials: "include", body: "{}"}).then(r => seen.sent = r.status, () => 0),
  fetch(server + "/logout", {method: "POST", mode: "no-cors", credentials: "include"}).catch(() => 0),
  new Promise(done => {
    const socket = new WebSocket(server.replace("http", "ws") + "/_stcore/stream", ["streamlit"]);
    socket.onopen = () => { seen.socket = true; done(); };
    socket.onerror = done;
  }),
  new Promise(done => {
    const frame = document.createElement("iframe");
    frame.src = server;
    frame.onload = () => { try { seen.frame = frame.contentDocument && frame.contentDocument.body.innerText; } catch { seen.frame = ""; } done(); };
    document.body.append(frame);
    setTimeout(done, 5000);
  }),
]).then(() => { window.seen = seen; });
</script>"""


def link_of(server: Server) -> str:
    return str(until(lambda: re.search(r"http://\S+launch=\S+", server.log.read_text()), 30)[0])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("how", ["streamlit", "serve", "demo"])
def test_the_printed_link_opens_the_page_once_and_nothing_is_typed(how: str, tmp_path: Path, browser: Browser) -> None:
    command = () if how == "streamlit" else ("-P", "-m", "sawtooth", how, *(("--no-open",) if how == "demo" else ()))
    server = start_server(without_bundled(tmp_path / "data"), command=command, SAWTOOTH_TOKEN="")
    try:
        context, other = browser.new_context(), browser.new_context()
        scriptless = browser.new_context(java_script_enabled=False)
        preview = scriptless.new_page()
        preview.goto(link_of(server))  # Opening the page does not use up the link.
        expect(preview.get_by_role("button", name="Log in")).to_be_visible()
        page = context.new_page()
        page.goto(link_of(server))
        expect(page.get_by_text("Drop torch.profiler traces").first).to_be_visible(timeout=60_000)
        assert "launch" not in page.url
        stranger = other.new_page()
        stranger.goto(link_of(server))
        expect(stranger.get_by_text("This link was used already")).to_be_visible()
        assert not scriptless.cookies()
        preview.goto(link_to(DataFolder(tmp_path / "data"), f"{server.url}/"))
        preview.get_by_role("button", name="Log in").click()
        assert preview.url == f"{server.url}/runs" and scriptless.cookies()
        context.close(), other.close(), scriptless.close()
    finally:
        server.stop()


def test_demo_opens_the_browser_logged_in(tmp_path: Path) -> None:
    """Everybody on the machine can read the opened address as an argument.

    But the address works only once, and only for this user.
    """
    opened, opener = tmp_path / "opened", tmp_path / "browser"
    opener.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    opener.chmod(0o755)
    server = start_server(
        without_bundled(tmp_path / "data"), command=("-P", "-m", "sawtooth", "demo"), SAWTOOTH_TOKEN="", BROWSER=str(opener)
    )
    try:
        path = until(opened.exists, 30) and opened.read_text().strip().partition(f":{server.url.rsplit(':', 1)[1]}")[2]
        form = {"launch": path.partition("launch=")[2], "next": "/"}
        if os.getuid() == 0:
            assert as_nobody(lambda: status_of(server, "/login", form=form)) == 401
        assert status_of(server, path) == 200  # This page only sends the code, so a preview of the link does not consume it.
        assert status_of(server, "/login", form=form) == 303
        assert status_of(server, "/login", form=form) == 401
    finally:
        server.stop()


def status_of(server: Server, path: str, cookie: str = "", form: dict[str, str] | None = None) -> int:
    """Return the status of a request over its own connection. If there is a ``form``, it is posted."""
    address = f"127.0.0.1:{server.url.rsplit(':', 1)[1]}"
    headers = {"Cookie": cookie} if cookie else {}
    if form is not None:
        headers |= {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{address}"}
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET" if form is None else "POST", path, urlencode(form) if form is not None else None, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def as_nobody(act: Callable[[], int]) -> int:
    os.seteuid(NOBODY)
    try:
        return act()
    finally:
        os.seteuid(0)


@contextmanager
def another_port(cookies: list[str]) -> Iterator[str]:
    """Serve a hostile page on another port of localhost. It stores the cookies that it receives."""

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(FORGED.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Hostile)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_page_on_another_port_has_no_access(tmp_path: Path, browser: Browser) -> None:
    server = start_server(without_bundled(tmp_path / "data"), SAWTOOTH_TOKEN="")
    cookies: list[str] = []
    try:
        context = browser.new_context()
        page: Page = context.new_page()
        page.goto(link_of(server).replace("127.0.0.1", "localhost"))
        expect(page.get_by_text("Why does the GPU wait?")).to_be_visible(timeout=60_000)
        with another_port(cookies) as hostile:
            page.goto(f"{hostile}/?{server.url}")
            page.wait_for_function("window.seen", timeout=30_000)
            seen = page.evaluate("window.seen")
        assert not seen.get("read") and not seen.get("socket") and not seen.get("frame"), seen
        assert any("sawtooth_session" in cookie for cookie in cookies)  # Browsers send a cookie to every port of a host.
        page.goto(f"{server.url}/")  # The other server is not logged out either.
        expect(page.get_by_text("Why does the GPU wait?")).to_be_visible(timeout=60_000)
        if os.getuid() == 0:
            assert as_nobody(lambda: status_of(server, "/", cookies[0])) == 401
        context.close()
    finally:
        server.stop()


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
def test_no_secret_can_be_read_by_another_user(tmp_path: Path) -> None:
    data = without_bundled(tmp_path / "data")
    server = start_server(data, command=("-P", "-m", "sawtooth", "serve"), SAWTOOTH_TOKEN="")
    try:
        link_of(server)
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        secrets = [data / "token", data / "push_token", *(data / "access").iterdir()]
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in secrets)
        processes = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert not [path for path in secrets[:2] if path.read_text().split()[0] in processes]
    finally:
        server.stop()


@pytest.mark.slow
def test_https_with_a_self_signed_certificate(tmp_path: Path, browser: Browser) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    create_key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*create_key, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    port = free_port()
    log = tmp_path / "server.log"
    command = [sys.executable, "-P", "-m", "sawtooth", "serve", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SAWTOOTH_DATA": str(without_bundled(tmp_path / "data"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--tls-cert", str(certificate), "--tls-key", str(key)], env=environment, stdout=output, stderr=output
        )
    try:
        link = until(lambda: re.search(r"https://\S+launch=\S+", log.read_text()), 60)[0]
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_text("Why does the GPU wait?")).to_be_visible(timeout=60_000)
        assert [cookie["secure"] for cookie in context.cookies()].count(True) >= 1
        context.close()
    finally:
        process.terminate()
        process.wait(20)

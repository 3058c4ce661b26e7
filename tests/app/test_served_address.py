"""Tests of the server's address: other commands find it, and it is removed with the server."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sawtooth.app import served_address
from sawtooth.app.served_address import ServedAddress, addresses, answering_address, keep_address
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT

KEEP_AND_WAIT = """
import sys
from pathlib import Path
from sawtooth.app.served_address import ServedAddress, keep_address
from sawtooth.ingest.schema import DataFolder
with keep_address(DataFolder(Path(sys.argv[1])), ServedAddress("0.0.0.0", 8642)):
    print("kept", flush=True)
    sys.stdin.read()
"""


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_stcore/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data").create()


@pytest.fixture(params=[False, True], ids=["http", "https"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedAddress]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as listening:
        if request.param:
            listening.socket = with_own_certificate(tmp_path).wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield ServedAddress("0.0.0.0", listening.server_port, request.param)
        listening.shutdown()
        thread.join()


def with_own_certificate(folder: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=elsewhere"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def test_the_health_check_finds_port_and_protocol(
    data: DataFolder, server: ServedAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAWTOOTH_DATA", str(data.root))
    with keep_address(data, server):
        found = answering_address(data, 4.0)
        assert found is not None and (found.port, found.secure) == (server.port, server.secure)
        assert found.url("verdict?run=x") == f"http{'s' * server.secure}://127.0.0.1:{server.port}/verdict?run=x"
        assert served_address.main() == 0
    assert addresses(data) == []
    monkeypatch.setattr(served_address, "DEFAULT_PORT", 1)
    with keep_address(data, ServedAddress(port=1)):  # The file exists, but nothing listens there.
        assert served_address.main() == 1
        assert answering_address(data, 0.5) is None


def test_the_last_server_that_started_comes_first(data: DataFolder) -> None:
    with keep_address(data, ServedAddress(port=8601)), keep_address(data, ServedAddress("::", 8602, secure=True)):
        assert [(item.port, item.url()) for item in addresses(data)] == [
            (8602, "https://[::1]:8602/"),
            (8601, "http://127.0.0.1:8601/"),
        ]


@pytest.mark.skipif(sys.platform == "win32", reason="nothing there tells whether a server still runs")
def test_a_killed_server_leaves_no_address(data: DataFolder) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KEEP_AND_WAIT, str(data.root)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"kept\n"
    assert [item.port for item in addresses(data)] == [8642]
    process.kill()
    process.communicate()
    assert list(data.access.glob("served-*")) and addresses(data) == []
    with keep_address(data, ServedAddress(port=8642)):  # The next server replaces the file.
        assert [item.port for item in addresses(data)] == [8642]


def test_a_foreign_or_missing_file_gives_no_address(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_address.socket, "gethostname", lambda: "a-container")
    with keep_address(data, ServedAddress(port=8601)):
        monkeypatch.setattr(served_address.socket, "gethostname", lambda: "this-machine")
        assert addresses(data) == []
    (data.access / "served-8602.json").write_bytes(b"\xff{")
    assert addresses(data) == []


def test_a_read_only_folder_stores_no_address(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with keep_address(DataFolder(tmp_path / "file"), ServedAddress()):
        assert addresses(DataFolder(tmp_path / "file")) == []

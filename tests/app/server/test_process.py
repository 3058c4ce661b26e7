"""Tests of the running server: constant memory during uploads, and answers meanwhile."""

import http.client
import json
import time
from contextlib import AbstractContextManager, closing

import psutil
import pytest

from sawtooth.ingest.schema import DRAFT_PREFIX
from tests.support.servers import LOGGED_IN, Server, start_server, without_bundled

MEGABYTE = 1 << 20
UPLOAD_MB = 300
GROWTH_MB = 50  # The limit: an upload of any size may cost the server this much memory.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    running = start_server(without_bundled(tmp_path_factory.mktemp("process") / "data"))
    yield running
    running.stop()


def _connection(server: Server) -> AbstractContextManager[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection("localhost", int(server.url.rsplit(":", 1)[1]), timeout=60))


def _health_ms(server: Server) -> float:
    started = time.perf_counter()
    with _connection(server) as connection:
        connection.request("GET", "/_stcore/health")
        assert connection.getresponse().read() == b"ok"
    return (time.perf_counter() - started) * 1000


def test_a_large_upload_needs_little_memory_and_blocks_nobody(server: Server) -> None:
    process = psutil.Process(server.process.pid)
    block = bytes(MEGABYTE)
    before = peak = process.memory_info().rss
    slowest = 0.0
    with _connection(server) as connection:
        connection.putrequest("PUT", "/api/v1/uploads?name=large.json")
        connection.putheader("Content-Length", str(UPLOAD_MB * MEGABYTE))
        connection.putheader("X-Sawtooth", "1")
        connection.putheader("Authorization", LOGGED_IN["Authorization"])
        connection.endheaders()
        for sent in range(UPLOAD_MB):
            connection.send(block)
            if sent % 25 == 0:
                slowest = max(slowest, _health_ms(server))
                peak = max(peak, process.memory_info().rss)
        answer = json.loads(connection.getresponse().read())
    peak = max(peak, process.memory_info().rss)
    assert answer["bytes"] == UPLOAD_MB * MEGABYTE
    assert (peak - before) / MEGABYTE < GROWTH_MB
    assert slowest < 1000
    (server.data / "uploads" / answer["upload"]).unlink()


def test_a_client_that_disappears_leaves_no_files(server: Server) -> None:
    uploads = server.data / "uploads"
    with _connection(server) as connection:
        connection.putrequest("PUT", "/api/v1/uploads?name=half.json")
        connection.putheader("Content-Length", str(50 * MEGABYTE))
        connection.putheader("X-Sawtooth", "1")
        connection.putheader("Authorization", LOGGED_IN["Authorization"])
        connection.endheaders()
        connection.send(bytes(5 * MEGABYTE))
        assert _until(lambda: any(uploads.glob(f"{DRAFT_PREFIX}*")))
    assert _until(lambda: not any(uploads.glob(f"{DRAFT_PREFIX}*")))


def test_two_servers_share_a_data_folder(server: Server) -> None:
    other = start_server(server.data)
    try:
        assert _health_ms(other) < 5000
        assert _health_ms(server) < 5000
    finally:
        other.stop()


def test_files_of_the_server_cannot_be_requested(server: Server) -> None:
    for path in (
        "/app/static/../main.py",
        "/static/../../app/main.py",
        "/media/../../../etc/passwd",
        "/component/x/../../main.py",
        "//etc/passwd",
    ):
        with _connection(server) as connection:
            connection.request("GET", path, headers=LOGGED_IN)
            body = connection.getresponse().read()
        assert b"root:" not in body
        assert b"import streamlit" not in body


def _until(condition, seconds: float = 20) -> bool:
    """Wait for another process. Tests of this module wait for nothing else."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False

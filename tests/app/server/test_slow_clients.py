"""Tests of clients that hold connections or fill the log."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
import uvicorn
from starlette.applications import Starlette

from sawtooth.app.server.log_lines import RepeatFilter
from sawtooth.app.server.slow_clients import (
    CROWDED_CONNECTIONS,
    CROWDED_HEAD_SECONDS,
    HEAD_SECONDS,
    end_waiting,
    running_servers,
)
from tests.support.servers import start_server, without_bundled


class Connection:
    """A connection like uvicorn's, with its current answer; None before the first request."""

    def __init__(self, answered: bool | None = None) -> None:
        self.cycle = None if answered is None else SimpleNamespace(response_complete=answered)
        self.transport = SimpleNamespace(close=lambda: setattr(self, "closed", True))
        self.closed = False


def test_a_request_whose_head_never_ends_loses_its_connection():
    silent, idle, busy, socket_ = Connection(), Connection(True), Connection(False), SimpleNamespace()
    everyone = [silent, idle, busy, socket_]
    waiting = end_waiting(everyone, {}, 100.0)
    assert waiting == {silent: (None, 100.0), idle: (idle.cycle, 100.0)}
    waiting = end_waiting(everyone, waiting, 100.0 + HEAD_SECONDS - 1)
    idle.cycle = SimpleNamespace(response_complete=False)  # The next request arrived.
    assert end_waiting(everyone, waiting, 100.0 + HEAD_SECONDS) == {}
    assert (silent.closed, idle.closed, busy.closed) == (True, False, False)


def test_log_lines_caused_from_outside_are_limited_and_counted() -> None:
    now, lines = [0.0], []
    logger = logging.getLogger("test of lines")
    logger.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    logger.addFilter(RepeatFilter(lambda: now[0]))
    for _ in range(1000):
        logger.warning("Invalid HTTP request received.")
    logger.error("a bug"), logger.error("a bug")
    now[0] = 11.0
    logger.warning("Invalid HTTP request received.")
    assert lines == [
        "Invalid HTTP request received.",
        "a bug",
        "a bug",
        "Invalid HTTP request received. (999 more since the last such line)",
    ]


def test_idle_connections_close_soon_if_many_are_open():
    silent, busy = [Connection() for _ in range(CROWDED_CONNECTIONS)], Connection(False)
    waiting = end_waiting([*silent, busy], {}, 100.0)
    assert not any(one.closed for one in silent)
    assert end_waiting([*silent, busy], waiting, 100.0 + CROWDED_HEAD_SECONDS) == {}
    assert all(one.closed for one in silent) and not busy.closed


def test_a_connection_that_asks_again_and_again_is_never_closed():
    polling, waiting = Connection(True), {}
    for second in range(0, 3 * int(HEAD_SECONDS), 5):
        polling.cycle = SimpleNamespace(response_complete=True)  # Another request was answered between two checks.
        waiting = end_waiting([polling], waiting, float(second))
    assert not polling.closed


@pytest.mark.parametrize("protocol", ["auto", "h11"])
def test_uvicorn_stores_its_connections_in_the_expected_place(protocol):
    # The attributes that `end_waiting` reads are not documented. This test fails if an upgrade moves them.
    async def held_open() -> bool:
        server = uvicorn.Server(uvicorn.Config(Starlette(), port=0, http=protocol, lifespan="off", log_level="error"))
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        assert server in running_servers()
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        while not server.server_state.connections:
            await asyncio.sleep(0.01)
        waiting = end_waiting(server.server_state.connections, {}, 0.0)
        assert len(waiting) == 1
        end_waiting(server.server_state.connections, waiting, HEAD_SECONDS)
        try:
            closed = await asyncio.wait_for(reader.read(1), 10) == b""
        except ConnectionResetError:  # The server had not read the half head yet.
            closed = True
        writer.close()
        server.should_exit = True
        await running
        return closed

    assert asyncio.run(asyncio.wait_for(held_open(), 30))


@pytest.mark.slow
def test_five_hundred_slow_heads_do_not_stop_the_server(tmp_path):
    server = start_server(without_bundled(tmp_path / "data"))
    place = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    try:
        held = []
        for _ in range(500):
            held.append(socket.create_connection(place, timeout=20))
            held[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with urlopen(f"{server.url}/_stcore/health", timeout=20) as answer:
            assert answer.read() == b"ok"
        deadline = time.monotonic() + HEAD_SECONDS + 30
        held[0].settimeout(HEAD_SECONDS + 30)
        assert held[0].recv(1) == b"" and time.monotonic() < deadline  # The server closed it.
    finally:
        for one in held:
            one.close()
        server.stop()

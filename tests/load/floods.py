"""Flood a server and measure the time of an API call and the growth of memory and threads.

    python -m tests.load.floods [NAME …]

- ``nothing``: no flood; measures what else this machine does
- ``reruns``: one socket sends 3,000 reruns at once
- ``herd``: 50 sockets send 60 reruns each
- ``deaf``: 100 sockets open a page and do not read
- ``frames``: 20 sockets send all but the end of a frame of 49 MB
- ``pushes``: a client with the push token fills Live while three pages look at it
- ``trickles``: bodies and heads come byte by byte

The server is this program's own. The exit code is 1 if a figure is above its bound.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg

from tests.load import pushes
from tests.support.servers import LOGGED_IN, Server, fetch, start_server

SLOWEST_CALL_S = 1.0
GROWTH_MB = 300.0
MAX_THREADS = 250
THREADS_AFTER = 60
CONNECTIONS_AFTER = 5
AFTER_SECONDS = 60.0  # After this time, the server must serve everything again.
CALL_EVERY_S = 0.1


def rerun(page: str = "") -> bytes:
    """Return a message that asks for a page, by default the Runs page."""
    message = BackMsg()
    message.rerun_script.page_name = page
    message.rerun_script.query_string = ""
    message.rerun_script.context_info.url = "http://localhost/"
    return message.SerializeToString()


def frame(payload: bytes, length: int | None = None) -> bytes:
    """Return a WebSocket frame from a client; ``length`` is the length in its head."""
    size = len(payload) if length is None else length
    head = bytes([0x82]) + (
        bytes([0x80 | size]) if size < 126 else bytes([0xFE]) + struct.pack(">H", size) if size < 65536 else bytes([0xFF]) + struct.pack(">Q", size)
    )  # fmt: skip
    return head + b"\0\0\0\0" + payload  # A mask of zeros changes nothing.


async def opened(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a WebSocket by hand, so that it reads only when asked to."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /_stcore/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: streamlit\r\n"
        f"Authorization: {LOGGED_IN['Authorization']}\r\n\r\n".encode()
    )
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    return reader, writer


async def _reading(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def send(url: str, sockets: int, messages: bytes, *, read: bool, seconds: float = 10.0) -> None:
    """Open sockets, send ``messages`` on each, and keep them open for ``seconds``."""

    async def one() -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await opened(url)
            reads = asyncio.create_task(_reading(reader)) if read else None
            try:
                writer.write(messages)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(writer.drain(), seconds)
                await asyncio.sleep(seconds)
            finally:
                if reads is not None:
                    reads.cancel()
                writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(sockets)))


async def pushed(url: str, token: str) -> None:
    """Push a flood while pages show Live."""
    await asyncio.gather(send(url, 3, frame(rerun("live")) * 30, read=True, seconds=pushes.SECONDS), pushes.push(url, token))


FLOODS: dict[str, Callable[[str, str], Awaitable[None]]] = {
    "nothing": lambda url, _: asyncio.sleep(10),
    "reruns": lambda url, _: send(url, 1, frame(rerun()) * 3000, read=True),
    "herd": lambda url, _: send(url, 50, frame(rerun()) * 60, read=True),
    "deaf": lambda url, _: send(url, 100, frame(rerun()), read=False, seconds=30),
    "frames": lambda url, _: send(url, 20, frame(bytes(49 << 20), 50 << 20), read=True),
    "pushes": pushed,
    "trickles": pushes.trickle,
}


@dataclass
class Figures:
    """The cost of a flood.

    During the flood: the slowest API call (s), refused calls, and the largest memory (MB) and number of threads. A minute
    later: memory, threads, connections, and the time of a call.
    """

    slowest: float = 0.0
    refused: int = 0
    growth: float = 0.0
    threads: int = 0
    left: float = 0.0
    left_threads: int = 0
    left_connections: int = 0
    last: float = 0.0
    problem: str = ""

    @property
    def fine(self) -> bool:
        most = self.slowest <= SLOWEST_CALL_S and self.growth <= GROWTH_MB and self.threads <= MAX_THREADS
        back = self.left_threads <= THREADS_AFTER and self.left_connections <= CONNECTIONS_AFTER and self.last <= SLOWEST_CALL_S
        return most and back and not self.refused and not self.problem


def measured(server: Server, flood: Callable[[str, str], Awaitable[None]]) -> Figures:
    """Flood the server and call its API meanwhile."""
    process, done = psutil.Process(server.process.pid), threading.Event()
    before, figures = process.memory_info().rss, Figures()

    def flooding() -> None:
        try:
            asyncio.run(flood(server.url, pushes.token_of(server.data)))  # type: ignore[arg-type]
        except Exception as error:  # If the flood did not reach the server, the result means nothing.
            figures.problem = repr(error)
        done.set()

    threading.Thread(target=flooding, daemon=True).start()
    while not done.wait(CALL_EVERY_S):
        started = time.perf_counter()
        try:
            fetch(server, "/api/v1/runs", timeout=30)
        except OSError:
            figures.refused += 1
        figures.slowest = max(figures.slowest, time.perf_counter() - started)
        figures.growth = max(figures.growth, (process.memory_info().rss - before) / 1e6)
        figures.threads = max(figures.threads, process.num_threads())
    deadline = time.monotonic() + AFTER_SECONDS
    while time.monotonic() < deadline and (process.num_threads() > THREADS_AFTER or _connections(process) > CONNECTIONS_AFTER):
        time.sleep(1)
    figures.left, figures.left_threads = (process.memory_info().rss - before) / 1e6, process.num_threads()
    figures.left_connections = _connections(process)
    started = time.perf_counter()
    fetch(server, "/api/v1/runs", timeout=30)
    figures.last = time.perf_counter() - started
    return figures


def _connections(process: psutil.Process) -> int:
    return sum(connection.status != psutil.CONN_LISTEN for connection in process.net_connections("tcp"))


def main(names: list[str]) -> int:
    """Run the floods one after the other, each against a fresh server."""
    fine = True
    for name in names or list(FLOODS):
        with tempfile.TemporaryDirectory(prefix="sawtooth-floods-") as place:
            server = start_server(Path(place) / "data")
            try:
                time.sleep(5)  # The bundled recordings are read.
                f = measured(server, FLOODS[name])
            finally:
                server.stop()
        fine = fine and f.fine
        print(
            f"{name:8} slowest API call {f.slowest:.2f} s, {f.refused} refused, memory +{f.growth:.0f} MB, {f.threads} threads; "
            f"afterwards {f.left:+.0f} MB, {f.left_threads} threads, {f.left_connections} connections, a call {f.last:.2f} s; load {os.getloadavg()[0]:.0f}{f.problem and '; NO FLOOD: ' + f.problem}",
            flush=True,
        )
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Floods of WebSockets against a server of its own: how long an API call takes meanwhile, and what memory and threads grow by.

    python -m tests.load.floods [NAME …]

``reruns``: one socket sends 3,000 reruns at once; ``herd``: 50 sockets send 60 each; ``deaf``: 100 sockets open a page and do not read;
``frames``: 20 sockets send all but the end of a frame of 49 MB. Exits with 1 where a figure is above its bound.
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
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg

from tests.support.servers import LOGGED_IN, Server, fetch, start_server

SLOWEST_CALL_S = 1.0
GROWTH_MB = 300.0
MOST_THREADS = 250
AFTER_SECONDS = 60.0  # all is back by then
CALL_EVERY_S = 0.1


def rerun() -> bytes:
    """Return a message that asks for the Runs page."""
    message = BackMsg()
    message.rerun_script.query_string = ""
    message.rerun_script.context_info.url = "http://localhost/"
    return message.SerializeToString()


def frame(payload: bytes, length: int | None = None) -> bytes:
    """Return a WebSocket frame from a client; ``length`` is what its head claims."""
    size = len(payload) if length is None else length
    head = bytes([0x82]) + (
        bytes([0x80 | size]) if size < 126 else bytes([0xFE]) + struct.pack(">H", size) if size < 65536 else bytes([0xFF]) + struct.pack(">Q", size)
    )  # fmt: skip
    return head + b"\0\0\0\0" + payload  # a mask of zeros changes nothing


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


FLOODS: dict[str, Callable[[str], Awaitable[None]]] = {
    "reruns": lambda url: send(url, 1, frame(rerun()) * 3000, read=True),
    "herd": lambda url: send(url, 50, frame(rerun()) * 60, read=True),
    "deaf": lambda url: send(url, 100, frame(rerun()), read=False, seconds=30),
    "frames": lambda url: send(url, 20, frame(bytes(49 << 20), 50 << 20), read=True),
}


def measured(server: Server, flood: Callable[[str], Awaitable[None]]) -> tuple[float, float, int, float, int]:
    """Flood the server; return the slowest API call (s), the growth in memory (MB), the most threads, and memory and threads afterwards."""
    process = psutil.Process(server.process.pid)
    before, slowest, memory, threads = process.memory_info().rss, 0.0, 0, 0
    done = threading.Event()

    def flooding() -> None:
        with contextlib.suppress(Exception):
            asyncio.run(flood(server.url))  # type: ignore[arg-type]
        done.set()

    threading.Thread(target=flooding, daemon=True).start()
    while not done.wait(CALL_EVERY_S):
        started = time.perf_counter()
        fetch(server, "/api/v1/runs")
        slowest = max(slowest, time.perf_counter() - started)
        memory, threads = max(memory, process.memory_info().rss), max(threads, process.num_threads())
    deadline = time.monotonic() + AFTER_SECONDS
    while process.num_threads() > 60 and time.monotonic() < deadline:
        time.sleep(1)
    after = process.memory_info().rss
    return slowest, (memory - before) / 1e6, threads, (after - before) / 1e6, process.num_threads()


def main(names: list[str]) -> int:
    """Run the floods one after the other, each against a fresh server."""
    failed = 0
    for name in names or list(FLOODS):
        with tempfile.TemporaryDirectory(prefix="sawtooth-floods-") as place:
            server = start_server(Path(place) / "data")
            try:
                time.sleep(5)  # the bundled recordings are read
                slowest, growth, threads, after, left = measured(server, FLOODS[name])
            finally:
                server.stop()
        failed += slowest > SLOWEST_CALL_S or growth > GROWTH_MB or threads > MOST_THREADS
        print(
            f"{name:8} slowest API call {slowest:.2f} s, memory +{growth:.0f} MB, {threads} threads; afterwards {after:+.0f} MB, {left} threads"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Floods by a client with a push token, and by slow senders: parts of ``tests.load.floods``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import zlib
from pathlib import Path
from urllib.parse import urlsplit

from sawtooth.ingest.sampler.segments import encode_line
from tests.support.servers import LOGGED_IN

SECONDS = 30.0
LARGE_SESSIONS, SMALL_SESSIONS, PUSHERS, ASKERS = 303, 2000, 40, 20
BATCH_BYTES = 900_000
HEADS, TRICKLES = 1500, 60
NANOSECOND_APART = 1_800_000_000_000_000_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def meta(session: str, size: int) -> bytes:
    """Return a session's meta.json of about ``size`` bytes: nested lists and a name without an end."""
    about = {"v": 1, "session": session, "host": "h" * 64, "started_m": 0, "started_w": NANOSECOND_APART, "interval_ns": 10**8}
    nested = "[" * 400 + "]" * 400
    filler = ",".join([nested] * max(0, (size // 2) // (len(nested) + 1)))
    devices = [{"device": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 1e11}]
    text = json.dumps({**about, "columns": ["util_pct", "power_w"], "devices": devices, "name": "n" * (size // 2)})
    return f'{text[:-1]}, "more": [{filler}]}}'.encode()


def batch(first: int) -> bytes:
    """Return ticks that are one nanosecond apart.

    A clock that hardly moves keeps all of them within the shown window.
    """
    lines, size, at = [], 0, first
    while size < BATCH_BYTES:
        line = encode_line({"k": "tick", "q": at, "m": at, "w": NANOSECOND_APART + at, "g": [[50, 300.0]]})
        lines.append(line)
        size, at = size + len(line), at + 1
    return b"".join(lines)


async def asked(streams: Streams, method: str, path: str, token: str, host: str, body: bytes = b"") -> int:
    """Send a request on an open connection and return the status."""
    reader, writer = streams
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}X-Content-CRC32: {zlib.crc32(body):08x}\r\n\r\n".encode() + body)
    await writer.drain()
    answer = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    await reader.readexactly(length)
    return int(answer.split()[1])


async def push(url: str, token: str) -> None:
    """Push sessions as fast as they are accepted, and query the stored state.

    There are sessions with metadata that is slow to read, thousands of small ones, and samples.
    """
    parts, end, dense = urlsplit(url), time.monotonic() + SECONDS, batch(0)
    names = iter([*(("large", i) for i in range(LARGE_SESSIONS)), *(("small", i) for i in range(SMALL_SESSIONS))])

    async def connected() -> Streams:
        return await asyncio.open_connection("127.0.0.1", parts.port)

    async def pushes(number: int) -> None:
        streams, segment = await connected(), 1
        while time.monotonic() < end:
            kind, name = next(names, ("dense", number % 8))
            session = f"{kind}-{name}"
            if kind != "dense":
                content = meta(session, 120_000 if kind == "large" else 200)
                await asked(streams, "POST", f"/api/v1/live/{session}?segment=0&offset=0", token, parts.netloc, content)
                tick = encode_line({"k": "tick", "q": 0, "m": 0, "w": NANOSECOND_APART, "g": [[50, 300.0]]})
                await asked(streams, "POST", f"/api/v1/live/{session}?segment=1&offset=0", token, parts.netloc, tick)
                continue
            if segment == 1:
                await asked(
                    streams, "POST", f"/api/v1/live/{session}?segment=0&offset=0", token, parts.netloc, meta(session, 200)
                )
            await asked(streams, "POST", f"/api/v1/live/{session}?segment={segment}&offset=0", token, parts.netloc, dense)
            segment += 1

    async def asks(number: int) -> None:
        streams = await connected()
        while time.monotonic() < end:
            await asked(streams, "GET", f"/api/v1/live/dense-{number % 8}", token, parts.netloc)

    jobs = [*(pushes(i) for i in range(PUSHERS)), *(asks(i) for i in range(ASKERS))]
    await asyncio.gather(*(_quietly(job) for job in jobs))


async def trickle(url: str, token: str) -> None:
    """Hold connections with endless headers, and upload places with bodies sent byte by byte."""
    parts, end = urlsplit(url), time.monotonic() + SECONDS
    body = f"Host: {parts.netloc}\r\nX-Sawtooth: 1\r\nContent-Length: 1000000\r\n"
    push = f"POST /api/v1/live/slow?segment=0&offset=0 HTTP/1.1\r\n{body}Authorization: Bearer {token}\r\n\r\n"
    upload = f"PUT /api/v1/uploads?name=slow HTTP/1.1\r\n{body}Authorization: {LOGGED_IN['Authorization']}\r\n\r\n"

    async def drips(start: str) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", parts.port)
        writer.write(start.encode())
        while time.monotonic() < end:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(1)
        writer.close()

    starts = [*[push] * TRICKLES, *[upload] * TRICKLES, *["GET / HTTP/1.1\r\nX-A: "] * HEADS]
    await asyncio.gather(*(_quietly(drips(start)) for start in starts))


async def _quietly(job: object) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
        await job  # type: ignore[misc]


def token_of(data: Path) -> str:
    return (data / "push_token").read_text().split()[0]

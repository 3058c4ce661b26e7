"""The whole body of a request, read within bounds of size and time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request


class BodyTooLongError(Exception):
    """A body is longer than its reader takes."""


async def whole_body(request: Request, most_bytes: int, seconds: float, idle_seconds: float | None = None) -> bytes:
    """Return the body once it has come.

    Raises BodyTooLongError, TimeoutError where it takes longer than ``seconds`` or nothing comes for ``idle_seconds``, and
    ClientDisconnect.
    """
    body = bytearray()
    stream = request.stream().__aiter__()
    async with asyncio.timeout(seconds):
        while True:
            try:
                # not wait_for: before Python 3.12 it loses the outer timeout where a chunk comes in the same moment
                async with asyncio.timeout(idle_seconds):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                return bytes(body)
            body += chunk
            if len(body) > most_bytes:
                raise BodyTooLongError

"""Read the complete body of a request, with limits on size and time."""

from __future__ import annotations

import asyncio

from starlette.requests import Request


class BodyTooLongError(Exception):
    """A body is longer than its reader accepts."""


async def whole_body(request: Request, max_bytes: int, seconds: float, idle_seconds: float | None = None) -> bytes:
    """Return the complete body.

    Raises BodyTooLongError, ClientDisconnect, or TimeoutError if reading takes longer than ``seconds`` or nothing arrives for
    ``idle_seconds``.
    """
    body = bytearray()
    stream = request.stream().__aiter__()
    async with asyncio.timeout(seconds):
        while True:
            try:
                # Before Python 3.12, wait_for would lose the outer timeout if a chunk arrives at the same moment.
                async with asyncio.timeout(idle_seconds):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                return bytes(body)
            body += chunk
            if len(body) > max_bytes:
                raise BodyTooLongError

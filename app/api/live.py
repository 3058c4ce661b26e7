"""``/api/v1/live/<session>``: receive pushed samples, and acknowledge them when they are on the disk.

The protocol is described in ``sawtooth.ingest.sampler``.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sawtooth.app.api.answers import answer_errors, json, refusal
from sawtooth.app.server.process import push_threads
from sawtooth.app.server.request_body import BodyTooLongError, whole_body
from sawtooth.app.settings import Settings, settings
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.receiver import MAX_BODY_BYTES, Receiver, RefusedError
from sawtooth.ingest.telemetry.session import is_session_id

IDLE_SECONDS = 20  # If no packet of a batch arrives for this time, its sender has disconnected.
BODY_SECONDS = 60  # At 140 kbit/s, 1 MiB takes this long.
BATCHES_PER_SECOND = 40  # 40 MB/s after a disconnection. A sampler usually sends two batches per second.
MAX_BURST = 80  # A sampler may send the batches of two seconds at once.
CRC = re.compile(r"[0-9a-fA-F]{8}")


class BatchRateLimit:
    """A limit on batches per second for each session: ``rate`` in the long run, and ``burst`` at once."""

    MAX_SESSIONS = 4096  # Sessions whose batches are counted.

    def __init__(self, rate: float = BATCHES_PER_SECOND, burst: float = MAX_BURST) -> None:
        self.rate, self.burst = rate, burst
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, session: str, now: float) -> bool:
        """Return whether another batch may come now, and count it."""
        if len(self._left) > self.MAX_SESSIONS:
            self._left = {name: bucket for name, bucket in self._left.items() if now - bucket[1] < self.burst / self.rate}
        tokens, last = self._left.get(session, (self.burst, now))
        tokens = min(self.burst, tokens + (now - last) * self.rate)
        self._left[session] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1


rate_limit = BatchRateLimit()
P = ParamSpec("P")
T = TypeVar("T")


async def _on_push_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call that waits for the disk on one of the threads for pushes."""
    return await asyncio.get_running_loop().run_in_executor(push_threads(), lambda: call(*args, **kwargs))


def receiver() -> Receiver:
    """Return this server's receiver."""
    return _receiver(settings())


@lru_cache(maxsize=4)
def _receiver(options: Settings) -> Receiver:
    return Receiver(options.data.create().live, reserve_bytes=options.disk_reserve_bytes)


@answer_errors
async def show(request: Request) -> Response:
    """Return the received bytes per segment: ``{"segments": {"0": 812, "1": 40960}}``."""
    received_ns = time.time_ns()
    if not rate_limit.allows(_session(request), time.monotonic()):
        return _too_many()
    sizes = await _on_push_thread(receiver().stored_sizes, _session(request))
    return _with_times({"segments": {str(segment): size for segment, size in sizes.items()}}, 200, received_ns)


@answer_errors
async def push(request: Request) -> Response:
    """Receive a batch: ``?segment=N&offset=K``, raw bytes, ``X-Content-CRC32``.

    Returns 200 or 409 with ``{"size": …}``.
    """
    received_ns = time.time_ns()
    session = _session(request)
    try:
        segment, offset = (_number(request, name) for name in ("segment", "offset"))
        if not rate_limit.allows(session, time.monotonic()):
            return _too_many()
        body = await whole_body(request, MAX_BODY_BYTES, BODY_SECONDS, IDLE_SECONDS)
        checksum = request.headers.get("x-content-crc32", "")
        if not CRC.fullmatch(checksum) or int(checksum, 16) != zlib.crc32(body):
            raise RefusedError(400, "The batch was damaged on its way, because its CRC-32 does not match.")
        result = await _on_push_thread(receiver().append, session, segment, offset, body)
        clock = request.headers.get("x-clock-offset-ns", "")
        if result.stored and re.fullmatch(r"-?\d{1,18}", clock):
            await _on_push_thread(receiver().note_clock, session, int(clock))
    except RefusedError as error:
        return refusal(error.status, str(error))
    except BodyTooLongError:
        return refusal(413, "The batch is larger than 1 MiB. Send smaller batches.")
    except TimeoutError:
        return refusal(
            408, f"The batch paused for more than {IDLE_SECONDS} seconds, or took more than {BODY_SECONDS} seconds in all."
        )
    except ClientDisconnect:
        return refusal(400, "The connection closed before the end of the batch.")
    return _with_times({"size": result.size}, 200 if result.stored else 409, received_ns)


def _session(request: Request) -> str:
    """Return the session in the address; raises NotFoundError for an invalid id."""
    session = str(request.path_params["session"])
    if not is_session_id(session):
        raise NotFoundError("This is not a session id.")
    return session


def _too_many() -> Response:
    return refusal(
        429, "This session sends too many batches per second. Wait a second and send it again.", "busy", {"retry-after": "1"}
    )


def _with_times(content: dict[str, object], status: int, received_ns: int) -> Response:
    return json({**content, "received_ns": received_ns, "sent_ns": time.time_ns()}, status)


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise RefusedError(400, f"The batch needs ?{name}=, a number.")
    return int(text)

"""Client of the push protocol, which the docstring of ``sawtooth.ingest.sampler`` describes."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.segments import find_segments, segment_name

BATCH_BYTES = 1 << 20  # The server's limit for one POST.
FIRST_WAIT_S = 1.0  # Wait after the first failed request. It doubles with each further failure.
MAX_WAIT_S = 60.0  # Longest wait after a failed request.
# Time between checks for new synced lines. Lines are synced once a second, so data on screen is one to two seconds old.
IDLE_S = 0.25
DRAIN_S = 30.0  # Time limit for sending after the last sample. The user can send the rest with --resume-push.
MAX_SESSION_BYTES = 512_000_000  # If a session is larger, the oldest fully acknowledged segments are deleted.
FATAL_STATUSES = frozenset({400, 401, 403, 404, 413})  # After one of these, an immediate retry does not help.
TIMEOUT_S = 10.0  # A request that takes longer has failed.

Send = Callable[[str, str, bytes | None, Mapping[str, str]], tuple[int, dict[str, Any]]]


def send_http(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Send one request; return the status (0: server not reached) and the reply's JSON object."""
    request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return reply.status, _json_object(reply.read(1 << 20))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _json_object(error.read(1 << 16))
    except (OSError, ValueError):
        return 0, {}


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def available_on_disk(folder: Path) -> dict[int, int]:
    """Return the bytes of complete lines in each segment of a finished session (0 is meta.json)."""
    sizes = {0: (folder / "meta.json").stat().st_size}
    for number, path in find_segments(folder).items():
        sizes[number] = path.read_bytes().rfind(b"\n") + 1
    return sizes


@dataclass
class PushState:
    """State of a push: the last error, and the clock offset (server minus client)."""

    trouble: str | None = None
    offset_ns: int | None = None


class Push:
    """Sends one session folder. ``available`` returns the bytes of each segment that are synced to disk."""

    def __init__(
        self,
        folder: Path,
        url: str,
        token: str,
        *,
        available: Callable[[], dict[int, int]],
        clock: SamplerClock,
        send: Send = send_http,
    ) -> None:
        self.folder = folder
        self.base = f"{url.rstrip('/')}/api/v1/live/{quote(folder.name, safe='')}"
        self.state = PushState()
        self._available = available
        self._clock = clock
        self._send = send
        self._token = token
        self._acked: dict[int, int] | None = None
        self._wait_s = FIRST_WAIT_S

    def step(self) -> float:
        """Send at most one request; return the seconds to wait before the next (0 if more can be sent now)."""
        if self._acked is None:
            return self._resume()
        for segment, size in sorted(self._available().items()):
            offset = self._acked.get(segment, 0)
            if offset < size:
                return self._send_part(segment, offset, size)
        return IDLE_S

    def drained(self) -> bool:
        """Return whether the server has acknowledged all available bytes."""
        acked = self._acked
        return acked is not None and all(acked.get(segment, 0) >= size for segment, size in self._available().items())

    def run(self, stop: threading.Event) -> None:
        """Send until ``stop`` is set, and then the rest for at most DRAIN_S seconds."""
        while not stop.is_set():
            self._clock.wait(stop, self.step())
        never_set = threading.Event()
        deadline_ns = self._clock.monotonic_ns() + int(DRAIN_S * 1e9)
        while not self.drained() and self._clock.monotonic_ns() < deadline_ns:
            self._clock.wait(never_set, min(self.step(), 5.0))

    def _resume(self) -> float:
        status, reply = self._request("GET", self.base, None, {})
        segments = reply.get("segments")
        if status != 200 or not isinstance(segments, dict):
            return self._failed(status)
        self._acked = {int(n): int(size) for n, size in segments.items()}
        return self._succeeded()

    def _send_part(self, segment: int, offset: int, size: int) -> float:
        assert self._acked is not None
        path = self.folder / ("meta.json" if segment == 0 else segment_name(segment))
        try:
            with path.open("rb") as file:
                file.seek(offset)
                body = file.read(min(BATCH_BYTES, size - offset))
        except OSError as error:
            self.state.trouble = f"{path.name} cannot be read: {error.strerror}"
            return MAX_WAIT_S
        if segment:
            complete = body.rfind(b"\n") + 1
            if not complete and len(body) < BATCH_BYTES:
                return IDLE_S  # The last line is not complete yet.
            body = body[:complete] if complete else body
        headers = {"Content-Type": "application/octet-stream", "X-Content-CRC32": f"{zlib.crc32(body):08x}"}
        status, reply = self._request("POST", f"{self.base}?segment={segment}&offset={offset}", body, headers)
        server_size = reply.get("size")
        if status in (200, 409) and isinstance(server_size, int) and server_size >= 0:
            # After 409, the server has more bytes than expected, or fewer bytes if it lost its disk.
            self._acked[segment] = server_size
            if server_size > size:
                self.state.trouble = f"the dashboard has another session called {self.folder.name}"
                return MAX_WAIT_S
            self._trim()
            return self._succeeded() if status == 200 else self._failed(status)
        return self._failed(status)

    def _request(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        headers["Authorization"] = f"Bearer {self._token}"
        if self.state.offset_ns is not None:
            headers["X-Clock-Offset-Ns"] = str(self.state.offset_ns)
        sent_ns = self._clock.wall_ns()
        status, reply = self._send(method, url, body, headers)
        received_ns = self._clock.wall_ns()
        server_received_ns, server_sent_ns = reply.get("received_ns"), reply.get("sent_ns")
        if isinstance(server_received_ns, int) and isinstance(server_sent_ns, int):
            self.state.offset_ns = ((server_received_ns - sent_ns) + (server_sent_ns - received_ns)) // 2
        return status, reply

    def _succeeded(self) -> float:
        self._wait_s, self.state.trouble = FIRST_WAIT_S, None
        return 0.0

    def _failed(self, status: int) -> float:
        reasons = {
            0: "the dashboard cannot be reached",
            401: "the dashboard does not accept the token",
            409: "the dashboard has a different part of the session than this host expected",
            507: "the dashboard's disk is full",
        }
        self.state.trouble = reasons.get(status, f"the dashboard answers {status}")
        if status in FATAL_STATUSES:
            return MAX_WAIT_S
        wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, MAX_WAIT_S)
        return wait_s

    def _trim(self) -> None:
        sizes = {segment: size for segment, size in self._available().items() if segment}
        total = sum(sizes.values())
        assert self._acked is not None
        for segment in sorted(sizes)[:-1]:
            if total <= MAX_SESSION_BYTES or self._acked.get(segment, 0) < sizes[segment]:
                return
            (self.folder / segment_name(segment)).unlink(missing_ok=True)
            total -= sizes[segment]


def invalid_url_reason(url: str) -> str | None:
    """Return why ``url`` is not a valid dashboard address; None if it is valid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"--push needs the dashboard's address, such as https://dashboard.example:8501, not {url!r}."
    return None

"""Limits for one page, one host and all pages: messages, running scripts, sockets and their size.

Pages and API share one event loop and one interpreter lock. Pages that send thousands of reruns must not slow down others.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import uvicorn
from starlette.types import Message, Receive
from streamlit.runtime import app_session
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

MESSAGES_PER_SECOND = 10.0  # Limit per page. It suffices for clicks and for parts that refresh once or twice a second.
MESSAGES_BURST = 10.0  # A page sends a few requests at once when it opens.
MAX_SCRIPTS = 4  # Scripts that run at once. The event loop waits for the interpreter lock of each running script.
SWITCH_INTERVAL_S = 0.0005  # Time between two switches of threads. Python's default of 5 ms adds up to seconds while pages compute and samplers push.
MAX_WAIT_S = 2.0  # Longest wait of a message for a running script, because the message may stop this script.
CHECK_INTERVAL_S = 0.02  # Time between two checks whether a script can run. A script takes ten times as long.
PAGES_PER_SECOND = 10.0  # Limit of all peers together, because each new page takes a session and a first run of its script.
PAGES_BURST = 10.0  # This many pages may open at once, for example when a browser restores its tabs.
MAX_MESSAGE_BYTES = 1 << 20  # A page sends the values of its widgets. The longest is a query.
MAX_WEBSOCKETS = 400  # Each page has one. A team has a few dozen pages.
MAX_WEBSOCKETS_PER_PEER = 100  # All viewers behind a proxy count as one peer. A trusted proxy has no such limit.
MAX_CONNECTIONS = 3000  # A page has about five connections. ``slow_clients`` closes most idle ones before this limit.


class TokenBucket:
    """A rate limit: ``rate`` messages per second, and ``burst`` messages at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst = rate, burst
        self._clock = clock
        self._left, self._counted_at = burst, clock()

    def wait_s(self) -> float:
        """Count a message and return how many seconds it must wait."""
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._counted_at) * self.rate) - 1
        self._counted_at = now
        return max(0.0, -self._left / self.rate)

    def is_empty(self) -> bool:
        """Return whether another message would have to wait."""
        return self._left + (self._clock() - self._counted_at) * self.rate < 1


class Sockets:
    """The open WebSockets, in total and by peer, and the times at which their messages are delivered."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._opening = TokenBucket(PAGES_PER_SECOND, PAGES_BURST)
        self._turn = asyncio.Lock()  # Waiting messages get it in the order of their arrival.

    def full(self, peer: str, *, trusted: bool) -> bool:
        """Return whether ``peer`` (an address) may open no further socket."""
        return self._open.total() >= MAX_WEBSOCKETS or (not trusted and self._open[peer] >= MAX_WEBSOCKETS_PER_PEER)

    def opened(self, peer: str) -> None:
        """Count a socket that opens."""
        self._open[peer] += 1

    async def wait_to_open(self) -> None:
        """Wait until another socket may open."""
        await asyncio.sleep(self._opening.wait_s())

    def closed(self, peer: str) -> None:
        """Count a socket that closed."""
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]

    def rate_limited(self, receive: Receive) -> Receive:
        """Return a ``receive`` that limits the rate of messages and waits until a script can run.

        Waiting messages remain in the network.
        """
        limit = TokenBucket(MESSAGES_PER_SECOND, MESSAGES_BURST)

        async def receive_at_rate() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                # A sleep of 0 seconds lets other sockets continue between two waiting messages.
                await asyncio.sleep(limit.wait_s())
                await self._wait_for_script()
            return message

        return receive_at_rate

    async def _wait_for_script(self) -> None:
        """Wait until a script can run, at most MAX_WAIT_S.

        The start of a thread while many threads compute blocks the event loop for tens of ms.
        """
        async with self._turn:
            deadline = time.monotonic() + MAX_WAIT_S
            while WaitingRunner.started >= MAX_SCRIPTS and time.monotonic() < deadline:
                await asyncio.sleep(CHECK_INTERVAL_S)


class WaitingRunner(ScriptRunner):
    """A runner of a page's script that waits until fewer than MAX_SCRIPTS scripts run.

    Streamlit combines reruns that are requested meanwhile into one.
    """

    started = 0  # Scripts that run or wait.
    _counting = threading.Lock()
    _slots = threading.BoundedSemaphore(MAX_SCRIPTS)

    def _run_script(self, rerun_data: RerunData) -> None:
        with self._counting:
            WaitingRunner.started += 1
        try:
            with self._slots:
                super()._run_script(rerun_data)
        finally:
            with self._counting:
                WaitingRunner.started -= 1


def limit_scripts() -> None:
    """Limit the number of scripts that Streamlit runs at once, and let them yield to the event loop soon."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    app_session.ScriptRunner = WaitingRunner  # type: ignore[attr-defined]  # Streamlit then uses WaitingRunner.


def limit_connections(servers: list[uvicorn.Server]) -> None:
    """Limit the size of received messages, and the number of connections, of running servers.

    Streamlit's own limit applies only to messages that the server sends.
    """
    for server in servers:
        server.config.ws_max_size = MAX_MESSAGE_BYTES
        server.config.limit_concurrency = MAX_CONNECTIONS

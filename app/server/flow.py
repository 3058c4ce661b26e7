"""Limits for one page, one host and all pages: messages, running scripts, sockets and their size.

Pages and API share one event loop and one interpreter lock. A page that sends thousands of reruns, or fifty pages that send
some each, must slow down only themselves.
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

MESSAGES_PER_SECOND = 10.0  # Limit per page. It is enough for clicks and for parts that refresh once or twice a second.
MESSAGES_BURST = 10.0  # A page sends a few requests at once when it opens.
SCRIPTS_AT_ONCE = 4  # Few, because threads share the interpreter lock: before each of its turns, the event loop waits for all.
TURN_SECONDS = 0.0005  # Python's default of 5 ms adds up to seconds while pages compute and samplers push
LONGEST_WAIT_SECONDS = 2.0  # Longest wait of a message until a script can run, because the message may stop a running script.
LOOK_EVERY_SECONDS = 0.02  # Time between two checks whether a script can run. A script takes ten times as long.
OPENED_PER_SECOND = 10.0  # Pages of all peers together: each costs the event loop a session and a first run of its script.
OPENED_AT_ONCE = 10.0  # This many pages may open at once, for example when a browser restores its tabs.
MESSAGE_BYTES = 1 << 20  # A page sends the values of its widgets. The longest is a query.
MAX_WEBSOCKETS = 400  # Each has its own session. A team has a few dozen.
MAX_WEBSOCKETS_PER_PEER = 100  # All viewers behind a proxy count as one peer. A trusted proxy has no limit of its own.
MAX_CONNECTIONS = 3000  # Pages have about five each. Slow_clients closes most idle ones before this limit.


class TokenBucket:
    """A rate limit: ``rate`` messages per second, ``burst`` messages at once; others wait in order."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst = rate, burst
        self._clock = clock
        self._left, self._counted_at = burst, clock()

    def wait_s(self) -> float:
        """Count a message and return how long it must wait."""
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._counted_at) * self.rate) - 1
        self._counted_at = now
        return max(0.0, -self._left / self.rate)

    def empty(self) -> bool:
        """Return whether another message would have to wait."""
        return self._left + (self._clock() - self._counted_at) * self.rate < 1


class Sockets:
    """The open WebSockets, in total and by peer, and the times at which their messages are delivered."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._opening = TokenBucket(OPENED_PER_SECOND, OPENED_AT_ONCE)
        self._next = asyncio.Lock()  # its holder is let in next; the others follow in the order of their arrival

    def full(self, peer: str, *, trusted: bool) -> bool:
        """Return whether ``peer`` (an address) may open no further socket."""
        return self._open.total() >= MAX_WEBSOCKETS or (not trusted and self._open[peer] >= MAX_WEBSOCKETS_PER_PEER)

    def opened(self, peer: str) -> None:
        """Count a socket that opens."""
        self._open[peer] += 1

    async def turn(self) -> None:
        """Wait until another socket may open."""
        await asyncio.sleep(self._opening.wait_s())

    def closed(self, peer: str) -> None:
        """Count a socket that closed."""
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]

    def paced(self, receive: Receive) -> Receive:
        """Return a ``receive`` that limits the rate of messages and waits until a script can run.

        Messages that are not yet received remain in the network.
        """
        own = TokenBucket(MESSAGES_PER_SECOND, MESSAGES_BURST)

        async def at_its_rate() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                # Also for 0 seconds, so that other sockets get a turn between two waiting messages.
                await asyncio.sleep(own.wait_s())
                await self._place()
            return message

        return at_its_rate

    async def _place(self) -> None:
        """Wait until a script can run.

        Starting a thread while many compute blocks the event loop for tens of ms each time.
        """
        async with self._next:
            deadline = time.monotonic() + LONGEST_WAIT_SECONDS
            while WaitingRunner.started >= SCRIPTS_AT_ONCE and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_EVERY_SECONDS)


class WaitingRunner(ScriptRunner):
    """A runner that waits until fewer than SCRIPTS_AT_ONCE scripts run, before it runs a page's script.

    Streamlit combines reruns that are requested meanwhile into one.
    """

    started = 0  # Scripts that run or wait for a place.
    _counting = threading.Lock()
    _places = threading.BoundedSemaphore(SCRIPTS_AT_ONCE)

    def _run_script(self, rerun_data: RerunData) -> None:
        with self._counting:
            WaitingRunner.started += 1
        try:
            with self._places:
                super()._run_script(rerun_data)
        finally:
            with self._counting:
                WaitingRunner.started -= 1


def limit_scripts() -> None:
    """Limit the number of scripts that Streamlit runs at once, and let them yield to the event loop soon."""
    sys.setswitchinterval(TURN_SECONDS)
    app_session.ScriptRunner = WaitingRunner  # type: ignore[attr-defined]  # replacing it is the point


def limit_connections(servers: list[uvicorn.Server]) -> None:
    """Limit the size of received messages, and the number of connections, of running servers.

    Streamlit's own limit applies only to messages that the server sends.
    """
    for server in servers:
        server.config.ws_max_size = MESSAGE_BYTES
        server.config.limit_concurrency = MAX_CONNECTIONS

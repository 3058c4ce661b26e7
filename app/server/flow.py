"""How much of the server one page, one host and all pages together may take: messages, scripts at once, sockets and their size.

Pages and API share one event loop and one interpreter lock. A page that sends thousands of reruns, or fifty that each send some, must
only slow itself.
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

MESSAGES_PER_SECOND = 10.0  # of one page: clicks, and parts that refresh once or twice a second
MESSAGES_BURST = 10.0  # a page that opens asks for a few things at once
SCRIPTS_AT_ONCE = 4  # threads that compute take turns, and the event loop waits for all of them at each of its own
TURN_SECONDS = 0.0005  # Python's own 5 ms add up to seconds where pages compute and samplers push
HELD_BACK_SECONDS = 2.0  # the longest that a message waits for a place: one that stops a script must get through to it
LOOK_EVERY_SECONDS = 0.02  # for a free place; a page takes ten times that
OPENED_PER_SECOND = 10.0  # pages of all peers together: each costs the event loop a session and the first run of its script
OPENED_AT_ONCE = 10.0
MESSAGE_BYTES = 1 << 20  # what a page sends are the values of its widgets; the longest is a query
MOST_WEBSOCKETS = 400  # each costs a session of its own; a team has a few dozen
MOST_WEBSOCKETS_PER_PEER = 100  # all viewers behind a proxy are one peer; a trusted one has no limit of its own
MOST_CONNECTIONS = 3000  # pages have about five each; of those that ask for nothing most end before it: slow_clients


class Bucket:
    """Lets ``rate`` messages a second through, ``burst`` at once; who comes too early waits, in the order of coming."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst = rate, burst
        self._clock = clock
        self._left, self._then = burst, clock()

    def wait_s(self) -> float:
        """Count a message and return how long it has to wait."""
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._then) * self.rate) - 1
        self._then = now
        return max(0.0, -self._left / self.rate)

    def empty(self) -> bool:
        """Tell whether another message would have to wait."""
        return self._left + (self._clock() - self._then) * self.rate < 1


class Sockets:
    """The WebSockets that are open, in all and by peer, and when their messages are handed on."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._opening = Bucket(OPENED_PER_SECOND, OPENED_AT_ONCE)
        self._next = asyncio.Lock()  # who holds it is let in next; the others follow in the order of coming

    def full(self, peer: str, *, trusted: bool) -> bool:
        """Tell whether ``peer`` (an address) may open no further one."""
        return self._open.total() >= MOST_WEBSOCKETS or (not trusted and self._open[peer] >= MOST_WEBSOCKETS_PER_PEER)

    def opened(self, peer: str) -> None:
        """Count one that opens."""
        self._open[peer] += 1

    async def turn(self) -> None:
        """Wait until another one may open."""
        await asyncio.sleep(self._opening.wait_s())

    def closed(self, peer: str) -> None:
        """Count one that closed."""
        self._open[peer] -= 1
        if not self._open[peer]:
            del self._open[peer]

    def paced(self, receive: Receive) -> Receive:
        """Return ``receive`` of one socket that hands messages on at its pace, and when a script can run. What is not received stays on the network."""
        own = Bucket(MESSAGES_PER_SECOND, MESSAGES_BURST)

        async def at_its_pace() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                await asyncio.sleep(own.wait_s())  # 0 too: others come in between two messages that lie there already
                await self._place()
            return message

        return at_its_pace

    async def _place(self) -> None:
        """Wait until a script can run: to start a thread among many that compute stops the event loop for tens of ms each time."""
        async with self._next:
            deadline = time.monotonic() + HELD_BACK_SECONDS
            while WaitingRunner.started >= SCRIPTS_AT_ONCE and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_EVERY_SECONDS)


class WaitingRunner(ScriptRunner):
    """Runs a page's script, or a part of it that refreshes, when one of SCRIPTS_AT_ONCE places is free. Reruns asked for meanwhile are one."""

    started = 0  # scripts that run or wait for a place
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
    """Make Streamlit run its scripts in a limited number of places, and those that compute give way to the event loop soon."""
    sys.setswitchinterval(TURN_SECONDS)
    app_session.ScriptRunner = WaitingRunner  # type: ignore[misc]  # replacing it is the point


def limit_connections(servers: list[uvicorn.Server]) -> None:
    """Bound messages and connections of running servers; Streamlit's own bound on messages is that of what the server sends."""
    for server in servers:
        server.config.ws_max_size = MESSAGE_BYTES
        server.config.limit_concurrency = MOST_CONNECTIONS

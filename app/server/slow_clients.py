"""Ends connections that do not finish their request's head, and those that do not read what they are sent.

uvicorn waits for both without an end. The first cost a file descriptor each, the second what is written for them: megabytes of a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Iterable
from typing import Any

import uvicorn

from sawtooth.app.server.flow import MOST_CONNECTIONS, limit_connections

log = logging.getLogger(__name__)
CROWDED, CROWDED_HEAD_SECONDS = MOST_CONNECTIONS // 6, 2.0  # then those that ask for nothing make room for those that do
HEAD_SECONDS = 30.0  # a request's head is one packet; whoever takes longer wants the place and not the page
STALLED_SECONDS = 20.0  # not one byte taken for so long: the slowest network brings one every few seconds
LOOK_EVERY_SECONDS = 1.0


def allow_many_files() -> None:
    """Raise the soft limit on open files to the hard one, so that idle connections do not use it up within seconds."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def running_servers() -> list[uvicorn.Server]:
    """Return the servers of this process. Streamlit makes its own and keeps it to itself, so they are looked for among all objects."""
    # By type, not isinstance: that asks every object for its __class__, and some answer with a warning.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), uvicorn.Server)]


async def end_slow_clients() -> None:
    """Look at this process's connections again and again; ends with its task."""
    servers = running_servers()
    if not servers:
        log.error("uvicorn's server was not found: connections that never finish their request will stay open")
    limit_connections(servers)
    waiting: dict[Any, tuple[Any, float]] = {}
    stalled: dict[Any, tuple[int, float]] = {}
    while servers:
        await asyncio.sleep(LOOK_EVERY_SECONDS)
        connections = [connection for server in servers for connection in server.server_state.connections]
        waiting = end_waiting(connections, waiting, time.monotonic())
        stalled = end_stalled(connections, stalled, time.monotonic())


def end_stalled(connections: Iterable[Any], stalled: dict[Any, tuple[int, float]], now: float) -> dict[Any, tuple[int, float]]:
    """Break off the connections whose unsent bytes are the same since STALLED_SECONDS; return how many and since when the others have.

    A peer that reads, however slowly, changes their number. Nothing is added meanwhile: who writes waits until they are fewer.
    """
    still = {}
    for connection in connections:
        unsent = connection.transport.get_write_buffer_size()
        if not unsent:
            continue
        before, since = stalled.get(connection, (unsent, now))
        if before != unsent:
            since = now
        if now - since < STALLED_SECONDS:
            still[connection] = (unsent, since)
        else:
            connection.transport.abort()
    return still


def end_waiting(connections: Iterable[Any], waiting: dict[Any, tuple[Any, float]], now: float) -> dict[Any, tuple[Any, float]]:
    """Close the connections that wait for a request since HEAD_SECONDS; return after which answer and since when the others do."""
    connections, still = list(connections), {}
    patience = HEAD_SECONDS if len(connections) < CROWDED else CROWDED_HEAD_SECONDS
    for connection in connections:
        if not hasattr(connection, "cycle"):  # a WebSocket
            continue
        if connection.cycle is None or connection.cycle.response_complete:
            last, since = waiting.get(connection, (connection.cycle, now))
            if last is not connection.cycle:  # between two looks it was served again, as one that asks every second is
                since = now
            if now - since < patience:
                still[connection] = (connection.cycle, since)
            else:
                connection.transport.close()
    return still

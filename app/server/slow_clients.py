"""Close connections whose client does not finish a request's head, or does not read the response.

uvicorn would wait forever. Each such connection costs a file descriptor, and an unread response also costs megabytes of memory.
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

from sawtooth.app.server.flow import MAX_CONNECTIONS, limit_connections

log = logging.getLogger(__name__)
# With at least CROWDED_CONNECTIONS connections, idle connections are closed after CROWDED_HEAD_SECONDS, to make room for active ones.
CROWDED_CONNECTIONS, CROWDED_HEAD_SECONDS = MAX_CONNECTIONS // 6, 2.0
HEAD_SECONDS = 30.0  # Longest wait for the head of a request, which is one packet.
STALLED_SECONDS = 20.0  # Longest time in which a client accepts no byte. The slowest network transfers one every few seconds.
CHECK_INTERVAL_S = 1.0  # Time between two checks of the open connections.


def allow_many_files() -> None:
    """Raise the soft limit on open files to the hard limit, so that idle connections do not exhaust it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def running_servers() -> list[uvicorn.Server]:
    """Return the servers of this process.

    Streamlit creates its own server and gives no access to it, so all objects are searched.
    """
    # isinstance would read every object's __class__, and some objects then print a warning.
    return [candidate for candidate in gc.get_objects() if issubclass(type(candidate), uvicorn.Server)]


async def end_slow_clients(servers: list[uvicorn.Server]) -> None:
    """Check the connections of this process's ``servers`` repeatedly, until the task is cancelled."""
    if not servers:
        log.error("uvicorn's server was not found, so connections that never finish their request will stay open")
    limit_connections(servers)
    waiting: dict[Any, tuple[Any, float]] = {}
    stalled: dict[Any, tuple[int, float]] = {}
    while servers:
        await asyncio.sleep(CHECK_INTERVAL_S)
        connections = [connection for server in servers for connection in server.server_state.connections]
        waiting = end_waiting(connections, waiting, time.monotonic())
        stalled = end_stalled(connections, stalled, time.monotonic())


def end_stalled(connections: Iterable[Any], stalled: dict[Any, tuple[int, float]], now: float) -> dict[Any, tuple[int, float]]:
    """Close connections whose number of unsent bytes has not changed for STALLED_SECONDS.

    Returns the number of each other connection, and the time of its last change. The number changes if the client reads,
    however slowly. Nothing else changes the number, because writers wait until there are fewer unsent bytes.
    """
    still_stalled = {}
    for connection in connections:
        unsent = connection.transport.get_write_buffer_size()
        if not unsent:
            continue
        before, since = stalled.get(connection, (unsent, now))
        if before != unsent:
            since = now
        if now - since < STALLED_SECONDS:
            still_stalled[connection] = (unsent, since)
        else:
            connection.transport.abort()
    return still_stalled


def end_waiting(connections: Iterable[Any], waiting: dict[Any, tuple[Any, float]], now: float) -> dict[Any, tuple[Any, float]]:
    """Close connections without a request for HEAD_SECONDS, or CROWDED_HEAD_SECONDS if there are many.

    Returns the last response of each other waiting connection, and the start of its wait.
    """
    connections, still_waiting = list(connections), {}
    max_wait_s = HEAD_SECONDS if len(connections) < CROWDED_CONNECTIONS else CROWDED_HEAD_SECONDS
    for connection in connections:
        if not hasattr(connection, "cycle"):  # A WebSocket has no such attribute.
            continue
        if connection.cycle is None or connection.cycle.response_complete:
            last, since = waiting.get(connection, (connection.cycle, now))
            if last is not connection.cycle:  # The connection was served between two checks.
                since = now
            if now - since < max_wait_s:
                still_waiting[connection] = (connection.cycle, since)
            else:
                connection.transport.close()
    return still_waiting

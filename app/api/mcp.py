"""``/mcp``: the tools of the MCP server over HTTP, for ``sawtooth serve --mcp``.

``sawtooth.app.server.access`` protects the route like every other route. The SDK's check of the host is off, because it would refuse
every host name except this machine's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from starlette.routing import BaseRoute

from sawtooth.app.api.uploads import claim_upload
from sawtooth.app.library import library
from sawtooth.app.server.process import jobs
from sawtooth.app.settings import settings

PATH = "/mcp"
MAX_BODY_BYTES = 1 << 20  # A query has at most 10,000 characters. Files are uploaded by another route.

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def mcp_routes(lifespan: Lifespan) -> tuple[list[BaseRoute], Lifespan]:
    """Return the route of the MCP server, and ``lifespan`` with its sessions; no route without ``--mcp``."""
    if not settings().mcp:
        return [], lifespan
    from mcp.server.transport_security import TransportSecuritySettings

    from sawtooth.app.agent.ingest import from_uploads
    from sawtooth.app.agent.server import mcp_server
    from sawtooth.app.agent.tools import Tools

    tools = Tools(library())
    server = mcp_server(tools, from_uploads(tools, jobs, claim_upload), ingest_in_jobs=True)
    routes = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    ).routes

    @asynccontextmanager
    async def with_sessions(app: Any) -> AsyncIterator[None]:
        async with server.session_manager.run(), lifespan(app):
            yield None

    return list(routes), with_sessions

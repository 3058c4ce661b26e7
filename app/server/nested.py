"""Addresses below a screen's, such as /verdict/extra: there Streamlit's page finds none of its scripts and stays blank."""

from __future__ import annotations

from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OWN = ("_stcore", "api", "app", "component", "media", "static")  # first parts of addresses that have parts below them


class NestedAddresses:
    """Leads a browser from an address below a screen's to the screen, and from one below nothing to the list of runs, with what the address asks for."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Redirect what a browser opens as a page; pass everything else on."""
        screen = _screen(scope) if scope["type"] == "http" else None
        if screen is None:
            await self.app(scope, receive, send)
            return
        query = scope.get("query_string", b"").decode("latin-1")
        await RedirectResponse(f"/{screen}{f'?{query}' if query else ''}")(scope, receive, send)


def _screen(scope: Scope) -> str | None:
    """Return the first part of an address of several that is opened as a page; None of any other."""
    first, *below = [part for part in scope["path"].split("/") if part] or [""]
    opened = scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", "")
    return quote(first, safe="") if below and opened and first not in OWN else None

"""The index page of each place, and redirects from addresses of older versions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from sawtooth.app.places import MOVED, SCREENS, moved_address, moved_runs, moved_work
from sawtooth.app.server.headers import index_page


def routes() -> list[BaseRoute]:
    """Return the routes of the places and of the addresses that moved."""
    places = [screen.name for screen in SCREENS if not screen.of]
    return [*(Route(f"/{path}", _index) for path in places), *(Route(f"/{path}", _redirect) for path in MOVED)]


async def _index(request: Request) -> Response:
    moves = {"/runs": moved_runs, "/work": moved_work}.get(request.url.path)
    if moves is not None and (new_address := moves(request.url.query)) is not None:
        return RedirectResponse(new_address)
    return HTMLResponse(index_page(), headers={"cache-control": "no-cache"})


async def _redirect(request: Request) -> Response:
    return RedirectResponse(moved_address(request.url.path, request.url.query))

"""A server with a login, and a browser that opens one-time links."""

from __future__ import annotations

import html
import re
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.settings import Settings
from sawtooth.ingest.schema import DataFolder

TOKEN = "a-token-of-this-test"
HTML = {"accept": "text/html"}


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the page")


async def socket_page(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        await websocket.close()


def client_of(data: DataFolder, **options) -> TestClient:
    app = Starlette(
        routes=[WebSocketRoute("/_stcore/stream", socket_page), Route("/{rest:path}", page, methods=["GET", "POST"])],
        middleware=[Middleware(AccessMiddleware, settings=Settings(data, token=TOKEN, **options))],
    )
    return TestClient(app, base_url="http://localhost:8501", follow_redirects=False)


def follow(client: TestClient, address: str) -> Any:
    """Open a one-time link and press the button of its page, as its script does."""
    page = client.get(address, headers=HTML)
    assert page.status_code == 200 and 'action="/login"' in page.text
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page.text)}
    return client.post("/login", data=fields, headers={"origin": "http://localhost:8501"})

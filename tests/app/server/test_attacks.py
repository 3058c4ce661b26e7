"""Tests of attacks by a hostile user, each of which must fail.

What a browser must not do is tested in tests/browser.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from sawtooth.app.api import routes
from sawtooth.app.server import flow
from sawtooth.app.server.access import CLOSED_PATHS, AccessMiddleware, PeerMiddleware
from sawtooth.app.settings import Settings
from sawtooth.ingest.schema import DataFolder

TOKEN = "a-token-of-this-test"


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the page")


def guarded(tmp_path: Path, **options) -> Starlette:
    settings = Settings(DataFolder(tmp_path), **options)
    return Starlette(
        routes=[Route("/{rest:path}", page, methods=["GET", "POST", "PUT"])],
        middleware=[Middleware(AccessMiddleware, settings=settings)],
    )


@pytest.mark.parametrize(
    "host", ["[", "[::1", "]", "a:b:c", "localhost:99999999", "\x00", "localhost\\@evil.test", "evil.test/localhost"]
)
def test_an_invalid_host_header_is_refused(tmp_path, host):
    answer = TestClient(guarded(tmp_path), base_url="http://localhost").get("/", headers={"host": host})
    assert answer.status_code in (200, 400) and "Traceback" not in answer.text
    assert answer.status_code == 400 or host.startswith("localhost:")


@pytest.mark.parametrize(
    "origin", ["http://[", "http://]", "//", "null", "http://localhost@evil.test", "http://evil.test#localhost:8501"]
)
def test_an_invalid_origin_cannot_write(tmp_path, origin):
    client = TestClient(guarded(tmp_path), base_url="http://localhost:8501")
    assert client.post("/x", headers={"origin": origin}).status_code == 403


def from_peer(app, peer: str, forwarded: str | None = None, path: str = "/") -> int:
    """Send a request as a TCP peer would through uvicorn.

    uvicorn trusts X-Forwarded-For from this machine.
    """
    statuses: list[int] = []
    headers = [(b"host", b"gpu-box")] + ([(b"x-forwarded-for", forwarded.encode())] if forwarded else [])
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers, "scheme": "http", "server": ("10.0.0.1", 8501), "client": (peer, 5000), "http_version": "1.1"}  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    asyncio.run(PeerMiddleware(app)(scope, receive, send))
    return statuses[0]


def test_a_trusted_proxy_is_known_by_its_address_not_by_a_header(tmp_path):
    # uvicorn rewrites the client's address for peers on 127.0.0.1. Otherwise a local user could be taken for the proxy,
    # and the proxy for its users.
    app = guarded(tmp_path, token=TOKEN, trusted_proxies=("10.0.0.5",))
    assert from_peer(app, "10.0.0.5") == 200
    assert from_peer(app, "10.0.0.5", "203.0.113.9") == 200
    assert from_peer(app, "127.0.0.1", "10.0.0.5") == 401
    assert from_peer(app, "203.0.113.9", "10.0.0.5") == 401
    local = guarded(tmp_path, token=TOKEN, trusted_proxies=("127.0.0.1",))
    assert from_peer(local, "127.0.0.1", "203.0.113.9") == 200
    assert from_peer(local, "203.0.113.9", "127.0.0.1") == 401


@pytest.mark.parametrize("path", [f"{path}/s/f" for path in CLOSED_PATHS])
def test_connections_that_could_fill_the_memory_are_closed(tmp_path, path):
    client = TestClient(guarded(tmp_path), base_url="http://localhost")
    assert client.put(path, content=b"x").status_code == 404
    assert client.get(path).status_code == 404


def test_too_many_pages_are_refused_until_others_close(tmp_path, monkeypatch):
    async def sock(websocket):
        await websocket.accept()
        await websocket.receive_text()
        await websocket.close()

    monkeypatch.setattr(flow, "MAX_WEBSOCKETS", 2)
    settings = Settings(DataFolder(tmp_path))
    app = Starlette(routes=[WebSocketRoute("/s", sock)], middleware=[Middleware(AccessMiddleware, settings=settings)])
    with TestClient(app, base_url="http://localhost") as client:
        with client.websocket_connect("ws://localhost/s") as one, client.websocket_connect("ws://localhost/s") as two:
            with pytest.raises(WebSocketDisconnect), client.websocket_connect("ws://localhost/s"):
                pass
            one.send_text("x"), two.send_text("x")
        with client.websocket_connect("ws://localhost/s") as three:
            three.send_text("x")


@pytest.fixture
def client(app_data):
    return TestClient(Starlette(routes=routes()), raise_server_exceptions=True)


EVIL_IDS = ["..", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f", "%00", "a" * 10_000, "' OR 1=1", "é" * 16, "0" * 15, "ABCDEF0123456789", "０" * 16, "%0d%0aX: y"]  # fmt: skip


@pytest.mark.parametrize("evil", EVIL_IDS, ids=range(len(EVIL_IDS)))
def test_no_id_is_a_path_outside_the_data_folder(client, app_data, evil):
    (app_data.root / "secret.json").write_text('{"secret": 1}')
    for path in (f"/api/v1/runs/{evil}", f"/api/v1/runs/{evil}/report", f"/api/v1/runs/{evil}/trace", f"/api/v1/jobs/{evil}"):
        answer = client.get(path)
        assert answer.status_code in (404, 405), (path, answer.status_code)
        assert "secret" not in answer.text and str(app_data.root) not in answer.text and "x" not in answer.headers
    order = {"files": [{"upload": evil, "name": "x"}]}
    assert client.post("/api/v1/jobs", json=order).status_code in (400, 404)


BODIES = {
    "nested lists": b"[" * 60_000,
    "nested objects": b'{"files":' * 7_000,
    "nested where a field is unknown": b'{"files": [], "x": ' + b"[" * 60_000,
    "too long": b'{"files": [' + b" " * 70_000 + b"]}",
    "not unicode": b'{"files": "\xff\xfe"}',
    "a number of many digits": b'{"files": ' + b"9" * 60_000 + b"}",
    "one upload many times": json.dumps({"files": [{"upload": "0" * 32, "name": "x"}] * 1000}).encode(),
    "NUL": b"\x00",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_hostile_request_is_refused_with_a_sentence(client, body):
    answer = client.post("/api/v1/jobs", content=body)
    assert answer.status_code in (400, 404, 413)
    assert "Traceback" not in answer.text and answer.json()["error"]["sentence"].endswith((".", "}.", "]}."))


NAMES = ["../../etc/cron.d/x", "..\\..\\windows\\x", "/etc/passwd", "x\r\nSet-Cookie: a=b", "\x00", "a" * 5000, "<img src=x onerror=alert(1)>", "\u202egnp.exe", "😀" * 300, "", ".", "..", "CON", "a\x1b[31mb"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_an_upload_s_name_is_data_and_never_a_path(client, app_data, name):
    answer = client.put("/api/v1/uploads", params={"name": name}, content=b"x")
    assert answer.status_code == 201
    stored = answer.json()["name"]
    assert len(stored) <= 200 and not any(c in stored for c in "/\\\r\n\x00\x1b\u202e")
    assert [path.name for path in app_data.uploads.iterdir()] == [answer.json()["upload"]]
    assert "set-cookie" not in answer.headers

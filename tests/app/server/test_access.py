"""Tests of access to the server."""

import stat
import sys

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.server.headers import content_security_policy
from sawtooth.app.server.login import session_cookie_of
from sawtooth.app.settings import Settings, is_loopback, settings_from
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder

TOKEN = "a-token-of-this-test"


async def _page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the page")


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


def _client(tmp_path, host="localhost", port=8501, **options) -> TestClient:
    settings = Settings(DataFolder(tmp_path), **options)
    routes = [
        Route("/_stcore/health", _page),
        Route("/api/v1/jobs", _page, methods=["POST"]),
        Route("/api/v1/runs", _page),
        WebSocketRoute("/_stcore/stream", _socket),
        Route("/{rest:path}", _page, methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(AccessMiddleware, settings=settings)])
    return TestClient(app, base_url=f"http://{host}:{port}", follow_redirects=False)


def test_without_a_token_this_machine_is_served(tmp_path) -> None:
    assert _client(tmp_path).get("/verdict?run=x").text == "the page"
    assert _client(tmp_path, host="127.0.0.1").get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.test", "localhost.evil.test", "127.0.0.1.nip.io", ""])
def test_another_host_name_is_refused_against_dns_rebinding(tmp_path, host) -> None:
    answer = _client(tmp_path).get("/", headers={"host": host})
    assert answer.status_code == 400
    assert "the page" not in answer.text


def test_a_named_host_is_served(tmp_path) -> None:
    client = _client(tmp_path, allowed_hosts=("gpu-box.lan",))
    assert client.get("/", headers={"host": "gpu-box.lan:8501"}).status_code == 200
    assert client.get("/", headers={"host": "other.lan"}).status_code == 400


def test_a_network_server_without_a_token_refuses_all_requests(tmp_path) -> None:
    client = _client(tmp_path, host="192.168.1.7", allowed_hosts=("192.168.1.7",))
    assert client.get("/").status_code == 403
    assert client.get("/_stcore/health").status_code == 200


def test_without_the_token_only_the_health_check_answers(tmp_path) -> None:
    client = _client(tmp_path, host="gpu-box", token=TOKEN)
    for path in ("/", "/verdict", "/api/v1/runs", "/_stcore/metrics", "/media/x", "/static/x.js"):
        answer = client.get(path)
        assert answer.status_code == 401, path
        assert "the page" not in answer.text
    assert client.get("/_stcore/health").status_code == 200
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/_stcore/stream"):
        pass


def test_the_link_with_the_token_becomes_a_cookie_and_keeps_the_rest_of_the_address(tmp_path) -> None:
    client = _client(tmp_path, host="gpu-box", token=TOKEN)
    answer = client.get(f"/compare?a=1&token={TOKEN}&b=2")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/compare?a=1&b=2"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert client.get("/compare?a=1&b=2").status_code == 200
    with client.websocket_connect("/_stcore/stream", headers={"cookie": cookie.split(";")[0]}):
        pass


def test_a_bearer_token_works_and_a_wrong_one_does_not(tmp_path) -> None:
    client = _client(tmp_path, host="gpu-box", token=TOKEN)
    assert client.get("/api/v1/runs", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/api/v1/runs", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert client.get("/api/v1/runs?token=wrong").status_code == 401
    assert client.get("/", headers={"cookie": f"{session_cookie_of(TOKEN)}=made-up"}).status_code == 401


def test_the_redirect_never_leaves_the_server(tmp_path) -> None:
    answer = _client(tmp_path, token=TOKEN).get(f"//evil.test/x?token={TOKEN}")
    assert answer.headers.get("location", "/").startswith("/")
    assert not answer.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize("origin", ["http://evil.test", "null", "http://localhost:3000", "http://localhost"])
def test_a_page_of_another_origin_can_neither_write_nor_open_the_websocket(tmp_path, origin) -> None:
    client = _client(tmp_path)
    assert client.post("/api/v1/jobs", headers={"origin": origin, "x-sawtooth": "1"}).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/_stcore/stream", headers={"origin": origin}):
        pass


def test_a_write_needs_the_header_that_a_form_cannot_send(tmp_path) -> None:
    client = _client(tmp_path)
    assert client.post("/api/v1/jobs").status_code == 403
    assert client.post("/api/v1/jobs", headers={"x-sawtooth": "1", "origin": "http://localhost:8501"}).status_code == 200


def test_every_response_has_the_security_headers(tmp_path) -> None:
    client = _client(tmp_path, token=TOKEN)
    for answer in (
        client.get("/"),
        client.get("/_stcore/health"),
        client.get("/", headers={"authorization": f"Bearer {TOKEN}"}),
    ):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"


def test_the_policy_allows_only_inline_scripts_of_the_index_page() -> None:
    policy = content_security_policy("<html><script>window.a=1</script><script src='x.js'></script>")
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    # printf 'window.a=1' | openssl dgst -sha256 -binary | base64
    assert "'sha256-" in policy
    assert policy.count("'sha256-") == 1
    assert "'unsafe-eval'" not in policy


def test_a_trusted_proxy_needs_no_token(tmp_path) -> None:
    client = _client(tmp_path, host="gpu-box", token=TOKEN, trusted_proxies=("testclient",))
    assert client.get("/").status_code == 200


def test_loopback_addresses_are_distinguished_from_the_network() -> None:
    assert all(is_loopback(h) for h in ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "app.localhost"))
    assert not any(is_loopback(h) for h in ("0.0.0.0", "::", "10.0.0.1", "example.com", "", "localhost.evil.test"))


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 12"):
        settings_from({"SAWTOOTH_TOKEN": "short"})
    with pytest.raises(UsageError, match="number of gigabytes"):
        settings_from({"SAWTOOTH_MAX_UPLOAD_GB": "lots"})
    for size in ("inf", "1e400", "nan", "-1", "0"):
        with pytest.raises(UsageError, match="above 0"):
            settings_from({"SAWTOOTH_MAX_UPLOAD_GB": size})
    assert settings_from({"SAWTOOTH_NO_EXTERNAL": "1"}).external_links is False
    assert settings_from({"SAWTOOTH_MAX_UPLOAD_GB": "1.5"}).upload_cap_bytes == 1_500_000_000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_new_data_folder_is_private(tmp_path) -> None:
    assert stat.S_IMODE(DataFolder(tmp_path / "made").create().root.stat().st_mode) == 0o700


@pytest.mark.parametrize("other", ['theme={"dark": true}', "a b=c", 'x="unclosed', "=x", "é=1", "list[0]=1", "expires=Thu"])
def test_a_cookie_of_another_server_does_not_block_access(tmp_path, other) -> None:
    client = _client(tmp_path, host="gpu-box", token=TOKEN)
    name, value = client.get(f"/?token={TOKEN}").headers["set-cookie"].split(";")[0].split("=", 1)
    client.cookies.clear()
    for cookies in (f"{other}; {name}={value}", f"{name}={value}; {other}"):
        assert client.get("/api/v1/runs", headers={"cookie": cookies.encode()}).status_code == 200
    assert client.get("/api/v1/runs", headers={"cookie": f"{other}; {name}=wrong".encode()}).status_code == 401

"""Tests of login and logout: one-time links, tokens in a form, expired sessions and wrong tokens.

They include other users of the machine.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import socket
import stat
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from sawtooth.app.server import login
from sawtooth.app.server import sessions as kept
from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.server.local_user import user_of
from sawtooth.app.server.login import Authentication, cookie_of, session_cookie_of
from sawtooth.app.server.sessions import LINK_SECONDS, MOST_LINKS, MOST_SESSIONS, SESSION_SECONDS, Sessions, token_hash
from sawtooth.app.server.tokens import stored_token
from sawtooth.app.settings import Settings
from sawtooth.ingest.schema import DataFolder

TOKEN = "a-token-of-this-test"
HTML = {"accept": "text/html"}


async def _page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the page")


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        await websocket.close()


@pytest.fixture
def data(tmp_path) -> DataFolder:
    kept.sessions_of.cache_clear()
    return DataFolder(tmp_path).create()


def client_of(data: DataFolder, **options) -> TestClient:
    app = Starlette(
        routes=[WebSocketRoute("/_stcore/stream", _socket), Route("/{rest:path}", _page, methods=["GET", "POST"])],
        middleware=[Middleware(AccessMiddleware, settings=Settings(data, token=TOKEN, **options))],
    )
    return TestClient(app, base_url="http://localhost:8501", follow_redirects=False)


def follow(client: TestClient, address: str) -> Any:
    """Open a one-time link and press the button of its page, as its script does."""
    page = client.get(address, headers=HTML)
    assert page.status_code == 200 and 'action="/login"' in page.text
    fields = {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', page.text)}
    return client.post("/login", data=fields, headers={"origin": "http://localhost:8501"})


def test_a_link_logs_in_one_browser_once(data) -> None:
    code = kept.sessions_of(data).link()
    client, other = client_of(data), client_of(data)
    answer = follow(client, f"/verdict?run=x&launch={code}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/verdict?run=x")
    assert client.get("/verdict?run=x").text == "the page"
    refused = other.get(f"/?launch={code}", headers=HTML)
    assert refused.status_code == 401
    assert "used already" in refused.text and "the page" not in refused.text
    assert client.get(f"/?launch={code}").status_code == 303  # its own browser opens it again and again


def test_a_preview_does_not_use_a_link_up(data) -> None:
    code, client, preview = kept.sessions_of(data).link(), client_of(data), client_of(data)
    for headers in (HTML, {"accept": "*/*", "user-agent": "Slackbot-LinkExpanding 1.0"}):
        answer = preview.get(f"/verdict?run=x&launch={code}", headers=headers)
        assert answer.status_code == 200 and "the page" not in answer.text and "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
    assert preview.head(f"/?launch={code}").status_code == 401
    assert preview.post(f"/?launch={code}").status_code == 401
    assert preview.get("/").status_code == 401
    assert client.post("/login", data={"launch": code}, headers={"origin": "http://evil.test"}).status_code == 403
    assert follow(client, f"/?launch={code}").status_code == 303
    assert preview.post("/login", data={"launch": code}, headers=HTML).status_code == 401


def test_the_page_of_a_link_allows_only_its_own_script(data) -> None:
    page = client_of(data).get(f"/?launch={kept.sessions_of(data).link()}", headers=HTML)
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'self' blob: 'sha256-{digest}';" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"].partition("script-src")[2].partition(";")[0]


def test_a_link_lasts_a_day_and_an_unused_login_a_month(data) -> None:
    now = [1_800_000_000.0]
    sessions = Sessions(data.access, clock=lambda: now[0])
    code, secret = sessions.link(), sessions.open(sessions.new("link", "", "", None, None))
    now[0] += LINK_SECONDS + 1
    assert not sessions.redeem(code, None)
    path = data.access / f"session-{sessions.id_of(secret)}"
    os.utime(path, (now[0], now[0] - SESSION_SECONDS + 10))
    assert sessions.find(secret, None, "") is not None
    assert path.stat().st_mtime > now[0] - SESSION_SECONDS + 10  # seen: it lasts another month
    os.utime(path, (now[0], now[0] - SESSION_SECONDS - 1))
    now[0] += 2
    assert sessions.find(secret, None, "") is None
    assert not path.exists()


def test_the_form_logs_in_and_opens_the_requested_page(data) -> None:
    client = client_of(data)
    door = client.get("/compare?a=1&b=2", headers=HTML)
    assert door.status_code == 401
    assert 'name="next" value="/compare?a=1&amp;b=2"' in door.text
    assert door.headers["referrer-policy"] == "same-origin"  # else its form comes from nowhere
    answer = client.post(
        "/login", data={"token": TOKEN, "next": "/compare?a=1&b=2"}, headers={"origin": "http://localhost:8501"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?a=1&b=2")
    assert client.get("/compare?a=1&b=2").text == "the page"


def test_an_invitation_opens_the_address_requested_before(data) -> None:
    client, sessions = client_of(data), kept.sessions_of(data)
    assert client.get("/compare?a=1&b=2&token=wrong", headers=HTML).status_code == 401
    answer = follow(client, f"/?launch={sessions.link()}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?a=1&b=2")
    assert client.get(answer.headers["location"]).text == "the page"
    other = client_of(data)  # whose invitation names a page itself, or who opened nothing before
    other.get("/compare?a=1&b=2", headers=HTML)
    assert follow(other, f"/verdict?run=x&launch={sessions.link()}").headers["location"] == "/verdict?run=x"
    assert follow(client_of(data), f"/?launch={sessions.link()}").headers["location"] == "/"


@pytest.mark.parametrize("wanted", ["//evil.test/", "https://evil.test/", "/\\evil.test", "%0d%0aset-cookie: x=y", "%ff%00"])
def test_a_remembered_address_never_leaves_the_server(data, wanted) -> None:
    """A remembered address never leads to another host.

    A server on another port of this host can set a cookie of the same name.
    """
    client = client_of(data)
    fields = {"launch": kept.sessions_of(data).link(), "next": "/"}
    answer = client.post("/login", data=fields, headers={"cookie": f"{login.WANTED}={wanted}"})
    assert answer.status_code == 303 and "x=y" not in answer.headers.get("set-cookie", "")
    location = answer.headers["location"]
    assert location.startswith("/") and not location.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "target", ["//evil.test/", "https://evil.test/", "/\\evil.test", "\\\\evil.test", "", "/%0d%0ax: y", "/\r\nx: y"]
)
def test_the_form_never_leaves_the_server(data, target) -> None:
    for opens in ({"token": TOKEN}, {"launch": kept.sessions_of(data).link()}):
        answer = client_of(data).post("/login", data={**opens, "next": target})
        assert answer.status_code == 303
        location = answer.headers["location"]
        assert location.startswith("/") and not location.startswith(("//", "/\\")) and "\n" not in location
        assert "x" not in answer.headers


def test_another_site_cannot_log_anybody_in_or_out(data) -> None:
    client = client_of(data)
    client.get(f"/?token={TOKEN}")
    for origin in ("http://evil.test", "http://localhost:9999", "null"):
        for path in ("/login", "/logout"):
            assert client.post(path, data={"token": TOKEN}, headers={"origin": origin}).status_code == 403
    assert client.get("/").text == "the page"


def test_a_session_is_random_listed_and_ended_at_once(data, monkeypatch) -> None:
    one, two = client_of(data), client_of(data)
    cookies = []
    for client in (one, two):
        client.get(f"/?token={TOKEN}", headers={"user-agent": "a browser"})
        cookies.append(client.cookies[session_cookie_of(TOKEN)])
    assert cookies[0] != cookies[1] and min(map(len, cookies)) >= 40
    on_disk = b"".join(path.read_bytes() + path.name.encode() for path in data.access.iterdir())
    assert not any(secret.encode() in on_disk for secret in (*cookies, TOKEN))
    sessions = kept.sessions_of(data)
    listed = sessions.all()
    assert [(entry.session.how, entry.session.agent) for entry in listed] == [("token", "a browser")] * 2
    another_process = Sessions(data.access)
    assert another_process.end(sessions.id_of(cookies[0]))
    monkeypatch.setattr(kept, "BELIEVED_SECONDS", 0.0)  # a second later
    assert one.get("/").status_code == 401
    assert two.get("/").status_code == 200


def test_an_open_page_ends_with_its_session(data) -> None:
    client = client_of(data)
    client.get(f"/?token={TOKEN}")
    with client.websocket_connect("ws://localhost:8501/_stcore/stream") as page:
        page.send_text("x")
        assert page.receive_text() == "x"
        sessions = kept.sessions_of(data)
        sessions.end(sessions.all()[0].id)
        page.send_text("y")
        with pytest.raises(WebSocketDisconnect):
            page.receive_text()


def test_logging_out_ends_the_session(data) -> None:
    client = client_of(data)
    client.get(f"/?token={TOKEN}")
    secret = client.cookies[session_cookie_of(TOKEN)]
    assert client.post("/logout").status_code == 303
    assert client.get("/").status_code == 401
    client.cookies.set(session_cookie_of(TOKEN), secret)
    assert client.get("/").status_code == 401


def test_a_cookie_of_the_same_name_from_another_port_logs_nobody_out(data) -> None:
    """Browsers store cookies by host and not by port.

    Any server of this host can set one for a wider or a narrower path.
    """
    client, name = client_of(data), session_cookie_of(TOKEN)
    client.get(f"/?token={TOKEN}")
    own = f"{name}={client.cookies[name]}"
    client.cookies.clear()
    for cookies in (f"{own}; {name}=junk", f"{name}=junk; {own}", f"{name}=a; {name}=b; {own}; theme=dark"):
        assert client.get("/", headers={"cookie": cookies}).status_code == 200
    assert client.get("/", headers={"cookie": f"{name}=junk; {name}="}).status_code == 401
    assert client.post("/logout", headers={"cookie": f"{own}; {name}=junk"}).status_code == 303
    assert client.get("/", headers={"cookie": own}).status_code == 401


def test_a_new_token_ends_sessions_of_the_old_one(data) -> None:
    sessions = Sessions(data.access)
    secret = sessions.open(sessions.new("token", "", "", None, token_hash(TOKEN)))
    assert sessions.find(secret, None, token_hash(TOKEN))
    assert sessions.find(secret, None, token_hash("another-token")) is None


def test_a_cookie_of_an_older_version_works_until_its_token_changes(data) -> None:
    client = client_of(data)
    client.cookies.set(*cookie_of(TOKEN))
    assert client.get("/").text == "the page"
    client.cookies.clear()
    client.cookies.set(*cookie_of("another-token"))
    assert client.get("/").status_code == 401


def test_wrong_tokens_are_slowed_and_logged_without_their_value(data, caplog) -> None:
    client = client_of(data)
    client.get(f"/?token={TOKEN}")  # somebody who is in
    stranger = client_of(data)
    answers = [stranger.get("/api/v1/runs", headers={"authorization": f"Bearer wrong-{n}"}).status_code for n in range(12)]
    assert answers == [401] * 10 + [429] * 2
    lines = [record.getMessage() for record in caplog.records if "wrong token" in record.getMessage()]
    assert len(lines) == 1 and "testclient" in lines[0] and "wrong-" not in lines[0]
    assert client.get("/").text == "the page"


def test_an_address_that_guesses_tokens_is_blocked_even_with_the_right_one(data) -> None:
    client = client_of(data)
    for n in range(10):
        client.post("/login", data={"token": f"guess-{n}"})
    assert client.post("/login", data={"token": TOKEN}).status_code == 429


@pytest.mark.parametrize("body", [b"token=" + b"x" * 20_000, b"\xff\xfe", b"token", b"", b"token=%zz&next=%"])
def test_an_invalid_form_is_refused(data, body) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client_of(data).post("/login", content=body, headers=headers).status_code == 401


def test_sessions_and_links_are_bounded_and_private(data) -> None:
    sessions = Sessions(data.access)
    for _ in range(MOST_SESSIONS + 5):
        sessions.open(sessions.new("link", "x" * 10_000, "", None, None))
    assert len(list(data.access.iterdir())) <= MOST_SESSIONS
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_size < 500 for path in data.access.iterdir())


def test_a_folder_that_cannot_be_written_keeps_logins_in_memory(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    sessions = Sessions(tmp_path / "file" / "access")
    code = sessions.link()
    assert sessions.redeem(code, None) and not sessions.redeem(code, None)
    secret = sessions.open(sessions.new("link", "", "", None, None))
    assert sessions.find(secret, None, "") and len(sessions.all()) == 1
    assert sessions.end(sessions.all()[0].id) and sessions.find(secret, None, "") is None
    codes = [sessions.link() for _ in range(MOST_LINKS + 5)]
    for _ in range(MOST_SESSIONS + 5):
        secret = sessions.open(sessions.new("link", "", "", None, None))
    assert len(sessions.all()) == MOST_SESSIONS and sessions.find(secret, None, "")
    assert sum(sessions.redeem(code, None) for code in codes) == MOST_LINKS and not sessions.redeem(codes[0], None)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux tells whose a connection is")  # noqa: PTH110
@pytest.mark.parametrize(("family", "here"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_user_at_the_other_end_of_a_local_connection_is_known(family, here) -> None:
    with socket.socket(family) as listening:
        listening.bind((here, 0))
        listening.listen()
        server = listening.getsockname()[:2]
        with socket.create_connection(server) as asking:
            client = asking.getsockname()[:2]
            assert user_of(client, server) == os.getuid()
            assert user_of((here, 1), server) is None
            assert user_of(("192.0.2.1", client[1]), server) is None


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_is_distinguished() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        os.seteuid(65534)
        try:
            other = socket.create_connection(listening.getsockname())
        finally:
            os.seteuid(0)
        with other:
            assert user_of(other.getsockname(), listening.getsockname()) == 65534


def test_a_stolen_cookie_or_link_does_not_work_for_another_user(data, monkeypatch) -> None:
    # Ports share cookies, so the browser sends our cookie to a page of another user's server on another port of
    # localhost.
    user = [1000]
    monkeypatch.setattr(login, "user_of", lambda client, server: user[0])
    client, sessions = client_of(data), kept.sessions_of(data)
    code = sessions.link(user=1000)
    user[0] = 1001
    assert client_of(data).get(f"/?launch={code}").status_code == 401
    assert client_of(data).post("/login", data={"launch": code}).status_code == 401
    user[0] = 1000
    assert follow(client, f"/?launch={code}").status_code == 303  # the attempt did not use it up
    assert client.get("/").text == "the page"
    for user[0] in (1001, None):
        assert client.get("/").status_code == 401
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("ws://localhost:8501/_stcore/stream"):
            pass


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b"short", b"x" * 40 + b" 00000000", b"{}"])
def test_a_damaged_token_file_is_reported_and_replaced(tmp_path, caplog, damage) -> None:
    first = stored_token(tmp_path, "token", "The token")
    assert stored_token(tmp_path, "token", "The token") == first
    (tmp_path / "token").write_bytes(damage)
    second = stored_token(tmp_path, "token", "The token")
    assert second != first and stored_token(tmp_path, "token", "The token") == second
    assert "damaged" in caplog.text


def test_every_flipped_bit_of_a_token_file_is_reported(tmp_path, caplog) -> None:
    stored_token(tmp_path, "token", "The token")
    content = (tmp_path / "token").read_bytes()
    for position in range(len(content.rstrip()) * 8):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        (tmp_path / "token").write_bytes(flipped)
        caplog.clear()
        token = stored_token(tmp_path, "token", "The token")
        assert "damaged" in caplog.text or token.encode() == content.split()[0], position


def test_a_token_written_by_a_person_is_accepted(tmp_path) -> None:
    (tmp_path / "token").write_text("my-own-long-token\n")
    assert stored_token(tmp_path, "token", "The token") == "my-own-long-token"


def test_the_login_page_never_reads_the_query_of_a_form(data) -> None:
    door = Authentication(TOKEN, Sessions(data.access))
    assert door.is_token(TOKEN) and door.is_token(f"{TOKEN}  0123abcd\n")  # the line of the token's file has a check behind it
    assert not door.is_token("") and not door.is_token(f"x {TOKEN}")
    assert client_of(data).post(f"/?token={TOKEN}").status_code == 401


def test_an_error_response_has_the_headers_and_no_details(data) -> None:
    async def fails(request: Request) -> PlainTextResponse:
        raise RuntimeError(f"in {data.root}")

    app = Starlette(routes=[Route("/", fails)], middleware=[Middleware(AccessMiddleware, settings=Settings(data))])
    answer = TestClient(app, base_url="http://localhost", raise_server_exceptions=False).get("/")
    assert answer.status_code == 500
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert str(data.root) not in answer.text

"""Tests of sessions: their end, their cookies, and other users of the machine."""

from __future__ import annotations

import os
import socket
import stat

import pytest
from starlette.websockets import WebSocketDisconnect

from sawtooth.app.server import login
from sawtooth.app.server import sessions as stored_sessions
from sawtooth.app.server.local_user import user_of
from sawtooth.app.server.login import session_cookie_of
from sawtooth.app.server.sessions import LINK_SECONDS, MAX_LINKS, MAX_SESSIONS, SESSION_SECONDS, Sessions, token_hash
from sawtooth.ingest.schema import DataFolder
from tests.support.logins import TOKEN, client_of, follow


@pytest.fixture
def data(tmp_path) -> DataFolder:
    stored_sessions.sessions_of.cache_clear()
    return DataFolder(tmp_path).create()


def test_a_link_lasts_a_day_and_an_unused_login_a_month(data) -> None:
    now = [1_800_000_000.0]
    sessions = Sessions(data.access, clock=lambda: now[0])
    code, secret = sessions.link(), sessions.open(sessions.new("link", "", "", None, None))
    now[0] += LINK_SECONDS + 1
    assert not sessions.redeem(code, None)
    path = data.access / f"session-{sessions.id_of(secret)}"
    os.utime(path, (now[0], now[0] - SESSION_SECONDS + 10))
    assert sessions.find(secret, None, "") is not None
    assert path.stat().st_mtime > now[0] - SESSION_SECONDS + 10  # It was used, so it lasts another month.
    os.utime(path, (now[0], now[0] - SESSION_SECONDS - 1))
    now[0] += 2
    assert sessions.find(secret, None, "") is None
    assert not path.exists()


def test_a_session_is_random_listed_and_ended_at_once(data, monkeypatch) -> None:
    one, two = client_of(data), client_of(data)
    cookies = []
    for client in (one, two):
        client.get(f"/?token={TOKEN}", headers={"user-agent": "a browser"})
        cookies.append(client.cookies[session_cookie_of(TOKEN)])
    assert cookies[0] != cookies[1] and min(map(len, cookies)) >= 40
    on_disk = b"".join(path.read_bytes() + path.name.encode() for path in data.access.iterdir())
    assert not any(secret.encode() in on_disk for secret in (*cookies, TOKEN))
    sessions = stored_sessions.sessions_of(data)
    listed = sessions.all()
    assert [(entry.session.how, entry.session.agent) for entry in listed] == [("token", "a browser")] * 2
    another_process = Sessions(data.access)
    assert another_process.end(sessions.id_of(cookies[0]))
    monkeypatch.setattr(stored_sessions, "CACHE_SECONDS", 0.0)  # A second later.
    assert one.get("/").status_code == 401
    assert two.get("/").status_code == 200


def test_an_open_page_ends_with_its_session(data) -> None:
    client = client_of(data)
    client.get(f"/?token={TOKEN}")
    with client.websocket_connect("ws://localhost:8501/_stcore/stream") as page:
        page.send_text("x")
        assert page.receive_text() == "x"
        sessions = stored_sessions.sessions_of(data)
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


def test_the_files_of_sessions_are_limited_and_private(data) -> None:
    sessions = Sessions(data.access)
    for _ in range(MAX_SESSIONS + 5):
        sessions.open(sessions.new("link", "x" * 10_000, "", None, None))
    assert len(list(data.access.iterdir())) <= MAX_SESSIONS
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_size < 500 for path in data.access.iterdir())


def test_a_folder_that_cannot_be_written_keeps_logins_in_memory(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    sessions = Sessions(tmp_path / "file" / "access")
    code = sessions.link()
    assert sessions.redeem(code, None) and not sessions.redeem(code, None)
    secret = sessions.open(sessions.new("link", "", "", None, None))
    assert sessions.find(secret, None, "") and len(sessions.all()) == 1
    assert sessions.end(sessions.all()[0].id) and sessions.find(secret, None, "") is None
    codes = [sessions.link() for _ in range(MAX_LINKS + 5)]
    for _ in range(MAX_SESSIONS + 5):
        secret = sessions.open(sessions.new("link", "", "", None, None))
    assert len(sessions.all()) == MAX_SESSIONS and sessions.find(secret, None, "")
    assert sum(sessions.redeem(code, None) for code in codes) == MAX_LINKS and not sessions.redeem(codes[0], None)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="only Linux tells whose a connection is")  # noqa: PTH110
@pytest.mark.parametrize(("family", "here"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_user_of_a_local_connection_is_known(family, here) -> None:
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
    client, sessions = client_of(data), stored_sessions.sessions_of(data)
    code = sessions.link(user=1000)
    user[0] = 1001
    assert client_of(data).get(f"/?launch={code}").status_code == 401
    assert client_of(data).post("/login", data={"launch": code}).status_code == 401
    user[0] = 1000
    assert follow(client, f"/?launch={code}").status_code == 303  # The attempt did not use the link up.
    assert client.get("/").text == "the page"
    for user[0] in (1001, None):
        assert client.get("/").status_code == 401
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("ws://localhost:8501/_stcore/stream"):
            pass

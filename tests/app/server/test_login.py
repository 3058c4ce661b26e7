"""Tests of the login: one-time links and the form."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from sawtooth.app.server import login
from sawtooth.app.server import sessions as stored_sessions
from sawtooth.ingest.schema import DataFolder
from tests.support.logins import HTML, TOKEN, client_of, follow


@pytest.fixture
def data(tmp_path) -> DataFolder:
    stored_sessions.sessions_of.cache_clear()
    return DataFolder(tmp_path).create()


def test_a_link_logs_in_one_browser_once(data) -> None:
    code = stored_sessions.sessions_of(data).link()
    client, other = client_of(data), client_of(data)
    answer = follow(client, f"/verdict?run=x&launch={code}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/verdict?run=x")
    assert client.get("/verdict?run=x").text == "the page"
    refused = other.get(f"/?launch={code}", headers=HTML)
    assert refused.status_code == 401
    assert "used already" in refused.text and "the page" not in refused.text
    assert client.get(f"/?launch={code}").status_code == 303  # The same browser can open the link again.


def test_a_preview_does_not_use_a_link_up(data) -> None:
    code, client, preview = stored_sessions.sessions_of(data).link(), client_of(data), client_of(data)
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
    page = client_of(data).get(f"/?launch={stored_sessions.sessions_of(data).link()}", headers=HTML)
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'self' blob: 'sha256-{digest}';" in page.headers["content-security-policy"]
    assert "unsafe-inline" not in page.headers["content-security-policy"].partition("script-src")[2].partition(";")[0]


def test_the_form_logs_in_and_opens_the_requested_page(data) -> None:
    client = client_of(data)
    door = client.get("/compare?a=1&b=2", headers=HTML)
    assert door.status_code == 401
    assert 'name="next" value="/compare?a=1&amp;b=2"' in door.text
    assert door.headers["referrer-policy"] == "same-origin"  # Otherwise the page's form has no origin.
    answer = client.post(
        "/login", data={"token": TOKEN, "next": "/compare?a=1&b=2"}, headers={"origin": "http://localhost:8501"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?a=1&b=2")
    assert client.get("/compare?a=1&b=2").text == "the page"


def test_an_invitation_opens_the_address_requested_before(data) -> None:
    client, sessions = client_of(data), stored_sessions.sessions_of(data)
    assert client.get("/compare?a=1&b=2&token=wrong", headers=HTML).status_code == 401
    answer = follow(client, f"/?launch={sessions.link()}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/compare?a=1&b=2")
    assert client.get(answer.headers["location"]).text == "the page"
    other = client_of(data)  # The invitation names a page itself, or no page was opened before.
    other.get("/compare?a=1&b=2", headers=HTML)
    assert follow(other, f"/verdict?run=x&launch={sessions.link()}").headers["location"] == "/verdict?run=x"
    assert follow(client_of(data), f"/?launch={sessions.link()}").headers["location"] == "/"


@pytest.mark.parametrize("wanted", ["//evil.test/", "https://evil.test/", "/\\evil.test", "%0d%0aset-cookie: x=y", "%ff%00"])
def test_a_remembered_address_never_leaves_the_server(data, wanted) -> None:
    # A server on another port of this host can set a cookie of the same name.
    client = client_of(data)
    fields = {"launch": stored_sessions.sessions_of(data).link(), "next": "/"}
    answer = client.post("/login", data=fields, headers={"cookie": f"{login.REQUESTED_COOKIE}={wanted}"})
    assert answer.status_code == 303 and "x=y" not in answer.headers.get("set-cookie", "")
    location = answer.headers["location"]
    assert location.startswith("/") and not location.startswith(("//", "/\\"))


@pytest.mark.parametrize(
    "target", ["//evil.test/", "https://evil.test/", "/\\evil.test", "\\\\evil.test", "", "/%0d%0ax: y", "/\r\nx: y"]
)
def test_the_form_never_leaves_the_server(data, target) -> None:
    for opens in ({"token": TOKEN}, {"launch": stored_sessions.sessions_of(data).link()}):
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


@pytest.mark.parametrize("body", [b"token=" + b"x" * 20_000, b"\xff\xfe", b"token", b"", b"token=%zz&next=%"])
def test_an_invalid_form_is_refused(data, body) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client_of(data).post("/login", content=body, headers=headers).status_code == 401

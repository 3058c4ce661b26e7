"""Tests of tokens: wrong ones, damaged files and failures."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.server.login import Authentication
from sawtooth.app.server.sessions import Sessions
from sawtooth.app.server.tokens import stored_token
from sawtooth.app.settings import Settings
from tests.support.logins import TOKEN, client_of


def test_wrong_tokens_are_slowed_and_logged_without_their_value(data, caplog) -> None:
    client = client_of(data)
    client.get(f"/?token={TOKEN}")  # This user is logged in.
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
    assert door.is_token(TOKEN) and door.is_token(f"{TOKEN}  0123abcd\n")  # The line of the token's file ends with a checksum.
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

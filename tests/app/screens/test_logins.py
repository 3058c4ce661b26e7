"""Tests of the Logins screen: who has access, an invitation, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from streamlit.runtime.context import ContextProxy
from typer.testing import CliRunner

from sawtooth.app.cli import cli
from sawtooth.app.server.sessions import Session, sessions_of, token_hash
from sawtooth.app.settings import settings
from sawtooth.ingest.schema import DataFolder
from tests.support.pages import opened_at, words_of

TOKEN = "a token of twelve and more"
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
EDGE = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0"
)
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)"
AGENTS = {
    AGENT: "Chrome on Linux",
    EDGE: "Edge on Windows",
    "Mozilla/5.0 (Linux; Android 15; SM-S938B Build/AP3A.240905.015) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.7339.51 Mobile Safari/537.36 EdgA/140.0.3485.54": "Edge on Android",
    f"{IPHONE} CriOS/140.0.7339.101 Mobile/15E148 Safari/604.1": "Chrome on iPhone",
    f"{IPHONE} FxiOS/143.0 Mobile/15E148 Safari/605.1.15": "Firefox on iPhone",
    f"{IPHONE} EdgiOS/140.0.3485.66 Version/18.0 Mobile/15E148 Safari/604.1": "Edge on iPhone",
    f"{IPHONE} Version/18.6 Mobile/15E148 Safari/604.1": "Safari on iPhone",
}


@pytest.fixture
def asked(app_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    """Return a data folder whose server requires a login."""
    monkeypatch.setenv("SAWTOOTH_TOKEN", TOKEN)
    monkeypatch.delenv("SAWTOOTH_NO_TOKEN", raising=False)
    monkeypatch.setattr(ContextProxy, "cookies", property(lambda _: {}))
    monkeypatch.setattr(ContextProxy, "url", property(lambda _: "http://127.0.0.1:8501/logins"))
    settings.cache_clear()
    yield app_data
    monkeypatch.undo()
    settings.cache_clear()


def test_access_is_listed_by_browser_and_ended_by_a_button(asked: DataFolder) -> None:
    sessions = sessions_of(asked)
    for agent, how in ((AGENT, "link"), (EDGE, "token"), ("curl/8.5.0", "link")):
        sessions.open(Session(how, 1.79e9, agent, "10.0.0.7"))
    test = opened_at("logins")
    text = words_of(test)
    assert "3 browsers have access to this dashboard" in text
    assert all(
        name in text for name in ("Chrome on Linux", "Edge on Windows", "curl", "from 10.0.0.7", "Logged in with the token")
    )
    assert "Mozilla" not in text
    next(b for b in test.button if b.label == "Log out").click().run()
    assert len(sessions.all()) == 2
    next(b for b in test.button if b.label == "Log out the other 2 browsers").click().run()
    assert sessions.all() == []


def test_the_navigation_shows_logins_only_if_login_is_used(asked: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def linked() -> list[str]:
        return [str(element.proto.label) for element in opened_at("runs").sidebar if element.type == "page_link"]

    assert "Logins" in linked()
    monkeypatch.delenv("SAWTOOTH_TOKEN")
    settings.cache_clear()
    assert "Reference" in linked() and "Logins" not in linked()
    assert "nobody needs to log in" in words_of(opened_at("logins"))


def test_browsers_are_listed_by_their_stored_name(asked: DataFolder) -> None:
    sessions = sessions_of(asked)
    for agent in AGENTS:
        sessions.open(sessions.new("link", agent, "10.0.0.7", None, None))
    text = words_of(opened_at("logins"))
    assert [name for name in AGENTS.values() if name not in text] == []


def test_a_login_with_an_earlier_token_has_no_access(asked: DataFolder) -> None:
    sessions = sessions_of(asked)
    for token in (TOKEN, "the token of last year"):
        sessions.open(sessions.new("token", AGENT, "10.0.0.7", None, token_hash(token)))
    assert "1 browser has access to this dashboard" in words_of(opened_at("logins"))
    lines = CliRunner().invoke(cli, ["serve", "--sessions", "--data", str(asked.root)]).output.splitlines()
    assert len(lines) == 3
    assert lines[1] == "Logged in with an earlier token, so no longer admitted:"


def test_an_invitation_is_a_link_for_one_browser(asked: DataFolder) -> None:
    test = opened_at("logins")
    assert "It logs in the first browser that opens it, within a day" in words_of(test)
    test.button[0].click().run()
    code = re.fullmatch(r"http://\S+\?launch=(\S+)", test.code[0].value)
    assert code is not None
    assert "This link works on this machine only" in words_of(test)
    assert sessions_of(asked).redeem(code[1], None)
    assert not sessions_of(asked).redeem(code[1], None)


@pytest.mark.parametrize(
    ("pasted", "page"),
    [
        ("", "/"),
        ("http://127.0.0.1:8501/compare?a=1&b=2&token=secret", "/compare?a=1&b=2"),
        ("/verdict?run=x", "/verdict?run=x"),
        ("//evil.test/x", "/x"),
    ],
)
def test_an_invitation_opens_the_pasted_page(asked: DataFolder, pasted: str, page: str) -> None:
    test = opened_at("logins")
    next(field for field in test.text_input if field.label == "Page that the link opens").set_value(pasted)
    next(b for b in test.button if b.label == "Make a link").click().run()
    link = next(code.value for code in test.code if "launch=" in code.value)
    assert link.startswith(f"http://127.0.0.1:8501{page}{'&' if '?' in page else '?'}launch=")

"""The Logins screen: who has access, an invitation, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from streamlit.runtime.context import ContextProxy

from sawtooth.app.server.sessions import Session, sessions_of
from sawtooth.app.settings import settings
from sawtooth.ingest.schema import DataFolder
from tests.support.pages import opened_at, words_of

AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
EDGE = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0"
)


@pytest.fixture
def asked(app_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    """A data folder whose server asks for a login."""
    monkeypatch.setenv("SAWTOOTH_TOKEN", "a token of twelve and more")
    monkeypatch.delenv("SAWTOOTH_NO_TOKEN", raising=False)
    monkeypatch.setattr(ContextProxy, "cookies", property(lambda _: {}))
    monkeypatch.setattr(ContextProxy, "url", property(lambda _: "http://127.0.0.1:8501/logins"))
    settings.cache_clear()
    yield app_data
    monkeypatch.undo()
    settings.cache_clear()


def test_who_has_access_is_told_by_browser_and_ended_by_a_button(asked: DataFolder) -> None:
    sessions = sessions_of(asked)
    for agent, how in ((AGENT, "link"), (EDGE, "token"), ("curl/8.5.0", "link")):
        sessions.open(Session(how, 1.79e9, agent, "10.0.0.7"))
    test = opened_at("logins")
    text = words_of(test)
    assert "3 browsers have access to this dashboard" in text
    assert all(name in text for name in ("Chrome on Linux", "Edge on Windows", "curl", "from 10.0.0.7", "Let in by the token"))
    assert "Mozilla" not in text
    next(b for b in test.button if b.label == "Log out").click().run()
    assert len(sessions.all()) == 2
    next(b for b in test.button if b.label == "Log out the 2 others").click().run()
    assert sessions.all() == []


def test_the_navigation_leads_to_logins_only_where_somebody_logs_in(asked: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def linked() -> list[str]:
        return [str(element.proto.label) for element in opened_at("runs").sidebar if element.type == "page_link"]

    assert "Logins" in linked()
    monkeypatch.delenv("SAWTOOTH_TOKEN")
    settings.cache_clear()
    assert "Reference" in linked() and "Logins" not in linked()
    assert "nobody logs in" in words_of(opened_at("logins"))


def test_an_invitation_is_a_link_for_one_browser(asked: DataFolder) -> None:
    test = opened_at("logins")
    assert "It logs one browser in: the first that opens it, within a day" in words_of(test)
    test.button[0].click().run()
    code = re.fullmatch(r"http://\S+\?launch=(\S+)", test.code[0].value)
    assert code is not None
    assert "This address opens on this machine only" in words_of(test)
    assert sessions_of(asked).redeem(code[1], None)
    assert not sessions_of(asked).redeem(code[1], None)

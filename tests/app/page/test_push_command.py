"""Tests of the shown command for pushing samples.

It contains this server's address without a page, and no token.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.app.page.live import push_command
from sawtooth.app.server.push import MASK, push_token
from sawtooth.app.settings import Settings
from sawtooth.ingest.schema import DataFolder


class Page:
    """A substitute for Streamlit that stores what a page shows."""

    def __init__(self, url: str | None) -> None:
        self.context = SimpleNamespace(url=url)
        self.components = SimpleNamespace(v2=SimpleNamespace(component=lambda *_, **__: self._keep))
        self.data: dict[str, str] = {}
        self.written: list[str] = []

    def _keep(self, *, key: str, data: dict[str, str]) -> None:
        self.data = data

    def code(self, text: str, **_: Any) -> None:
        self.written.append(text)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://box.test:8642/runs?x=1", "http://box.test:8642"),
        ("http://box.test:8642/no/such/page", "http://box.test:8642"),
        ("https://box.test/nowhere?run=x#y", "https://box.test"),
        ("http://[::1]:8501/", "http://[::1]:8501"),
        (None, "http://localhost:8501"),
    ],
)
def test_the_token_is_copied_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, address: str
) -> None:
    page, options = Page(url), Settings(data=DataFolder(tmp_path), token="a-token-of-this-test")
    monkeypatch.setattr(push_command, "st", page)
    monkeypatch.setattr(push_command, "settings", lambda: options)
    push_command.show("here")
    token = push_token(tmp_path)
    assert page.data["shown"] == f"SAWTOOTH_PUSH_TOKEN={MASK} \\\n  sawtooth sample --push {address}"
    assert page.data["copied"] == f"SAWTOOTH_PUSH_TOKEN={token} \\\n  sawtooth sample --push {address}"
    monkeypatch.setattr(push_command, "settings", lambda: Settings(data=DataFolder(tmp_path), no_token=True))
    push_command.show("here")  # Readers of this page have no token.
    assert page.written == [f"SAWTOOTH_PUSH_TOKEN=… \\\n  sawtooth sample --push {address}"]

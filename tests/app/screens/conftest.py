"""Fixtures of screen tests: without a browser, every picture counts as drawn."""

import pytest


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.app.page.timeline.picture.drawn", lambda: True)

"""What a screen shows once its picture is drawn: no browser is here to tell that it is."""

import pytest


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.app.page.timeline.picture.drawn", lambda: True)

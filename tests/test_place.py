"""Tests of the location of a user's data folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sawtooth.installation import default_data_folder


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({}, "~/.local/share/sawtooth"),
        ({"XDG_DATA_HOME": ""}, "~/.local/share/sawtooth"),  # The XDG specification: empty counts as unset.
        ({"XDG_DATA_HOME": "/data"}, "/data/sawtooth"),
        ({"XDG_DATA_HOME": "/data", "SAWTOOTH_DATA": "/mine"}, "/mine"),
        ({"SAWTOOTH_DATA": ""}, "~/.local/share/sawtooth"),
    ],
)
def test_the_data_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("XDG_DATA_HOME", "SAWTOOTH_DATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_data_folder() == Path(folder).expanduser()

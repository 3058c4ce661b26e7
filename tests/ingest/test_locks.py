"""Tests of file locks, which have one holder and are released even after errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.ingest import locks
from sawtooth.ingest.locks import exclusive_lock


def test_a_lock_has_one_owner_and_is_released_after_an_error(tmp_path: Path) -> None:
    with (tmp_path / "f").open("w") as one, (tmp_path / "f").open("w") as other:
        with pytest.raises(KeyError), exclusive_lock(one):
            with pytest.raises(OSError), exclusive_lock(other, wait=False):
                pytest.fail("held twice")
            raise KeyError
        with exclusive_lock(other.fileno(), wait=False):
            pass


def test_without_fcntl_the_block_runs_unlocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    with (tmp_path / "f").open("w") as one, exclusive_lock(one), exclusive_lock(one):
        one.write("x")
    assert (tmp_path / "f").read_text() == "x"

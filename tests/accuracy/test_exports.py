"""Tests of comparing exports with SQL over their own tables: a difference is detected."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from types import SimpleNamespace

from tests.accuracy.exports import main
from tests.support import nsight_export as export


def test_an_export_with_other_sums_is_rejected(tmp_path, capsys, monkeypatch):
    path = export.write(tmp_path / "a.sqlite", export.tables())
    assert main([str(path)]) == 0
    assert "| GPU 0, kernel time, ms |" in capsys.readouterr().out
    read = sqlite3.connect

    def longer(address, **how):  # The tables have 1 % more than what was read.
        with closing(read(address, **how)) as source:
            copy = read(":memory:")
            source.backup(copy)
        copy.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + (end - start) / 100")
        return copy

    monkeypatch.setattr("tests.accuracy.exports.sqlite3", SimpleNamespace(connect=longer))
    assert main([str(path)]) == 1

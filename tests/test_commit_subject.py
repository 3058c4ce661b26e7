"""Tests of the rules for commit subjects: short, and beginning with an area."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commit_subject import MAX_CHARACTERS, main, problems


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ("docs: explain the replay\n\nWhy.\n", None),
        ("# a comment of git\n\ningest/capture: name the folder\n", None),
        ("docs: " + "x" * (MAX_CHARACTERS - 6), None),
        ("docs: " + "x" * (MAX_CHARACTERS - 5), "73 characters"),
        ("explain the replay", "area"),
        ("docs:explain", "area"),
        ("", "area"),
        ("Merge branch 'topic' into main", None),
        ('Revert "docs: explain the replay"', None),
    ],
)
def test_a_subject_is_short_and_names_its_area(message: str, word: str | None) -> None:
    found = problems(message)
    assert len(found) == (word is not None)
    assert word is None or word in found[0]


def test_the_hook_refuses_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text("explain the replay\n", encoding="utf-8")
    assert main([str(file)]) == 1
    assert "area: what changes" in capsys.readouterr().err
    file.write_text("docs: explain the replay\n", encoding="utf-8")
    assert main([str(file)]) == 0

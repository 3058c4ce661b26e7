"""Tests of notes on places: they are lines of the run's notes and are read back unchanged."""

import pytest

from sawtooth.app.page.runs.editing import NOTES_LENGTH
from sawtooth.app.page.timeline.notes import keep, noted_ranges, with_note
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import run_of


def test_a_note_is_a_line_that_names_its_place() -> None:
    notes = with_note("Slow since the new loader.", 46_244_829, 46_509_939, "  the optimizer, \n again ")
    assert notes == "Slow since the new loader.\n[46.244829 to 46.509939 ms] the optimizer, again"
    assert noted_ranges(notes) == [{"start": 46_244_829, "end": 46_509_939, "text": "the optimizer, again"}]
    assert len(noted_ranges(with_note(notes, 0, 5, "start"))) == 2


def test_typed_text_is_a_place_only_in_the_right_form() -> None:
    assert noted_ranges("[1 to 2] x\n[a to b ms] y\n[1 to 2 ms]\n1 to 2 ms z") == []
    assert noted_ranges("[1 to 2.5 ms] z") == [{"start": 1_000_000, "end": 2_500_000, "text": "z"}]


@pytest.mark.parametrize(("start", "end", "text"), [(0, 1, " "), (2, 1, "x"), (-1, 1, "x"), (float("nan"), 1, "x")])
def test_a_note_without_words_or_place_is_refused(start: float, end: float, text: str) -> None:
    with pytest.raises(UsageError):
        with_note("", start, end, text)


def test_full_notes_are_reported_and_not_cut() -> None:
    with pytest.raises(UsageError):
        with_note("x" * NOTES_LENGTH, 0, 1, "more")


def test_a_note_is_stored_with_the_run(app_data: DataFolder, tmp_path) -> None:
    run = run_of(app_data, matmul_loop().write(tmp_path / "t.json"))
    keep(run, {"start": 1000, "end": 2000, "text": "here"})
    keep(run, {"start": 3000, "end": 4000, "text": "and <b>there</b>"})
    assert [place["text"] for place in noted_ranges(app_data.read_manifest(run).notes)] == ["here", "and <b>there</b>"]

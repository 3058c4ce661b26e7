"""Tests of missing ranks of a job: they are named, for traces and for summaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.ranks.missing_ranks import missing_ranks, missing_ranks_note
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.bulk_synchronous import Planted, job


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("without", "note"),
    [
        ((), None),
        ((2,), "Rank 2 has no trace here."),
        ((0, 3), "2 of 5 ranks (0, 3) have no trace here."),
        ((1, 2, 3, 4), None),  # A run of one recording has a different sentence about its job.
    ],
)
def test_missing_ranks_of_a_job_are_named(tmp_path: Path, without: tuple[int, ...], note: str | None) -> None:
    data = DataFolder(tmp_path / "data").create()
    traces = {i: trace for i, trace in enumerate(job(5, 5, Planted())) if i not in without}
    paths = [trace.write(tmp_path / f"{i}.json") for i, trace in traces.items()]
    (run,) = ingest_into_runs(data, [(path, path.name) for path in paths]).runs
    communication = analyse(run, Library(data)).communication
    notes = communication.notes if communication is not None else ()
    assert [item for item in notes if "no trace here" in item] == ([note] if note else [])


def test_many_missing_ranks_are_counted() -> None:
    assert missing_ranks_note(missing_ranks([0, 1], 20), 20) == "18 of 20 ranks (2, 3, 4, 5, 6, 7, 8, 9 …) have no trace here."
    for numbers, world in (([0, None], 8), ([0], None), ([], 8)):
        assert missing_ranks(numbers, world) == [], "a rank or their number is not known"

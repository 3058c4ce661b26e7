"""Tests of the step strip's table, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.tables import steps
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop


def test_the_owners_of_a_step_sum_to_it_and_lost_time_of_counted_steps_has_its_cause(tmp_path: Path) -> None:
    """Steps take 1 ms: 600 µs on tensor cores, 100 µs elsewhere, and 300 µs of idle time."""
    library = Library(DataFolder(tmp_path / "data"))
    run = ingest_into_runs(library.folder, [(matmul_loop().write(tmp_path / "t.json"), "t.json")]).runs[0]
    lead = analyse(run, library).lead
    assert lead is not None
    with open_rank(library, lead) as rank:
        table = steps.owners(rank)
    library.close()
    counted = table[table["counted"]]
    assert counted.groupby("step")["ms"].sum().tolist() == pytest.approx([1.0] * counted["step"].nunique())
    one = counted[counted["step"] == counted["step"].min()].groupby("owner")["ms"].sum()
    assert one.to_dict() == pytest.approx({"tensor_core_compute": 0.6, "other_compute": 0.1, "idle": 0.3})
    assert counted.loc[counted["owner"] == "idle", "cause"].notna().all()
    assert table.loc[~table["counted"], "cause"].isna().all()


def test_with_more_steps_than_columns_each_column_shows_its_longest_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Steps 1 to 7 take 1 ms, but step 4 takes 3. Of every three these are 1, 4 and 7.
    trace, at = ChromeTrace(), 0
    for number in range(1, 8):
        length = 3000 if number == 4 else 1000
        trace.step(number, at, at + length)
        trace.launch((at + 10, at + 20), (at + 30, at + length - 10), "work")
        at += length
    library = Library(DataFolder(tmp_path / "data"))
    run = ingest_into_runs(library.folder, [(trace.write(tmp_path / "t.json"), "t.json")]).runs[0]
    lead = analyse(run, library).lead
    assert lead is not None
    monkeypatch.setattr(steps, "MAX_STEPS", 3)
    with open_rank(library, lead) as rank:
        complete = rank.rows(
            "SELECT step, end_ns - start_ns FROM steps WHERE device = $device AND end_ns > start_ns ORDER BY step"
        )
        table = steps.owners(rank)
    library.close()
    every = steps.stride(len(complete))
    groups = [complete[i : i + every] for i in range(0, len(complete), every)]
    assert sorted(table["step"].unique()) == [max(group, key=lambda row: (row[1], -row[0]))[0] for group in groups]
    assert len(groups) <= 3 and max(length for _, length in complete) / 1e6 == pytest.approx(
        table.groupby("step")["ms"].sum().max()
    )

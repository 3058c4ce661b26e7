"""The step strip's table by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.tables import steps
from sawtooth.app.jobs.intake import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop


def test_the_owners_of_a_step_sum_to_it_and_lost_time_of_counted_steps_has_its_cause(tmp_path: Path) -> None:
    """Steps of 1 ms: 600 µs on tensor cores, 100 µs elsewhere, and 300 µs in which nothing runs."""
    library = Library(DataFolder(tmp_path / "data"))
    run = bring_in(library.folder, [(matmul_loop().write(tmp_path / "t.json"), "t.json")]).runs[0]
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

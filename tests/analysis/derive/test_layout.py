"""What is added up when asked is what a large recording stores."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sawtooth.analysis.derive import layout, sums
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import SAMPLES


@pytest.mark.parametrize("sample", ["gpt", "resnet_starved"])
def test_views_of_a_recording_hold_what_is_stored_of_a_large_one(
    sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "FEW_EVENTS", 0)
    folder = DataFolder(tmp_path).create()
    ref = ingest_file(next((SAMPLES / sample).glob("*.json.gz")), folder, keep_source=False)
    columns, rows = {}, {}
    with Library(folder) as library:
        for stored in (False, True):
            with library.open(ref.id, sums=stored) as recording:
                for table in layout.summed():
                    columns[table, stored] = recording.rows(f"SELECT column_name, column_type FROM (DESCRIBE {table})")
                    rows[table, stored] = sorted(recording.rows(f"FROM {table}"), key=str)
                    plan = str(recording.rows(f"EXPLAIN FROM {table}"))
                    assert (f".{table}" in plan) == stored, plan
    for table in layout.summed():
        assert columns[table, True] == columns[table, False]
        assert rows[table, True] == rows[table, False]
        assert rows[table, True]


@pytest.mark.parametrize("length_ns", [0, 1, 32_768, 32_769, 65_536, 65_537, 98_304, 10**9 + 7, 86_400 * 10**9])
@pytest.mark.parametrize("cells", [timeline_store.CELLS, timeline_store.NAME_CELLS])
def test_a_view_has_the_grid_that_sums_are_stored_on(length_ns: int, cells: int) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE recording AS SELECT 5::BIGINT AS first_ns, ?::BIGINT AS last_ns", [5 + length_ns])
        assert con.execute(f"SELECT {timeline_store.cell_sql(cells)}").fetchall() == [
            (timeline_store.cell_ns(length_ns, cells),)
        ]

"""What a small recording adds up when asked is what a large one stores."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sawtooth.analysis.derive import build, layout
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import SAMPLES

SUMMED = ("launched", "flop_work", "call_kinds", "host_lanes", "lane_sums", "long_slices", "name_sums")


@pytest.mark.parametrize("sample", ["gpt", "resnet_starved"])
def test_views_of_a_small_recording_hold_what_a_large_one_stores(
    sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = next((SAMPLES / sample).glob("*.json.gz"))
    columns, rows = {}, {}
    for events in (0, layout.FEW_EVENTS):
        monkeypatch.setattr(layout, "FEW_EVENTS", events)
        monkeypatch.setattr(build, "FEW_EVENTS", events)
        folder = DataFolder(tmp_path / str(events)).create()
        ref = ingest_file(trace, folder, keep_source=False)
        ensure_derived(folder, ref.id)
        with Library(folder) as library, library.open(ref.id) as recording:
            for table in SUMMED:
                columns[table, events] = recording.rows(f"SELECT column_name, column_type FROM (DESCRIBE {table})")
                rows[table, events] = sorted(recording.rows(f"FROM {table}"), key=str)
            views = {
                name
                for (name,) in recording.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NOT NULL")
            }
            assert views.issuperset(SUMMED) == bool(events)
    for table in SUMMED:
        assert columns[table, 0] == columns[table, events]
        assert rows[table, 0] == rows[table, events]
        assert rows[table, 0]


@pytest.mark.parametrize("length_ns", [0, 1, 32_768, 32_769, 65_536, 65_537, 98_304, 10**9 + 7, 86_400 * 10**9])
@pytest.mark.parametrize("cells", [timeline_store.CELLS, timeline_store.NAME_CELLS])
def test_a_view_has_the_grid_that_sums_are_stored_on(length_ns: int, cells: int) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE recording AS SELECT 5::BIGINT AS first_ns, ?::BIGINT AS last_ns", [5 + length_ns])
        assert con.execute(f"SELECT {timeline_store.cell_sql(cells)}").fetchall() == [
            (timeline_store.cell_ns(length_ns, cells),)
        ]

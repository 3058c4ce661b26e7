"""What is added up when asked is what a large recording stores."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.analysis.derive import layout, sums
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.sums import ensure_sums
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.files import sweep_all
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT, SAMPLES


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


KILLED = """
import os, signal, sys
from pathlib import Path
from sawtooth.analysis.derive import sums
from sawtooth.ingest.schema import DataFolder
publish = sums.commit
def die(temporary, target):
    if sys.argv[3] == "killed after it":
        publish(temporary, target)
    os.kill(os.getpid(), signal.SIGKILL)
sums.FEW_EVENTS, sums.commit = 0, die
sums.ensure_sums(DataFolder(Path(sys.argv[1])), sys.argv[2])
"""


@pytest.mark.parametrize("fault", ["killed before the rename", "killed after it", "a full disk", "damaged"])
def test_whatever_happens_to_the_sums_a_screen_reads_the_same(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "FEW_EVENTS", 0)
    folder = DataFolder(tmp_path).create()
    ref = ingest_file(next((SAMPLES / "gpt").glob("*.json.gz")), folder, keep_source=False)
    with Library(folder) as library, library.open(ref.id) as recording:
        right = sorted(recording.rows("FROM lane_sums"), key=str)
    stored = sums.sums_file(ensure_derived(folder, ref.id))
    if fault.startswith("killed"):  # one process dies at the rename, another opens the screen after it
        command = [sys.executable, "-c", KILLED, str(tmp_path), ref.id, fault]
        assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == -signal.SIGKILL
        assert stored.exists() == (fault == "killed after it")
    elif fault == "a full disk":

        def full(*_: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(sums, "commit", full)
    else:
        ensure_sums(folder, ref.id)
        stored.write_bytes(stored.read_bytes()[: 1 << 16])
    with Library(folder) as library:
        try:
            rows = lane_sums(library, ref.id)
        except SawtoothError:
            assert fault == "damaged"
            rows = lane_sums(library, ref.id)
    assert rows == right
    assert stored.exists() == (fault != "a full disk")
    sweep_all(folder, older_than_s=0)
    assert sorted(path.suffix for path in folder.derived.iterdir()) == [".duckdb"] * (1 + stored.exists())


def lane_sums(library: Library, recording_id: str) -> list[tuple[Any, ...]]:
    with library.open(recording_id, sums=True) as recording:
        return sorted(recording.rows("FROM lane_sums"), key=str)


@pytest.mark.parametrize("length_ns", [0, 1, 32_768, 32_769, 65_536, 65_537, 98_304, 10**9 + 7, 86_400 * 10**9])
@pytest.mark.parametrize("cells", [timeline_store.CELLS, timeline_store.NAME_CELLS])
def test_a_view_has_the_grid_that_sums_are_stored_on(length_ns: int, cells: int) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE recording AS SELECT 5::BIGINT AS first_ns, ?::BIGINT AS last_ns", [5 + length_ns])
        assert con.execute(f"SELECT {timeline_store.cell_sql(cells)}").fetchall() == [
            (timeline_store.cell_ns(length_ns, cells),)
        ]

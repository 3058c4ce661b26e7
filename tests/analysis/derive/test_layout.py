"""Tests that sums computed on request equal those that a large recording stores."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.analysis.derive import layout, screen_sums
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.screen_sums import ensure_sums
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.files import remove_all_abandoned_drafts
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.runs.proposals import remove_unused
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT, SAMPLES

Rows = list[tuple[Any, ...]]


@pytest.mark.parametrize("sample", ["gpt", "resnet_starved"])
def test_views_equal_the_stored_sums_of_a_large_recording(sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_sums, "MAX_EVENTS_WITHOUT_SUMS", 0)
    folder = DataFolder(tmp_path).create()
    ref = ingest_file(next((SAMPLES / sample).glob("*.json.gz")), folder, keep_source=False)
    columns, rows = {}, {}
    with Library(folder) as library:
        for stored in (False, True):
            with library.open(ref.id, sums=stored) as recording:
                for table in layout.sum_statements():
                    columns[table, stored] = recording.rows(f"SELECT column_name, column_type FROM (DESCRIBE {table})")
                    rows[table, stored] = sorted(recording.rows(f"FROM {table}"), key=str)
                    plan = str(recording.rows(f"EXPLAIN FROM {table}"))
                    assert (f".{table}" in plan) == stored, plan
    for table in layout.sum_statements():
        assert columns[table, True] == columns[table, False]
        assert rows[table, True] == rows[table, False]
        assert rows[table, True]


KILLED = """
import os, signal, sys
from pathlib import Path
from sawtooth.analysis.derive import screen_sums as sums
from sawtooth.ingest.schema import DataFolder
publish = sums.commit
def die(temporary, target):
    if sys.argv[3] == "killed after it":
        publish(temporary, target)
    os.kill(os.getpid(), signal.SIGKILL)
sums.MAX_EVENTS_WITHOUT_SUMS, sums.commit = 0, die
sums.ensure_sums(DataFolder(Path(sys.argv[1])), sys.argv[2])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFolder, str, Rows]:
    """Return a data folder with a derived recording, the recording's id, and its rows of lane_sums."""
    folder = DataFolder(tmp_path_factory.mktemp("made")).create()
    ref = ingest_file(next((SAMPLES / "gpt").glob("*.json.gz")), folder, keep_source=False)
    with Library(folder) as library, library.open(ref.id) as recording:
        return folder, ref.id, sorted(recording.rows("FROM lane_sums"), key=str)


@pytest.fixture
def held(made: tuple[DataFolder, str, Rows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DataFolder, str, Rows]:
    """Return a copy of the data folder whose recording counts as large."""
    monkeypatch.setattr(screen_sums, "MAX_EVENTS_WITHOUT_SUMS", 0)
    return DataFolder(shutil.copytree(made[0].root, tmp_path / "data")), *made[1:]


def lane_sums(library: Library, recording_id: str) -> Rows:
    with library.open(recording_id, sums=True) as recording:
        return sorted(recording.rows("FROM lane_sums"), key=str)


FAULTS = (
    "killed before the rename",
    "killed after it",
    "a full disk",
    "damaged",
    "of another version",
    "within the derived file",
)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_screen_shows_the_same_after_each_fault_in_storing_sums(
    fault: str, held: tuple[DataFolder, str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, recording_id, right = held
    derived = ensure_derived(folder, recording_id)
    stored = screen_sums.sums_file(derived)
    if fault.startswith("killed"):  # One process dies at the rename, another opens the screen after it.
        command = [sys.executable, "-c", KILLED, str(folder.root), recording_id, fault]
        assert subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == -signal.SIGKILL
        assert stored.exists() == (fault == "killed after it")
    elif fault == "a full disk":

        def full(*_: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(screen_sums, "commit", full)
    elif fault == "of another version":
        before = folder.derived_file(recording_id, 1)
        derived.rename(before)
        screen_sums.sums_file(before).write_bytes(b"sums")
    elif fault == "within the derived file":  # Sums were stored there earlier.
        with duckdb.connect() as con:
            con.execute(f"ATTACH '{folder.recording_file(recording_id)}' AS r (READ_ONLY); ATTACH '{derived}' AS d")
            con.execute("SET search_path = 'd.main,r.main'")
            for table in layout.sum_statements():
                con.execute(f"CREATE TABLE stored AS FROM {table}; DROP VIEW {table}; ALTER TABLE stored RENAME TO {table}")
    else:
        ensure_sums(folder, recording_id)
        stored.write_bytes(stored.read_bytes()[: 1 << 16])
    with Library(folder) as library:
        try:
            rows = lane_sums(library, recording_id)
        except SawtoothError:
            assert fault == "damaged"
            rows = lane_sums(library, recording_id)
    assert rows == right
    remove_all_abandoned_drafts(folder, older_than_s=0)
    beside = [] if fault in ("a full disk", "within the derived file") else [stored]
    assert sorted(folder.derived.iterdir()) == [derived, *beside]


def test_concurrent_readers_make_the_same_sums(held: tuple[DataFolder, str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, recording_id, right = held
    commit, all_made = screen_sums.commit, threading.Barrier(3, timeout=60)

    def together(temporary: Path, target: Path) -> None:
        all_made.wait()
        commit(temporary, target)

    def screen(_: int) -> Rows:
        with Library(folder) as library:  # The library queries in a separate process.
            return lane_sums(library, recording_id)

    monkeypatch.setattr(screen_sums, "commit", together)
    with ThreadPoolExecutor(3) as processes:
        assert list(processes.map(screen, range(3))) == [right] * 3
    assert len(list(folder.derived.iterdir())) == 2


def test_sums_are_deleted_with_a_recording_that_is_removed_meanwhile(
    held: tuple[DataFolder, str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, recording_id, _ = held
    commit = screen_sums.commit

    def too_late(temporary: Path, target: Path) -> None:
        remove_unused(folder, {recording_id})
        commit(temporary, target)

    with monkeypatch.context() as patched:
        patched.setattr(screen_sums, "commit", too_late)
        assert ensure_sums(folder, recording_id) is None
    assert [*folder.recordings.iterdir(), *folder.derived.iterdir()] == []


@pytest.mark.parametrize("length_ns", [0, 1, 32_768, 32_769, 65_536, 65_537, 98_304, 10**9 + 7, 86_400 * 10**9])
@pytest.mark.parametrize("cells", [timeline_store.MAX_CELLS, timeline_store.NAME_CELLS])
def test_a_view_has_the_grid_of_the_stored_sums(length_ns: int, cells: int) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE recording AS SELECT 5::BIGINT AS first_ns, ?::BIGINT AS last_ns", [5 + length_ns])
        assert con.execute(f"SELECT {timeline_store.cell_sql(cells)}").fetchall() == [
            (timeline_store.cell_ns(length_ns, cells),)
        ]

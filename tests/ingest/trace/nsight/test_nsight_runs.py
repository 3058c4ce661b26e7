"""Tests of the analysis and comparison of runs from Nsight Systems exports."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import new_manifest
from sawtooth.ingest.recording import ingest_file
from tests.support import nsight_export as export
from tests.support.paths import SHARED

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


def union_ns(intervals):
    total = reached = 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


@pytest.mark.parametrize("path", sorted((SHARED / "formats").glob("nsys*.sqlite")) if SHARED else [], ids=lambda p: p.stem)
def test_the_busy_share_equals_that_of_the_tables(folder, path):
    ref = ingest_file(path, folder)
    library = Library(folder)
    result = analyse(new_manifest([ref], "nsight"), library)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as export_database:
        tables = {name for (name,) in export_database.execute("SELECT name FROM sqlite_master")}
        work = [t for t in (KERNEL, *(f"CUPTI_ACTIVITY_KIND_{w}" for w in ("MEMCPY", "MEMSET", "GRAPH_TRACE"))) if t in tables]
        (base,) = export_database.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
        for rank in result.ranks:
            with library.open(ref.id) as recording:
                windows = recording.rows("SELECT start_ns, end_ns FROM windows WHERE device = ?", [rank.device])
            cut = [
                (max(start + base, a), min(end + base, b))
                for table in work
                for start, end in export_database.execute(f"SELECT start, end FROM {table} WHERE deviceId = ?", [rank.device])
                for a, b in windows
                if start + base < b and end + base > a
            ]
            # Without steps, the time before the first and after the last operation also counts.
            first, last = rank.trace.span_ns
            assert rank.window_ns == (sum(b - a for a, b in windows) if rank.steps["counted"].any() else last - first)
            assert rank.metrics["gpu_busy_share"].value == pytest.approx(union_ns(cut) / rank.window_ns, rel=1e-3)
    library.close()


def test_two_exports_are_compared(tmp_path, folder):
    """The second export has the steps of the first with all times stretched by 1.4."""
    slower = export.tables()
    for rows in slower.values():
        for row in rows:
            if "start" in row:
                row["start"] = row["start"] * 14 // 10
                row["end"] = row["end"] and row["end"] * 14 // 10
    library = Library(folder)
    runs = [
        analyse(new_manifest([ingest_file(export.write(tmp_path / f"{i}.sqlite", tables), folder)], str(i)), library)
        for i, tables in enumerate((export.tables(), slower))
    ]
    assert [run.metrics["step_time_ms"].value for run in runs] == pytest.approx([1.0, 1.4])
    compared = compare(*(side_of([run], library) for run in runs))
    assert [float(ns) for ns in compared.profile_ns] == pytest.approx([1e6, 1.4e6])
    assert sum(row.change_ns for row in compared.waterfall) == pytest.approx(0.4e6)
    library.close()


def test_samples_during_the_profile_do_not_give_the_unprofiled_step(tmp_path, folder):
    tables = export.tables()
    export.add_metrics(tables)
    library = Library(folder)
    ref = ingest_file(export.write(tmp_path / "a.sqlite", tables), folder)
    result = analyse(new_manifest([ref], "nsight"), library)
    assert result.lead.telemetry.means["sm_active_pct"] == pytest.approx(45, abs=10)  # 90 % of half the time
    assert result.lead.best.source != "telemetry"
    library.close()


def test_an_export_without_steps_has_advice_to_mark_them(tmp_path, folder):
    tables = export.tables()
    tables["NVTX_EVENTS"] = []
    for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        tables[name] = tables[name][:1]
    ref = ingest_file(export.write(tmp_path / "export.sqlite", tables), folder)
    library = Library(folder)
    (finding,) = [f for f in analyse(new_manifest([ref], "nsight"), library).findings if f.rule == "steps-not-marked"]
    assert finding.fix == "Mark each step with an NVTX range."
    assert "nvtx.range" in finding.changes[0].after
    library.close()

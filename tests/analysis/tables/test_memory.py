"""Tests of memory over time by hand, and of its screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables.memory import ALLOCATED_BEFORE, memory_use, operators_at_peak
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import opened, words_of


def with_allocations(folder: Path, totals: bool) -> Path:
    """Add allocations of +100, +300 and −300 bytes on the GPU, at 10, 20 and 30 µs.

    One allocation on the host does not count.
    """
    trace = matmul_loop()
    held = 0
    for at, size in ((10, 100), (20, 300), (30, -300)):
        held += size
        args = {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": size}
        if totals:
            args |= {"Total Allocated": held, "Total Reserved": 1000}
        trace.events.append(
            {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": args}
        )
    host = {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 10**9, "Total Allocated": 10**9}
    trace.events.append(
        {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 15, "args": host}
    )
    return trace.write(folder / "memory.json")


@pytest.mark.parametrize("totals", [True, False])
def test_the_peak_is_the_largest_simultaneous_allocation(tmp_path: Path, totals: bool) -> None:
    library = Library(DataFolder(tmp_path / "data"))
    run = ingest_into_runs(library.folder, [(with_allocations(tmp_path, totals), "memory.json")]).runs[0]
    with library.open(run.recordings[0].id) as recording:
        use = memory_use(RankView(recording, 0, 0))
        held = operators_at_peak(RankView(recording, 0, 0), use)
    library.close()
    assert use is not None
    assert use.peak_bytes == 400
    assert list(use.allocated) == [100, 400, 100]
    assert use.relative is not totals
    assert use.reserved_peak_bytes == (1000 if totals else None)
    assert use.unused_share == (pytest.approx(0.6) if totals else None)
    assert (use.allocations, use.allocated_bytes) == (2, 400)
    # the second allocation lies where the first did; at 20 µs aten::mm runs, from 10 to 60 µs
    assert held.to_dict("list") == {
        "operator": ["aten::mm", ALLOCATED_BEFORE],
        "bytes": [300, 100],
        "allocations": [1, 0],
        "share": [0.75, 0.25],
    }


def test_the_screen_shows_the_peak(app_data: DataFolder, tmp_path: Path) -> None:
    run = ingest_into_runs(app_data, [(with_allocations(tmp_path, True), "memory.json")]).runs[0].id
    text = words_of(opened("memory", run))
    assert "Tensors take at most 400\u00a0B of the GPU" in text
    assert ": 75\u00a0% by mm" in text
    assert "No call in the steady steps allocates or frees device memory" in text
    rows = opened("work", run, by="Operator", columns="true").dataframe[0].value
    assert rows.set_index("operator")["held_mib"].dropna().to_dict() == {"aten::mm": 300 / 2**20}


def test_without_allocations_it_says_how_to_record_them(app_data: DataFolder, tmp_path: Path) -> None:
    run = ingest_into_runs(app_data, [(matmul_loop().write(tmp_path / "t.json"), "t.json")]).runs[0].id
    test = opened("memory", run)
    assert "memory use is not recorded" in words_of(test)
    assert any("sawtooth run --memory" in code.value for code in test.code)

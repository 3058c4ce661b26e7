"""Tests of a timeline view's sums: they equal the sum of its slices, to the nanosecond."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline, timeline_tiles
from sawtooth.analysis.tables.timeline import TimelineSpan, span_of_ms
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support import findings_of as common
from tests.support.chrome_trace import ChromeTrace


def test_spans() -> None:
    entire = TimelineSpan(1000, 2000)
    assert TimelineSpan(500, 1500).within(entire) == TimelineSpan(1000, 1500)
    assert TimelineSpan(5000, 6000).within(entire) == entire
    assert TimelineSpan(1400, 1600).zoomed(2, entire) == TimelineSpan(1300, 1700)
    assert span_of_ms(2.0, 1.0, 0) == TimelineSpan(1_000_000, 2_000_000)
    assert span_of_ms(1.0, 1.0, 0).ns == 1000
    assert TimelineSpan(1000, 3000).relative_ms(0) == (pytest.approx(0.001), pytest.approx(0.003))


def lost_read(recording: Recording, table: str, kind: str, view: TimelineSpan) -> dict[tuple[str, str], int]:
    """Sum the parts of pieces in view from the pieces alone."""
    part = f"least(end_ns, {view.end_ns}) - greatest(start_ns, {view.start_ns})"
    rows = recording.rows(
        f"SELECT owner, {kind}, sum({part})::BIGINT FROM {table} WHERE device = 0 AND start_ns < {view.end_ns} AND end_ns > {view.start_ns} GROUP BY ALL"
    )
    return {(owner, kind): ns for owner, kind, ns in rows}


def names_read(recording: Recording, rows: str, view: TimelineSpan) -> dict[str, tuple[int, int, float]]:
    """Sum operations in view by name from the operations alone: how many, ns, the longest."""
    part = f"least(start_ns + dur_ns, {view.end_ns}) - greatest(start_ns, {view.start_ns})"
    found = recording.rows(
        f"SELECT name, count(*), sum({part})::BIGINT, max(dur_ns) FROM {rows} JOIN names USING (name_id) "
        f"WHERE start_ns < {view.end_ns} AND start_ns + dur_ns > {view.start_ns} GROUP BY 1"
    )
    return {name: rest for name, *rest in found}


def views(entire: TimelineSpan) -> list[TimelineSpan]:
    """Return views to test: the whole, borders of cells ± 1 ns, and views too short for sums."""
    cell, rng = timeline_store.cell_ns(entire.ns), random.Random(7)
    found = [entire, TimelineSpan(entire.start_ns - 5, entire.end_ns + 5)]
    found += [TimelineSpan(entire.start_ns + 3 * cell + by, entire.start_ns + 4000 * cell + by) for by in (-1, 0, 1)]
    found += [TimelineSpan(entire.start_ns + 700 * cell + 1, entire.start_ns + n * cell) for n in (701, 702, 703, 704)]
    for _ in range(12):
        start = entire.start_ns + rng.randrange(entire.ns)
        found.append(TimelineSpan(start, start + rng.randrange(1, int(entire.ns * rng.choice((1, 0.1, 0.001))))))
    return found


def test_the_sums_of_a_view_equal_the_sums_of_its_pieces(gpt: Recording) -> None:
    # short gaps are summed; long ones are stored one by one
    assert gpt.rows("SELECT count(*) FROM lane_sums WHERE source = 'gaps'")[0][0] > 100
    for view in views(timeline.extent(gpt)):
        owned = lost_read(gpt, "segments", "owner", view)
        facts = timeline.facts_in_view(RankView(gpt, 0, 0), view)
        if not owned:
            assert facts is None
            continue
        assert facts is not None
        lost_ns = sum(ns for (owner, _), ns in owned.items() if owner in LOST_OWNERS)
        assert facts.works_share == (sum(owned.values()) - lost_ns) / view.ns
        assert sum(ms for *_, ms in facts.lost) + facts.uncounted_ms == pytest.approx(lost_ns / 1e6, abs=1e-6)
        wanted = lost_read(gpt, "gaps", "cause", view)
        if wanted:
            assert {(owner, cause): ms for owner, cause, ms in facts.lost} == {key: ns / 1e6 for key, ns in wanted.items()}
        for table, rows, count in (
            (timeline.operations_in_view(RankView(gpt, 0, 0), view), timeline_store.GPU, "operations"),
            (timeline.operators_in_view(gpt, view), timeline_store.HOST, "calls"),
        ):
            read = names_read(gpt, rows, view)
            assert len(table) == min(len(read), 200)
            for row in table.to_dict("records"):
                assert (row[count], round(row["ms"] * 1e6), row["longest_us"] * 1e3) == pytest.approx(
                    tuple(read[row["name"]]), rel=1e-12
                )


def test_sums_include_the_waits_that_other_ranks_show() -> None:
    # Exposed communication is divided into waiting and transfer when a run is read. No view may show it as it is in the
    # file.
    split_rank = next(rank for rank in common.result_of("ddp_straggler").ranks if "comm_wait" in rank.exposed_causes)
    with open_rank(common.library(), split_rank) as rank:
        recording = rank.recording
        entire = timeline.extent(recording)
        for view in (entire, TimelineSpan(entire.start_ns + entire.ns // 3, entire.end_ns)):
            wanted = lost_read(recording, "gaps", "cause", view)
            assert ("exposed_comm", "comm_wait") in wanted
            facts = timeline.facts_in_view(rank, view)
            assert facts is not None
            assert {(owner, cause): ms for owner, cause, ms in facts.lost} == {key: ns / 1e6 for key, ns in wanted.items()}
        drawn = timeline_tiles.tile(recording, "gaps", rank.device, 40, 0)
        assert int(drawn.slices["dur_ns"].sum() + drawn.sums["busy_ns"].sum()) == sum(
            lost_read(recording, "gaps", "cause", entire).values()
        )


def test_lanes_show_the_owner_of_the_ledger(tmp_path: Path) -> None:
    # Copies and fills are recorded as kernels, and one kernel name means two operations, depending on the launching
    # operator. No operations overlap.
    trace = ChromeTrace()
    matrices = [[64, 64], [64, 64]]
    for at in trace.each_step(3, 1000):
        trace.launch((at + 2, at + 5), (at + 20, at + 120), "__amd_rocclr_copyBufferAligned")
        trace.launch((at + 6, at + 9), (at + 120, at + 170), "__amd_rocclr_fillBufferAligned")
        trace.op("aten::mm", at + 10, at + 20, matrices, ["c10::BFloat16"] * 2)
        trace.launch((at + 12, at + 15), (at + 200, at + 500), "product")
        trace.op("aten::mm", at + 30, at + 40, matrices, ["double"] * 2)
        trace.launch((at + 32, at + 35), (at + 500, at + 540), "product")
    folder = DataFolder(tmp_path / "data").create()
    written = trace.write(tmp_path / "trace.json")
    recording_id = ingest_into_runs(folder, [(written, written.name)]).runs[0].traces[0].id
    ensure_derived(folder, recording_id)
    library = Library(folder)
    with library.open(recording_id) as recording:
        entire = timeline.extent(recording)
        drawn = timeline_tiles.tile(recording, "gpu", 0, 20, 0)
        by_name = timeline.operations_in_view(RankView(recording, 0, 0), entire)
        owned = dict(
            recording.rows("SELECT owner, sum(end_ns - start_ns)::BIGINT FROM segments WHERE owner <> 'idle' GROUP BY 1")
        )
        exceptions = recording.rows("SELECT count(*) FROM owner_exceptions")[0][0]
    library.close()
    assert owned == {"exposed_memcpy": 300_000, "memset": 150_000, "tensor_core_compute": 900_000, "other_compute": 120_000}
    assert drawn.complete
    assert drawn.slices.groupby("kind")["dur_ns"].sum().to_dict() == owned
    assert exceptions == 3, "three operations have another owner than most of their name"
    assert dict(zip(by_name["name"], by_name["kind"], strict=True))["__amd_rocclr_copyBufferAligned"] == "exposed_memcpy"

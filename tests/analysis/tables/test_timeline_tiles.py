"""Tests of timeline tiles against the recording: no slice is lost or counted twice.

Slices that are summed are shorter than a column.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from sawtooth.analysis.derive import timeline_sums as store
from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline, timeline_tiles
from sawtooth.analysis.tables.timeline_tiles import COLUMNS, MAX_SINGLE_SLICES, SOURCES, TimelineTile, tile
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support import findings_of as common
from tests.support import nsight_export
from tests.support.bulk_synchronous import Planted, job
from tests.support.chrome_trace import ChromeTrace
from tests.support.paths import RECORDINGS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    made = Library(DataFolder(tmp_path_factory.mktemp("tiles") / "data"))
    yield made
    made.close()


def ingested(library: Library, trace) -> str:
    recording_id = ingest_into_runs(library.folder, [(trace, trace.name)]).runs[0].traces[0].id
    ensure_derived(library.folder, recording_id)
    return recording_id


@pytest.fixture(params=["gpt", "stacks"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return request.getfixturevalue(request.param)


def every_slice(recording: Recording, source: str, device: int = 0) -> pd.DataFrame:
    """Return every slice of a source, read from the events.

    ``start`` and ``end`` are ns after the recording's start.
    """
    rows = store.SLICES.get(source, f"(SELECT *, 0 AS depth FROM {store.GAPS})")
    origin = timeline.extent(recording).start_ns
    return recording.frame(
        f"SELECT lane, depth, kind, start_ns - {origin} AS start, start_ns - {origin} + dur_ns AS end FROM {rows} "
        f"WHERE {f'device = {device}' if source in ('gpu', 'gaps') else 'true'}"
    )


def places(recording: Recording) -> list[tuple[int, int]]:
    """Return levels and positions of tiles to test.

    They cover the whole recording in one tile, borders of cells, and levels too close for sums.
    """
    entire, rng = timeline.extent(recording).ns, random.Random(17)
    found = [(max(entire // COLUMNS, 1).bit_length(), 0)]
    for level in range(4, entire.bit_length() - 9):
        last = entire // (COLUMNS << level)
        found += [(level, rng.randint(0, last)), (level, last)]
    return found


@pytest.mark.sweep(3)
@pytest.mark.parametrize("source", SOURCES)
def test_a_tile_contains_every_slice_that_touches_it_once(recording: Recording, source: str) -> None:
    events = every_slice(recording, source)
    for level, index in places(recording):
        check_slices(tile(recording, source, 0, level, index), events)


def check_slices(read: TimelineTile, events: pd.DataFrame) -> None:
    begin, end = read.start_ns, read.start_ns + (COLUMNS << read.level)
    touching = events[(events["start"] < end) & ((events["end"] > begin) | (events["start"] >= begin))]
    long = touching["end"] - touching["start"] >= 1 << read.level
    assert len(read.slices) == (len(touching) if read.complete else long.sum())
    short = touching[~long & (touching["start"] >= begin)]  # A short slice belongs to the column in which it begins.
    assert int(read.sums["operations"].sum()) == (0 if read.complete else len(short))
    assert int(read.sums["busy_ns"].sum()) == (0 if read.complete else (short["end"] - short["start"]).sum())
    assert set(read.slices["name_id"].dropna()) <= set(read.names)


@contextmanager
def two_ranks(library: Library, folder: Path) -> Iterator[RankView]:
    """Return the late one of two ranks, whose lost time depends on both."""
    traces = job(2, 2, Planted(loader_us={1: 800.0}))
    files = [(trace.write(folder / f"{rank}.json"), f"{rank}.json") for rank, trace in enumerate(traces)]
    result = analyse(ingest_into_runs(library.folder, files).runs[0], library)
    with open_rank(library, result.ranks[0]) as view:
        yield view


@contextmanager
def nsight(library: Library, folder: Path) -> Iterator[RankView]:
    """The second GPU of an export of Nsight Systems."""
    with library.open(
        ingested(library, nsight_export.write(folder / "two.sqlite", nsight_export.tables(devices=(0, 1))))
    ) as recording:
        yield RankView(recording, 1, 0)


@contextmanager
def host_alone(library: Library, folder: Path) -> Iterator[RankView]:
    """Nested operators of two threads and no GPU."""
    trace, chance = ChromeTrace(), random.Random(4)
    for trace.thread in (1, 2):
        at = 0.0
        for _ in range(60):
            length = 10 ** chance.uniform(0, 3)
            trace.op("aten::linear", at, at + length)
            trace.op("aten::addmm", at + length / 4, at + length / 2)
            at += length + chance.uniform(0, 50)
    with library.open(ingested(library, trace.write(folder / "host.json"))) as recording:
        yield RankView(recording, 0, 0)


@contextmanager
def without_steps(library: Library, folder: Path) -> Iterator[RankView]:
    with common.library().open(common.recording_of(RECORDINGS / "gpt_no_steps" / "trace.json.gz")) as recording:
        yield RankView(recording, 0, 0)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("odd", [two_ranks, nsight, host_alone, without_steps])
def test_tiles_of_odd_recordings_are_correct(odd, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_tiles, "MAX_SINGLE_SLICES", 0)  # Then small recordings are summed like large ones.
    chance, summed = random.Random(8), 0
    with odd(library, tmp_path) as view:
        for source in SOURCES:
            events = every_slice(view.recording, source, view.device)
            for level, index in chance.sample(places(view.recording), 5):
                read = tile(view.recording, source, view.device, level, index)
                check_slices(read, events)
                summed += len(read.sums)
    assert summed


@pytest.mark.sweep(3)
@pytest.mark.parametrize("source", SOURCES)
def test_each_column_sums_the_slices_that_begin_in_it(recording: Recording, source: str) -> None:
    events = every_slice(recording, source)
    for level, index in places(recording):
        read = tile(recording, source, 0, level, index)
        if read.complete:
            continue
        assert len(read.slices) + read.sums["operations"].sum() > MAX_SINGLE_SLICES
        begin = read.start_ns
        short = events[(events["end"] - events["start"] < 1 << level) & (events["start"] >= begin)]
        short = short[short["start"] < begin + (COLUMNS << level)]
        column = (short["start"] - begin) // (1 << level)
        wanted = (short["end"] - short["start"]).groupby([short["lane"], short["depth"], column]).sum()
        drawn = read.sums.set_index(["lane", "depth", "column"])["busy_ns"]
        assert drawn.sort_index().tolist() == wanted.sort_index().tolist()


def test_busy_share_of_a_range_is_exact_to_a_column(gpt: Recording) -> None:
    # The picture is compared with the union of the stream's operations, which do not overlap.
    events, rng = every_slice(gpt, "gpu"), random.Random(5)
    level = (timeline.extent(gpt).ns // 1200).bit_length() - 1  # The whole recording on 1,200 pixels.
    read = [tile(gpt, "gpu", 0, level, i) for i in range(3)]
    busy = sum(int(t.sums["busy_ns"].sum()) for t in read) + sum(
        int(t.slices[(t.slices["start_ns"] >= t.start_ns)]["dur_ns"].sum()) for t in read
    )
    assert busy == (events["end"] - events["start"]).sum()
    for _ in range(20):
        first, last = sorted(rng.sample(range(1, 1200), 2))
        begin, end = first << level, last << level
        wanted = (events["end"].clip(upper=end) - events["start"].clip(lower=begin)).clip(lower=0).sum()
        drawn = 0
        for t in read:
            at = t.start_ns + t.sums["column"] * (1 << level)
            drawn += int(t.sums["busy_ns"][(at >= begin) & (at < end)].sum())
            own = t.slices[t.slices["start_ns"] >= t.start_ns]
            ends = (own["start_ns"] + own["dur_ns"]).clip(upper=end)
            drawn += int((ends - own["start_ns"].clip(lower=begin)).clip(lower=0).sum())
        assert abs(drawn - wanted) <= 2 << level  # At each border, a slice may begin in one column and end in the next.


def test_an_invalid_tile_is_refused(gpt: Recording) -> None:
    for source, level, index in (("gpus", 10, 0), ("gpu", 53, 0), ("gpu", -1, 0), ("gpu", 10, -1), ("gpu", 10, 1 << 60)):
        with pytest.raises(UsageError):
            tile(gpt, source, 0, level, index)
    assert tile(gpt, "gpu", 0, 10, 1 << 40).complete  # The tile is after the end of the recording.
    assert tile(gpt, "gpu", 5, 10, 0).slices.empty  # A device without work.


@pytest.mark.parametrize("small", [True, False])
def test_a_copy_of_unknown_cause_is_drawn_as_a_copy(
    small: bool, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not attributed is idle time without a known cause.
    monkeypatch.setattr(timeline_tiles, "is_small", lambda recording: small)
    trace = ChromeTrace()
    for k in range(4):
        trace.launch((100.0 * k, 100.0 * k + 1), (100.0 * k + 2, 100.0 * k + 92), "Memcpy HtoD (Pinned -> Device)")
    with library.open(ingested(library, trace.write(tmp_path / "copies.json"))) as recording:
        unexplained = recording.rows(
            "SELECT sum(end_ns - start_ns)::BIGINT FROM gaps WHERE owner <> 'idle' AND cause = 'unattributed'"
        )
        assert unexplained[0][0]
        for level in (6, 20):
            read = [tile(recording, "gaps", 0, level, i) for i in range((400_000 >> level) // COLUMNS + 1)]
            kinds = {kind for t in read for part in (t.slices, t.sums) for kind in part["kind"]}
            assert "exposed_memcpy" in kinds
            assert (
                recording.rows("SELECT count(*) FROM gaps WHERE owner = 'idle' AND cause = 'unattributed'")[0][0]
                or "unattributed" not in kinds
            )


def test_slices_of_zero_length_are_included(library: Library, tmp_path) -> None:
    trace = ChromeTrace()
    for k in range(3):
        trace.step(k + 1, 1000 * k, 1000 * k + 1000)
        trace.launch((1000 * k + 2, 1000 * k + 2), (1000 * k + 20, 1000 * k + 20), "empty")
    with library.open(ingested(library, trace.write(tmp_path / "trace.json"))) as recording:
        read = tile(recording, "gpu", 0, 20, 0)
        assert (len(read.slices), read.complete) == (3, True)
        assert len(tile(recording, "gpu", 0, 12, 0).slices) == 3

"""Tests of properties of the reader: the notation of a trace does not change its numbers.

A truncated trace leaves a clean prefix.
"""

from __future__ import annotations

import bisect
import gzip
import io
import itertools
import json
import random
from collections import Counter
from decimal import Decimal
from operator import itemgetter

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from sawtooth.ingest.decode import NULL, decimal_ns, integers
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.link import LaunchLinks, Nesting, enclosing
from sawtooth.ingest.trace.spool import INDEX_STRIDE, Spool, SpooledTable, slices, time_order
from sawtooth.ingest.trace.torch_json.columns import KINDS
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.text.events import FLOWS
from tests.support import sound_trace
from tests.support.paths import SAMPLES, SHARED
from tests.support.recorded_tables import read

REAL = sorted([*SHARED.glob("peer_traces/*.json.gz"), *SHARED.glob("recordings/*/*trace.json.gz")])
BUNDLED = sorted(SAMPLES.glob("**/*trace.json.gz"))


def pieces(content, sizes):
    stream = io.BytesIO(content)
    for size in sizes:
        if not (piece := stream.read(size)):
            return
        yield piece
    while piece := stream.read(64):
        yield piece


def plain(document):
    """Return every event as read; of flow arrows only their existence, since they are not decoded."""
    events = [e for block in document.events() for e in block]
    return [(e.ph,) if e.ph in FLOWS else (e.ph, e.cat, e.name, bytes(e.ts), bytes(e.dur), bytes(e.args)) for e in events]


@settings(max_examples=150, deadline=None)
@given(
    block=st.integers(1, 3000),
    sizes=st.lists(st.integers(1, 700), max_size=40),
    indent=st.sampled_from([None, 0, 2]),
    tail=st.booleans(),
)
def test_block_and_piece_borders_change_nothing(block, sizes, indent, tail):
    extra = (
        {"distributedInfo": {"pg_config": [{"a": [{"b": 1}, {"c": 2}]}, {"d": "}, {"}]}, "traceName": "a}]b"} if tail else {}
    )
    events = [*sound_trace.sound_events(2), sound_trace.event(name='odd }, { ] " \\ name', x=[{"name": "n"}, {"ph": "X"}])]
    content = json.dumps({"schemaVersion": 1, "traceEvents": events, **extra}, indent=indent).encode()
    whole = Document(iter([content]), Limits())
    expected = plain(whole)
    cut = Document(pieces(content, sizes), Limits(), block_bytes=block)
    assert plain(cut) == expected and len(expected) == len(events)
    assert cut.metadata == whole.metadata == {"schemaVersion": 1, **extra}
    assert not cut.truncated and not cut.notes


FORMS = {
    "seed": st.integers(0, 10**6),
    "indent": st.sampled_from([None, 1]),
    "packed": st.booleans(),
    "absolute": st.booleans(),
}


@settings(max_examples=8, deadline=None)
@given(**FORMS)
def test_order_and_form_of_the_file_do_not_matter(tmp_path_factory, sound, seed, indent, packed, absolute):
    check_form(tmp_path_factory, sound, seed, indent, packed, absolute)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**FORMS)
def test_order_and_form_of_the_file_do_not_matter_at_length(tmp_path_factory, sound, seed, indent, packed, absolute):
    check_form(tmp_path_factory, sound, seed, indent, packed, absolute)


def check_form(tmp_path_factory, sound, seed, indent, packed, absolute):
    """Check that the form of a trace does not change its tables.

    Events are permuted, keys reordered, text indented or compact, and times absolute or relative to a base.
    """
    shuffled = random.Random(seed)
    events = sound_trace.sound_events()
    shuffled.shuffle(events)
    events = [dict(shuffled.sample(list(e.items()), len(e))) for e in events]
    document = sound_trace.sound(events)
    content = json.dumps(document, indent=indent).encode()
    if absolute:  # Unix microseconds with three decimals, which no float can hold
        del document["baseTimeNanoseconds"]
        for e in events:
            e["ts"] = f"@{(Decimal(sound_trace.BASE) / 1000 + Decimal(str(e['ts']))):f}@"
        content = json.dumps(document, indent=indent).replace('"@', "").replace('@"', "").encode()
    root = tmp_path_factory.mktemp("form")
    (root / "t").write_bytes(gzip.compress(content) if packed else content)
    folder = DataFolder(root / "data")
    tables, _, truncated = read(folder, ingest_file(root / "t", folder))
    assert tables == sound and not truncated


def test_every_cut_gives_a_clean_prefix():
    content = json.dumps(sound_trace.sound(sound_trace.sound_events(1)), indent=1).encode()
    expected = plain(Document(iter([content]), Limits()))
    counts = []
    for cut in range(len(content)):
        document = Document(iter([content[:cut]] if cut else []), Limits(), block_bytes=700)
        try:
            found = plain(document)
        except SourceError as refusal:
            assert refusal.code in ("E-TRUNC", "E-EMPTY"), (cut, refusal)
            continue
        assert found == expected[: len(found)]
        assert document.truncated
        counts.append(len(found))
    assert counts == sorted(counts) and counts[-1] == len(expected)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(sound_trace.GOOD)), st.integers(0, 80))
def test_damage_anywhere_is_survived(junk, at, gone):
    """Damage at any place gives events or a refusal, and nothing else."""
    content = sound_trace.GOOD[:at] + junk + sound_trace.GOOD[at + gone :]
    try:
        found = plain(Document(pieces(content, [100] * 30), Limits(), block_bytes=900))
    except SourceError as refusal:
        assert refusal.code.startswith("E-")
    else:
        assert len(found) <= 4 * len(content)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(10**15) + 1, 10**15 - 1), st.integers(0, 999), st.integers(0, 3), st.booleans()), max_size=30
    )
)
def test_times_are_exact(numbers):
    written, expected = [], []
    for whole, thousandths, decimals, quoted in numbers:
        fraction = f"{thousandths:03d}"[:decimals]
        number = f"{whole}.{fraction}" if fraction else f"{whole}"
        sign = -1 if number.startswith("-") else 1
        expected.append(whole * 1000 + sign * int((fraction or "0").ljust(3, "0")))
        written.append(Raw((f'"{number}"' if quoted else number).encode()))
    assert decimal_ns(written).tolist() == expected


def test_odd_numbers():
    texts = [
        b"",
        b"null",
        b'"x"',
        b"1e3",
        b"1.5e-3",
        b"0.0005",
        b"0.0015",
        b"1.",
        b".5",
        b"-0.001",
        b"12345678901234567890",
        b'"1\\n2"',
        b"true",
    ]
    # 0.0005 us is 0.5 ns: half to even gives 0; 0.0015 us is 1.5 ns: gives 2
    wanted = [NULL, NULL, NULL, 10**6, 2, 0, 2, 1000, 500, -1, 1 << 62, NULL, NULL]
    assert decimal_ns([Raw(t) for t in texts]).tolist() == wanted
    assert integers([1, "2", 3.0, None, "x", 2**70, True, float("nan")]).tolist() == [1, 2, 3, NULL, NULL, NULL, 1, NULL]


intervals = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 30)), max_size=40)


def arrays(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] if rows else [np.empty(0, np.int64)] * 3
    return columns[0].astype(np.int32), columns[1], columns[2]


def in_order(rows):
    thread, start, dur = arrays(rows)
    order = time_order(start, dur)
    return thread[order], start[order], dur[order]


@settings(max_examples=400, deadline=None)
@example([(0, 0, 2), (0, 2, 0)], [(0, 1, 1)], 0, [1])  # a call in a slice before its first operator
@given(intervals, intervals, st.sampled_from([0, 1]), st.lists(st.integers(0, 70), max_size=4))
def test_nesting_matches_the_definition(ops, calls, tolerance, borders):
    """The nesting of operators agrees with its definition, tried over all pairs.

    The parent is the innermost earlier interval of the same thread that encloses this one.
    """
    thread, start, dur = in_order(ops)
    call_thread, call_start, call_dur = in_order(calls)
    nesting, parents, depths, around = Nesting(tolerance), [], [], []
    borders = [-1, *sorted(borders), 1000]
    for low, high in itertools.pairwise(borders):  # slices of time, as a large trace is read
        rows, asked = (start >= low) & (start < high), (call_start >= low) & (call_start < high)
        nested = nesting.add(thread[rows], start[rows], dur[rows], low)
        parent, depth = nested.parents_and_depths()
        parents += parent.tolist()
        depths += depth.tolist()
        around += enclosing(nested, call_thread[asked], call_start[asked], call_dur[asked], tolerance).tolist()
    end = start + dur
    for i in range(len(start)):
        outer = [j for j in range(i) if thread[j] == thread[i] and end[j] > start[i] and end[j] + tolerance >= end[i]]
        assert parents[i] == max(outer, default=-1)
        assert depths[i] == (0 if parents[i] < 0 else depths[parents[i]] + 1)
    for k, found in enumerate(around):
        stop = call_start[k] + call_dur[k]
        holds = [
            i
            for i in range(len(start))
            if thread[i] == call_thread[k] and start[i] <= call_start[k] and end[i] + tolerance >= stop
        ]
        if found >= 0:
            assert found in holds
        if not _overlapped(thread, start, dur) and tolerance == 0 and call_dur[k] > 0:
            assert found == max(holds, default=-1)


def _overlapped(thread, start, dur):
    """Return whether intervals of one thread overlap without nesting.

    "Innermost" then has no clear meaning.
    """
    pairs = ((i, j) for j in range(len(start)) for i in range(j) if thread[i] == thread[j])
    return any(start[i] < start[j] < start[i] + dur[i] < start[j] + dur[j] for i, j in pairs)


def test_launches_prefer_the_last_call_before_the_operation():
    launches = LaunchLinks(np.array([5, 5, 0, NULL, 9]), np.array([100, 300, 50, 60, 400]))
    found = launches.rows_for(np.array([5, 5, 5, 0, NULL, 9, 7]), np.array([150, 350, 50, 100, 100, 380, 1]))
    # before any call with its correlation, an operation takes the first one; 0, missing and unknown find none
    assert found.tolist() == [0, 1, 0, -1, -1, 4, -1]
    assert launches.repeated == 1
    assert LaunchLinks(np.empty(0, np.int64), np.empty(0, np.int64)).rows_for(np.array([3]), np.array([1])).tolist() == [-1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=300),
    st.integers(1, 60),
    st.sampled_from([0, 400, 1 << 30]),
)
def test_a_spool_returns_every_row_in_order(tmp_path_factory, rows, run_rows, memory):
    """A spool returns every row in the order of a stable sort.

    This holds for any size of runs, in memory or on disk.
    """
    spool = Spool(tmp_path_factory.mktemp("spool"), memory)
    table = SpooledTable(spool, run_rows)
    for i in range(0, len(rows), 7):
        part = rows[i : i + 7]
        start, dur = (np.array(column, np.int64) for column in zip(*part, strict=True))
        table.add({"start": start, "dur": dur, "place": np.arange(i, i + len(part))})
    found = [columns["place"] for (columns,) in slices(table, slice_rows=INDEX_STRIDE) if columns]
    wanted = sorted(range(len(rows)), key=lambda i: (rows[i][0], -rows[i][1]))
    assert [i for part in found for i in part.tolist()] == wanted
    assert table.rows == len(rows)
    spool.close()


def test_slices_of_tables_share_their_borders(tmp_path):
    # Rows of two tables that start at the same time are in the same slice, however unevenly the tables are filled.
    spool = Spool(tmp_path, 0)
    many, few = SpooledTable(spool, 3 * INDEX_STRIDE), SpooledTable(spool, 100)
    times = np.random.default_rng(1).integers(0, 10**6, 10 * INDEX_STRIDE)
    many.add({"start": times, "dur": np.zeros(len(times), np.int64)})
    few.add({"start": times[:50], "dur": np.zeros(50, np.int64)})
    last, count = -1, 0
    for one, two in slices(many, few, slice_rows=2 * INDEX_STRIDE):
        starts = np.concatenate([columns["start"] for columns in (one, two) if columns])
        assert starts.min() > last
        last, count = starts.max(), count + 1
        assert len(starts) < 5 * INDEX_STRIDE
    assert count >= 4
    spool.close()


def by_category(path):
    """Count complete events per table, with the standard library's parser alone."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events = document["traceEvents"] if isinstance(document, dict) else document
    counts = Counter(KINDS.get(str(e.get("cat")).lower(), "").replace("operator", "op") for e in events if e.get("ph") == "X")
    counts["memory"] = sum(e.get("ph") in ("i", "I") and e.get("name") == "[memory]" for e in events)
    return counts


@pytest.mark.sweep(5)
@pytest.mark.parametrize("path", [None, *REAL, *BUNDLED], ids=lambda p: f"{p.parent.name}/{p.name}"[-60:] if p else "synthetic")
def test_counts_match_the_standard_library(tmp_path, path):
    if path is None:
        path = tmp_path / "trace.json.gz"
        path.write_bytes(sound_trace.PACKED)
    counts = by_category(path)
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:

        def count(sql):
            return con.execute(f"SELECT count(*) FROM {sql}").fetchall()[0][0]

        found = {
            "op+annotation": count("cpu_ops"),
            "call": count("runtime_calls"),
            "kernel": count("gpu_ops WHERE kind = 'kernel'"),
            "memcpy": count("gpu_ops WHERE kind = 'memcpy'"),
            "memset": count("gpu_ops WHERE kind = 'memset'"),
            "gpu_annotation": count("gpu_annotations"),
            "python": count("python_calls"),
            "sync": count("syncs"),
            "overhead": count("overheads"),
            "memory": count("allocations"),
        }
        assert (
            count(
                "cpu_ops AS child JOIN cpu_ops AS parent ON child.parent_id = parent.cpu_op_id WHERE child.start_ns < parent.start_ns"
            )
            == 0
        )
    wanted = {key: counts[key] for key in found if "+" not in key} | {"op+annotation": counts["op"] + counts["annotation"]}
    assert found == wanted


def links_by_hand(path):
    """Return (start, launch start, name of the operator around the launch) of each GPU operation.

    They are found by plain search over the file.
    """
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, parse_int=str)
    base = int(document.get("baseTimeNanoseconds", 0))
    events = [e | {"begin": int(Decimal(e["ts"]) * 1000) + base, "end": int((Decimal(e["ts"]) + Decimal(e["dur"])) * 1000) + base} for e in document["traceEvents"] if e["ph"] == "X"]  # fmt: skip
    kinds = {id(e): KINDS.get(e["cat"].lower()) for e in events}
    operators: dict[tuple[str, str], list[dict]] = {}
    calls = {}
    for e in sorted(events, key=lambda e: (e["begin"], -e["end"])):
        if kinds[id(e)] in ("op", "annotation"):
            operators.setdefault((e["pid"], e["tid"]), []).append(e)
        elif kinds[id(e)] == "call":
            calls[e["args"].get("correlation")] = e
    found = []
    for e in events:
        if kinds[id(e)] in ("kernel", "memcpy", "memset"):
            call = calls.get(e["args"].get("correlation"))
            here = operators.get((call["pid"], call["tid"]), []) if call else []
            begun = bisect.bisect_right(here, call["begin"], key=itemgetter("begin")) if call else 0
            around = next((here[i]["name"] for i in reversed(range(begun)) if call["end"] <= here[i]["end"]), None)
            found.append((e["begin"], call and call["begin"], around))
    return sorted(found, key=str)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("path", [None, *BUNDLED], ids=lambda p: p.parent.name if p else "synthetic")
def test_links_match_a_slow_search(tmp_path, path):
    if path is None:
        path = tmp_path / "trace.json.gz"
        path.write_bytes(sound_trace.PACKED)
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    sql = """SELECT gpu_ops.start_ns, runtime_calls.start_ns, names.name FROM gpu_ops LEFT JOIN runtime_calls USING (call_id)
             LEFT JOIN cpu_ops ON cpu_ops.cpu_op_id = gpu_ops.cpu_op_id LEFT JOIN names ON names.name_id = cpu_ops.name_id"""
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        assert sorted(con.execute(sql).fetchall(), key=str) == links_by_hand(path)

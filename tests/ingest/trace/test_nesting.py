"""Tests of nesting, launch links and spools by their definitions."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.trace.link import LaunchLinks, Nesting, enclosing_ids
from sawtooth.ingest.trace.spool import INDEX_STRIDE, Spool, SpooledTable, slices, time_order

intervals = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 30)), max_size=40)


def arrays(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] if rows else [np.empty(0, np.int64)] * 3
    return columns[0].astype(np.int32), columns[1], columns[2]


def in_order(rows):
    thread, start, dur = arrays(rows)
    order = time_order(start, dur)
    return thread[order], start[order], dur[order]


@settings(max_examples=400, deadline=None)
@example([(0, 0, 2), (0, 2, 0)], [(0, 1, 1)], 0, [1])  # A call in a slice before its first operator.
@given(intervals, intervals, st.sampled_from([0, 1]), st.lists(st.integers(0, 70), max_size=4))
def test_nesting_matches_the_definition(ops, calls, tolerance, borders):
    """The parent of an interval is the innermost earlier interval of the thread that encloses it."""
    thread, start, dur = in_order(ops)
    call_thread, call_start, call_dur = in_order(calls)
    nesting, parents, depths, found_parents = Nesting(tolerance), [], [], []
    borders = [-1, *sorted(borders), 1000]
    for low, high in itertools.pairwise(borders):  # A large trace is read in such slices of time.
        rows, call_rows = (start >= low) & (start < high), (call_start >= low) & (call_start < high)
        nested = nesting.add(thread[rows], start[rows], dur[rows], low)
        parent, depth = nested.parents_and_depths()
        parents += parent.tolist()
        depths += depth.tolist()
        found_parents += enclosing_ids(
            nested, call_thread[call_rows], call_start[call_rows], call_dur[call_rows], tolerance
        ).tolist()
    end = start + dur
    for i in range(len(start)):
        outer = [j for j in range(i) if thread[j] == thread[i] and end[j] > start[i] and end[j] + tolerance >= end[i]]
        assert parents[i] == max(outer, default=-1)
        assert depths[i] == (0 if parents[i] < 0 else depths[parents[i]] + 1)
    for k, found in enumerate(found_parents):
        stop = call_start[k] + call_dur[k]
        enclosing = [
            i
            for i in range(len(start))
            if thread[i] == call_thread[k] and start[i] <= call_start[k] and end[i] + tolerance >= stop
        ]
        if found >= 0:
            assert found in enclosing
        if not overlapped(thread, start, dur) and tolerance == 0 and call_dur[k] > 0:
            assert found == max(enclosing, default=-1)


def overlapped(thread, start, dur):
    """Return whether intervals of one thread overlap without nesting.

    Then no interval is clearly the innermost.
    """
    pairs = ((i, j) for j in range(len(start)) for i in range(j) if thread[i] == thread[j])
    return any(start[i] < start[j] < start[i] + dur[i] < start[j] + dur[j] for i, j in pairs)


def test_launches_prefer_the_last_call_before_the_operation():
    launches = LaunchLinks(np.array([5, 5, 0, NULL, 9]), np.array([100, 300, 50, 60, 400]))
    found = launches.rows_for(np.array([5, 5, 5, 0, NULL, 9, 7]), np.array([150, 350, 50, 100, 100, 380, 1]))
    # An operation before all calls of its correlation gets the first call. For correlation 0, a missing or an unknown one, there is no call.
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
    """A spool returns every row in the order of a stable sort, for any size of runs, in memory or on disk."""
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

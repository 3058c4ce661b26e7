"""Tests of interval arithmetic against a bitmap of single nanoseconds, an independent implementation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sawtooth.analysis.intervals import Intervals, assign_layers, complement, difference, intersect, overlaps, union

SPAN = 60
interval_lists = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 20)), max_size=12)


def bitmap(pairs: list[tuple[int, int]]) -> np.ndarray:
    bits = np.zeros(SPAN + 25, bool)
    for start, length in pairs:
        bits[start : start + length] = True
    return bits


def bits_of(found: Intervals) -> np.ndarray:
    return bitmap([(int(s), int(e - s)) for s, e in zip(found.starts, found.ends, strict=True)])


def made(pairs: list[tuple[int, int]]) -> Intervals:
    return union([s for s, _ in pairs], [s + n for s, n in pairs])


@given(interval_lists)
def test_union_covers_the_same_instants_and_is_minimal(pairs):
    found = made(pairs)
    assert (bits_of(found) == bitmap(pairs)).all()
    assert found.total == bitmap(pairs).sum()
    assert (found.starts[1:] > found.ends[:-1]).all()  # Disjoint, sorted, and touching neighbours merged.
    assert (found.ends > found.starts).all()


@given(interval_lists, interval_lists)
def test_set_operations_equal_the_bitmap(a, b):
    x, y = made(a), made(b)
    assert (bits_of(intersect(x, y)) == (bitmap(a) & bitmap(b))).all()
    assert (bits_of(difference(x, y)) == (bitmap(a) & ~bitmap(b))).all()
    inside = np.zeros(SPAN + 25, bool)
    inside[5:50] = True
    free = complement(x, 5, 50)
    assert (bits_of(free) == (~bitmap(a) & inside)).all()
    for found in (free, intersect(x, y), difference(x, y)):
        assert (found.ends > found.starts).all()  # Sets contain no empty interval.


@given(interval_lists, interval_lists)
def test_overlaps_of_overlapping_intervals_keep_their_index(a, b):
    raw = Intervals(np.array([s for s, _ in a], np.int64), np.array([s + n for s, n in a], np.int64))
    starts, ends, in_a, in_b = overlaps(raw, made(b))
    total = sum(int((bitmap([pair]) & bitmap(b)).sum()) for pair in a)
    assert int((ends - starts).sum()) == total
    assert (starts >= raw.starts[in_a]).all() and (ends <= raw.ends[in_a]).all()
    assert (ends <= made(b).ends[in_b]).all() and (ends > starts).all()


@given(st.lists(interval_lists, max_size=4))
def test_paint_gives_every_instant_one_owner_in_order_of_priority(layers):
    starts, ends, owner = assign_layers([made(layer) for layer in layers], 3, SPAN)
    assert int((ends - starts).sum()) == SPAN - 3
    assert (starts[1:] == ends[:-1]).all()
    for instant in range(3, SPAN):
        piece = int(np.searchsorted(ends, instant, side="right"))
        expected = next((i for i, layer in enumerate(layers) if bitmap(layer)[instant]), len(layers))
        assert owner[piece] == expected


def test_empty_and_reversed_intervals_cover_nothing():
    assert union([5, 9], [5, 7]).total == 0
    assert difference(union([], []), union([1], [2])).total == 0

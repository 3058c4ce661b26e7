"""Tests that the ledger sums to the window exactly, whatever overlaps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sawtooth.analysis.derive.lost import ledger
from sawtooth.analysis.intervals import union
from sawtooth.analysis.knowledge.owners import OWNER_KEYS

TENSOR, OTHER, MEMSET, COMM, MEMCPY, IDLE = range(len(OWNER_KEYS))

ops = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40), st.integers(0, 4)), max_size=30)


def painted(rows, window):
    start = np.array([r[0] for r in rows], np.int64)
    end = np.array([r[0] + r[1] for r in rows], np.int64)
    return ledger.segments(start, end, np.array([r[2] for r in rows], np.int8), window)


@given(ops, st.integers(0, 100), st.integers(1, 150))
def test_owners_sum_to_the_window(rows, begin, length):
    window = union([begin], [begin + length])
    owned = ledger.owner_ns(painted(rows, window), window)
    assert sum(owned.values()) == length
    busy = union([r[0] for r in rows], [r[0] + r[1] for r in rows])
    covered = sum(max(0, min(e, begin + length) - max(s, begin)) for s, e in zip(busy.starts, busy.ends, strict=True))
    assert length - owned["idle"] == covered


def test_the_hull_of_operations_and_window_is_painted():
    # One operation starts before the window and one after it. The segments have no gaps from the first start to the last end.
    parts = painted([(2, 3, OTHER), (90, 5, COMM)], union([20], [50]))
    assert parts.starts.tolist() == [2, 5, 90] and parts.ends.tolist() == [5, 90, 95]
    assert parts.owner.tolist() == [OTHER, IDLE, COMM]
    inside = painted([(25, 5, OTHER)], union([20, 40], [30, 50]))
    assert (inside.starts[0], inside.ends[-1]) == (20, 50)
    absolute = painted([(1_700_000_000_000_000_000, 5, OTHER)], union([], []))
    assert (absolute.starts[0], absolute.ends[-1]) == (1_700_000_000_000_000_000, 1_700_000_000_000_000_005)
    below_zero = painted([(-50, 5, OTHER)], union([-60], [-20]))
    assert (below_zero.starts[0], below_zero.ends[-1]) == (-60, -20)


def test_empty_ledger_has_no_segments():
    parts = painted([], union([], []))
    assert len(parts.starts) == len(parts.ends) == len(parts.owner) == 0
    assert ledger.owner_ns(parts, union([], [])) == dict.fromkeys(OWNER_KEYS, 0)


def test_priority_by_hand():
    # Tensor 0–10, other 5–15, communication 12–20, copy 18–25, window 0–30:
    # tensor 10, other 10–15 = 5, exposed communication 15–20 = 5, exposed copy 20–25 = 5, idle 25–30 = 5.
    rows = [(0, 10, TENSOR), (5, 10, OTHER), (12, 8, COMM), (18, 7, MEMCPY)]
    window = union([0], [30])
    assert ledger.owner_ns(painted(rows, window), window) == {
        "tensor_core_compute": 10, "other_compute": 5, "memset": 0, "exposed_comm": 5, "exposed_memcpy": 5, "idle": 5,
    }  # fmt: skip

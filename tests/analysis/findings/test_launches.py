"""Membership in intervals by search in sorted columns says what comparing each with each says."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from sawtooth.analysis.findings.launches import Keys, Moments
from sawtooth.analysis.findings.within import reach

SEEDS = range(8)


def _intervals(seed: int) -> tuple[np.ndarray, ...]:
    """Return threads and moments, and threads, starts and ends of intervals that nest, overlap, touch and repeat; some are empty."""
    random = np.random.default_rng(seed)
    thread, moment = random.integers(0, 3, 200).astype(np.int32), random.integers(0, 60, 200)
    of, start = random.integers(0, 4, 12).astype(np.int32), random.integers(0, 60, 12)
    return thread, moment, of, start, start + random.integers(0, 9, 12)


def _inside(seed: int) -> list[int]:
    thread, moment, of, start, end = _intervals(seed)
    return [i for i in range(len(moment)) if ((of == thread[i]) & (start <= moment[i]) & (moment[i] < end)).any()]


@pytest.mark.parametrize("seed", SEEDS)
def test_moments_within_intervals(seed: int) -> None:
    thread, moment, of, start, end = _intervals(seed)
    rows = np.arange(len(moment)) + 1000
    found = Moments(thread, moment, rows).within(of, start, end)
    assert sorted((found - 1000).tolist()) == _inside(seed), "each once"


@pytest.mark.parametrize("seed", SEEDS)
def test_reach_in_sql(seed: int) -> None:
    thread, moment, of, start, end = _intervals(seed)
    con = duckdb.connect()
    con.execute("CREATE TABLE m AS SELECT unnest(?::BIGINT[]) AS id, unnest(?::INTEGER[]) AS thread_id, unnest(?::BIGINT[]) AS start_ns",
                [list(range(len(moment))), thread.tolist(), moment.tolist()])  # fmt: skip
    con.execute("CREATE TABLE i AS SELECT unnest(?::INTEGER[]) AS thread_id, unnest(?::BIGINT[]) AS start_ns, unnest(?::BIGINT[]) AS end_ns",
                [of.tolist(), start.tolist(), end.tolist()])  # fmt: skip
    sql = f"SELECT id FROM m ASOF JOIN ({reach('i')}) r ON r.thread_id = m.thread_id AND m.start_ns >= r.start_ns WHERE m.start_ns < r.end_ns"
    assert sorted(row[0] for row in con.execute(sql).fetchall()) == _inside(seed)


def test_rows_by_key() -> None:
    keys = Keys(np.array([7, 3, 7, 5, 3]), np.array([10, 11, 12, 13, 14]))
    assert sorted(keys.of(np.array([7, 7, 4, 5])).tolist()) == [10, 12, 13], "asked twice, given once; 4 is nobody's"
    assert not len(keys.of(np.array([], np.int64)))
    assert not len(
        Moments(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)).within(*(np.ones(1, np.int64),) * 3)
    )

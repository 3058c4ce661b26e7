"""Tests of interval membership by search in sorted columns, against comparing all pairs."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from sawtooth.analysis.findings.recorded.interval_sql import with_latest_end
from sawtooth.analysis.findings.recorded.launches import CountedLaunches, Moments, RowsByKey
from tests.support.findings_of import library, recording_of
from tests.support.paths import RECORDINGS

SEEDS = range(8)


def _intervals(seed: int) -> tuple[np.ndarray, ...]:
    """Return threads and moments, and the threads, starts and ends of random intervals.

    The intervals nest, overlap, touch and repeat; some are empty.
    """
    random = np.random.default_rng(seed)
    thread, moment = random.integers(0, 3, 200).astype(np.int32), random.integers(0, 60, 200)
    of, start = random.integers(0, 4, 12).astype(np.int32), random.integers(0, 60, 12)
    return thread, moment, of, start, start + random.integers(0, 9, 12)


def _inside(seed: int) -> list[int]:
    thread, moment, of, start, end = _intervals(seed)
    return [i for i in range(len(moment)) if ((of == thread[i]) & (start <= moment[i]) & (moment[i] < end)).any()]


@pytest.mark.parametrize("seed", SEEDS)
def test_times_within_intervals(seed: int) -> None:
    thread, moment, of, start, end = _intervals(seed)
    rows = np.arange(len(moment)) + 1000
    found = Moments(thread, moment, rows).within(of, start, end)
    assert sorted((found - 1000).tolist()) == _inside(seed), "each once"


@pytest.mark.parametrize("seed", SEEDS)
def test_interval_join_in_sql(seed: int) -> None:
    thread, moment, of, start, end = _intervals(seed)
    con = duckdb.connect()
    con.execute("CREATE TABLE m AS SELECT unnest(?::BIGINT[]) AS id, unnest(?::INTEGER[]) AS thread_id, unnest(?::BIGINT[]) AS start_ns",
                [list(range(len(moment))), thread.tolist(), moment.tolist()])  # fmt: skip
    con.execute("CREATE TABLE i AS SELECT unnest(?::INTEGER[]) AS thread_id, unnest(?::BIGINT[]) AS start_ns, unnest(?::BIGINT[]) AS end_ns",
                [of.tolist(), start.tolist(), end.tolist()])  # fmt: skip
    sql = f"SELECT id FROM m ASOF JOIN ({with_latest_end('i')}) r ON r.thread_id = m.thread_id AND m.start_ns >= r.start_ns WHERE m.start_ns < r.end_ns"
    assert sorted(row[0] for row in con.execute(sql).fetchall()) == _inside(seed)


def test_rows_by_key() -> None:
    keys = RowsByKey(np.array([7, 3, 7, 5, 3]), np.array([10, 11, 12, 13, 14]))
    assert sorted(keys.of(np.array([7, 7, 4, 5])).tolist()) == [10, 12, 13], "asked twice, given once; 4 is nobody's"
    assert not len(keys.of(np.array([], np.int64)))
    assert not len(
        Moments(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)).within(*(np.ones(1, np.int64),) * 3)
    )


@pytest.fixture(scope="module")
def recorded():
    """Return rows of a real training for the count of launches.

    They are the operators by id, every second GPU operation with its launch, and the ``CountedLaunches`` of these.
    """
    with library().open(recording_of(RECORDINGS / "mlp_eager" / "trace.json.gz")) as recording:
        operators = recording.rows(
            "SELECT thread_id, start_ns, start_ns + dur_ns, kind, sequence_number, name, depth FROM named_cpu_ops ORDER BY cpu_op_id"
        )
        launched = recording.rows(
            "SELECT g.gpu_op_id, g.cpu_op_id, c.thread_id, c.start_ns FROM gpu_ops g LEFT JOIN runtime_calls c USING (call_id) "
            "WHERE g.gpu_op_id % 2 = 1 AND g.gpu_op_id > 20 ORDER BY g.gpu_op_id"
        )
        yield operators, launched, CountedLaunches(recording, np.array([row[0] for row in launched]))


def _open_at(operators: list, asked: list[int], thread: int, moment: int) -> bool:
    return any(operators[i][0] == thread and operators[i][1] <= moment < operators[i][2] for i in asked)


def _during(operators: list, launched: list, asked: list[int]) -> list[int]:
    return [
        at for at, (_, _, thread, ns) in enumerate(launched) if thread is not None and _open_at(operators, asked, thread, ns)
    ]


def test_launches_of_a_training(recorded) -> None:
    operators, launched, launches = recorded
    asked = [i for i, row in enumerate(operators) if row[5] in ("aten::linear", "aten::addmm") and row[1] > launched[40][3]][:8]
    ids = np.array(asked)
    launchers = {row[1] for row in launched if row[1] is not None}
    some = sorted(launchers)[5:12]
    assert sorted(launches.by(np.array(some)).tolist()) == [at for at, row in enumerate(launched) if row[1] in some]
    assert sorted(launches.launched_during(ids).tolist()) == _during(operators, launched, asked) != []
    begun = [i for i, row in enumerate(operators) if row[3] == "op" and _open_at(operators, asked, row[0], row[1])]
    assert sorted(launches.operators_begun_in(ids).tolist()) == begun and set(asked) < set(begun)
    threads = {operators[i][0] for i in asked}
    spans = {t: (min(operators[i][1] for i in asked if operators[i][0] == t), max(operators[i][2] for i in asked if operators[i][0] == t)) for t in threads}  # fmt: skip
    between = [i for i, row in enumerate(operators) if row[3] == "op" and row[0] in spans and spans[row[0]][0] <= row[1] < spans[row[0]][1]]  # fmt: skip
    assert sorted(launches.operators_begun_between(ids).tolist()) == between and len(between) > len(begun)


def test_launches_inside_backward(recorded) -> None:
    operators, launched, launches = recorded
    nodes = [i for i, row in enumerate(operators) if row[5].startswith("autograd::engine::evaluate_function")]
    outermost = [i for i in nodes if operators[i][6] == 0]
    assert sorted(launches.launched_in_backward().tolist()) == _during(operators, launched, outermost) != []
    asked = [i for i, row in enumerate(operators) if row[5] == "aten::addmm"][:4]
    numbers = {operators[i][4] for i in asked} - {None}
    theirs = [i for i in nodes if operators[i][4] in numbers]
    assert (
        numbers
        and sorted(launches.launched_in_backward_of(np.array(asked)).tolist()) == _during(operators, launched, theirs) != []
    )
    unnumbered = [i for i, row in enumerate(operators) if row[4] is None and row[3] == "op"][:3]
    assert unnumbered and not len(launches.launched_in_backward_of(np.array(unnumbered)))


def test_no_operations_have_no_launches(recorded) -> None:
    operators, _, _ = recorded
    with library().open(recording_of(RECORDINGS / "mlp_eager" / "trace.json.gz")) as recording:
        none = CountedLaunches(recording, np.zeros(0, np.int64))
        everything = np.arange(len(operators))
        assert (
            not len(none.by(everything)) and not len(none.launched_during(everything)) and not len(none.launched_in_backward())
        )

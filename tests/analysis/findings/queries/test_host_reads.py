"""Tests of GPU operations that only serve host reads, computed by hand, and of their cost.

The time for many reads among many operators must not grow with the product of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from sawtooth.analysis.findings.queries.host_reads import ops_only_for_reads
from sawtooth.analysis.store.library import Recording
from sawtooth.ingest.schema import schema_sql

OPERATORS, STEPS = 10, 20_000  # Ids are in the order of starts. Two threads take steps alternately.
# In each step, id 0 is the annotation, 1 to 5 are additions, 6 and 7 norms, 8 the read and 9 the call inside it. All but the first launch one operation.
TRAINING = f"""
INSERT INTO names VALUES (0, 'ProfilerStep#1'), (1, 'aten::add'), (6, 'aten::norm'), (8, 'aten::item'), (9, 'aten::_local_scalar_dense');
CREATE TEMP TABLE made AS SELECT i AS id, i % {OPERATORS} AS place, i - place AS step_id, i // {OPERATORS} % 2 AS thread_id FROM range({OPERATORS * STEPS}) t(i);
INSERT INTO cpu_ops (cpu_op_id, kind, name_id, thread_id, start_ns, dur_ns, parent_id, depth)
    SELECT id, if(place = 0, 'annotation', 'op'), CASE WHEN place BETWEEN 1 AND 5 THEN 1 WHEN place = 7 THEN 6 ELSE place END, thread_id, id * 10,
        CASE place WHEN 0 THEN 100 WHEN 8 THEN 19 ELSE 9 END, CASE place WHEN 0 THEN NULL WHEN 9 THEN id - 1 ELSE step_id END, (place > 0)::INTEGER FROM made;
INSERT INTO runtime_calls SELECT id, 1, thread_id, id * 10 + 2, 3, id, id, (place > 0)::INTEGER FROM made;
INSERT INTO gpu_ops (gpu_op_id, kind, name_id, device, stream, start_ns, dur_ns, call_id) SELECT id, 'kernel', 1, 0, 7, id * 10 + 5, 4, id FROM made WHERE place > 0;
CREATE VIEW named_cpu_ops AS FROM cpu_ops JOIN names USING (name_id)"""


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with duckdb.connect() as con:
        con.execute(f"{schema_sql()} {TRAINING}")
        yield SimpleNamespace(recording=Recording(con, "training"))


def waiting(every: int) -> tuple[int, ...]:
    """Return the calls of reads in every n-th step."""
    return tuple(range(9, OPERATORS * STEPS, OPERATORS * every))


@pytest.mark.parametrize("every", [1, 3, STEPS])
def test_work_directly_before_a_read_is_needed_only_for_it(context: Any, every: int) -> None:
    # Each step has two norms, the read and the calls inside it. The additions before them and reads that do not wait are not included.
    assert ops_only_for_reads(context, waiting(every)) == tuple(call - back for call in waiting(every) for back in (3, 2, 1, 0))


def test_no_call_means_no_operation(context: Any) -> None:
    assert ops_only_for_reads(context, ()) == ops_only_for_reads(context, (3,)) == ()  # 3 is in an addition


def test_another_read_does_not_search_all_operators(context: Any) -> None:
    """Twenty times as many reads take little longer.

    So reads are not compared with every operator of their thread.
    """
    assert spent_s(context, waiting(1)) < 6 * spent_s(context, waiting(20))


def spent_s(context: Any, calls: tuple[int, ...]) -> float:
    """Return the least processor time of three queries."""
    spent = []
    for _ in range(3):
        began = process_time()
        ops_only_for_reads(context, calls)
        spent.append(process_time() - began)
    return min(spent)

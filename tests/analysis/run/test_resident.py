"""Tests of the time in which a GPU's units are busy in counted steps, and of its cost."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.run import recorded_work

RESIDENT = queries_of(recorded_work.__file__)["resident"]
KERNEL, WITHIN, FROM_HOST = 1, 2, 3  # names
TABLES = """CREATE TABLE gpu_ops (kind VARCHAR, name_id INTEGER, device INTEGER, start_ns BIGINT, dur_ns BIGINT, call_id BIGINT, graph_id BIGINT);
    CREATE TABLE gpu_op_steps (step INTEGER); CREATE TABLE runtime_calls (call_id BIGINT, gpu_ops INTEGER);
    CREATE TABLE steps (device INTEGER, step INTEGER, counted BOOLEAN);
    INSERT INTO steps VALUES (0, 0, false), (0, 1, true), (1, 1, false); INSERT INTO runtime_calls VALUES (8, 1), (9, 2)"""

Row = tuple[str, int, int, int]  # Kind, name, start, duration.


def resident(
    rows: list[Row], *, device: int = 0, step: int | None = 1, call: int | None = 8, graph: int | None = None
) -> tuple[int, ...]:
    """Return the result of ``RESIDENT`` for GPU 0, while ``rows`` run on ``device`` and GPU 1 works."""
    with duckdb.connect() as con:
        con.execute(TABLES)
        con.execute("INSERT INTO gpu_ops VALUES ('kernel', 1, 1, 0, 1000, 8, NULL); INSERT INTO gpu_op_steps VALUES (1)")
        for kind, name, start, length in rows:
            con.execute("INSERT INTO gpu_ops VALUES (?, ?, ?, ?, ?, ?, ?)", [kind, name, device, start, length, call, graph])
            con.execute("INSERT INTO gpu_op_steps VALUES (?)", [step])
        return con.execute(RESIDENT, {"device": 0, "within": [WITHIN]}).fetchall()[0]


APART = [("kernel", KERNEL, 100, 50), ("memcpy", WITHIN, 150, 30), ("memset", 4, 200, 5)]
UNDER_ONE = [("kernel", KERNEL, 100, 100), ("kernel", KERNEL, 110, 10), ("kernel", KERNEL, 150, 20), ("memset", 4, 160, 5)]


@pytest.mark.parametrize(
    ("rows", "of", "expected"),
    [
        pytest.param(APART, {}, (0, 50, 2, 35), id="fills and copies between kernels are work"),
        pytest.param(UNDER_ONE, {}, (2, 130, 0, 0), id="beside the longest, not the last before"),
        pytest.param([("memcpy", FROM_HOST, 100, 900), *UNDER_ONE[:1]], {}, (0, 100, 0, 0), id="copies from the host are elsewhere"),
        pytest.param(APART, {"graph": 1}, (0, 50, 0, 35), id="a graph's need no dispatch"),
        pytest.param(UNDER_ONE, {"graph": 1}, (0, 130, 0, 0), id="nor do kernels of one"),
        pytest.param(APART, {"call": 9}, (0, 50, 0, 35), id="a call that launched several is a graph's"),
        pytest.param(UNDER_ONE, {"call": None}, (2, 130, 0, 0), id="launched before the recording"),
        pytest.param(APART, {"step": 0}, (0, 0, 0, 0), id="a step that is not counted"),
        pytest.param(APART, {"step": None}, (0, 0, 0, 0), id="outside steps"),
        pytest.param(APART, {"device": 1}, (0, 0, 0, 0), id="another GPU's"),
        pytest.param([], {}, (0, 0, 0, 0), id="nothing"),
    ],
)  # fmt: skip
def test_overlapping_operations_are_classified(rows: list[Row], of: dict[str, int | None], expected: tuple[int, ...]) -> None:
    assert resident(rows, **of) == expected


def test_millions_of_operations_need_no_more_memory(tmp_path: Path) -> None:
    """Two million overlapping operations, each with its own call, need no more than 32 MB.

    Nothing is spilled to disk. A page's limit is for ten million operations and more.
    """
    count = 2_000_000
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{tmp_path / 'r.duckdb'}' AS r; USE r; {TABLES}")
        con.execute(
            f"""INSERT INTO gpu_ops SELECT if(i % 10 = 9, 'memset', 'kernel'), {KERNEL}, 0, i * 1000, 1500, i + 10, NULL FROM range({count}) t(i);
                INSERT INTO gpu_op_steps SELECT i % 1000 FROM range({count}) t(i);
                INSERT INTO runtime_calls SELECT i + 10, 1 FROM range({count}) t(i);
                INSERT INTO steps SELECT 0, i, true FROM range(2, 1000) t(i); CHECKPOINT r"""
        )
    with duckdb.connect() as con:
        con.execute("SET memory_limit = '32MB'; SET temp_directory = ''")
        con.execute(f"ATTACH '{tmp_path / 'r.duckdb'}' AS r (READ_ONLY); USE r")
        beside, kernels_ns, moves, moves_ns = con.execute(RESIDENT, {"device": 0, "within": [WITHIN]}).fetchall()[0]
    kernels = 9 * count // 10 - count // 1000  # Step 0 is not counted.
    assert (beside, kernels_ns, moves, moves_ns) == (kernels, kernels * 1500, 0, 0)

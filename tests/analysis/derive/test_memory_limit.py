"""Tests of DuckDB's memory limit while sums over GPU operations are computed."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sawtooth.analysis.derive import layout
from sawtooth.analysis.derive.build import MEMORY_MB, memory_limit

MILLION = 1_000_000


def test_memory_limit_grows_with_data_that_cannot_spill() -> None:
    assert memory_limit(0) == memory_limit(MILLION) == f"{MEMORY_MB}MB"
    assert memory_limit(5 * MILLION) == f"{64 + 400}MB"


@pytest.mark.slow
def test_five_million_gpu_operations_fit_into_the_memory_limit(tmp_path: Path) -> None:
    count = 5 * MILLION
    with duckdb.connect(":memory:") as con:
        con.execute(f"ATTACH '{tmp_path / 'd.duckdb'}' AS d; USE d")
        con.execute(
            f"""CREATE TABLE gpu_ops AS SELECT i AS gpu_op_id, 0 AS device, i % 9 AS name_id, i % 9999 AS cpu_op_id, i * 5000 AS start_ns,
                2000 + hash(i) % 2000 AS dur_ns FROM range({count}) t(i);
            CREATE TABLE gpu_op_steps AS SELECT i AS gpu_op_id, 'gemm' AS category, 'no' AS tensor_cores, i % 50 AS module FROM range({count}) t(i);
            CREATE TABLE named_in_graphs AS SELECT 0 AS device, i AS module, i AS name_id FROM range(5) t(i);
            CREATE TABLE cpu_ops AS SELECT i AS cpu_op_id, i AS name_id, i % 300 AS signature_id FROM range(9999) t(i);
            CREATE TABLE signatures AS SELECT i AS signature_id, 'shape' || i AS input_dims FROM range(300) t(i);
            CREATE TABLE windows AS SELECT 0 AS device, 0 AS start_ns, 1::BIGINT << 60 AS end_ns; CHECKPOINT d"""
        )
        con.execute(f"SET memory_limit = '{memory_limit(count)}'; SET temp_directory = '{tmp_path / 'spilled'}'")
        assert len(con.execute(layout.LAUNCHED).fetchall()) > 300

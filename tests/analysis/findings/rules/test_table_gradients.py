"""Tests of findings about the dense gradients of embedding tables."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.loops.tables import sparse_updates, table_bytes, table_lookups
from tests.support.findings_of import context_of, finding, result_of

# A step of few_rows_looked_up: lookup 20, product 1000, fill 300, scatter 20, update 2100 µs. A fill writes 0.3 ns per row.
FEW_MS = 3.44


def test_a_sparse_gradient_replaces_the_fill_and_the_update_of_the_whole_table() -> None:
    found = finding("few_rows_looked_up", "dense-table-gradients")
    assert found is not None and found.predicted_step_ms is not None
    assert "1.0 % of the rows of 1 embedding table" in found.title
    assert result_of("few_rows_looked_up").lead.best.ms == pytest.approx(FEW_MS, rel=0.02)
    # SparseAdam moves 42 · 10,000 · 0.3 ns = 126 µs and makes 40 launches of 10 µs, which are not hidden.
    assert found.predicted_step_ms == pytest.approx(FEW_MS - 0.3 - 2.1 + 0.126 + 0.4, rel=0.03)
    code = found.changes[0].after
    assert "nn.Embedding(1_000_000, 256, sparse=True)" in code and "torch.optim.SparseAdam(tables" in code
    assert "no weight decay" in found.risk and "clip_grad_norm_" in found.risk


def test_one_lookup_replaces_the_sums_of_several_gradients() -> None:
    found = finding("rows_looked_up_three_times", "dense-table-gradients")
    assert found is not None and found.predicted_step_ms is not None and "3 times per step" in found.title
    # Without two fills and two sums. The gradients of 300,000 rows are joined: each value is read and written once.
    step_ms = 3 * 0.02 + 1.0 + 3 * 0.32 + 2 * 0.9 + 2.1
    assert found.predicted_step_ms == pytest.approx(step_ms - 2 * 0.3 - 2 * 0.9 + 2 * 300_000 * 0.3e-6, rel=0.03)


def test_the_lookups_of_a_recording_are_counted_for_each_table() -> None:
    """The script looks up heads, tails and 32 others of 16,384 facts in one table.

    It looks up their kinds in another one.
    """
    with context_of("triples") as context:
        steps = context.work_steps
        large, small = sorted(table_lookups(context), key=lambda lookups: -lookups.rows)
    assert (large.rows, large.tables, large.lookups, large.indices) == (1_500_000, 1, 3, 16384 * 34)
    assert (small.rows, small.tables, small.lookups, small.indices) == (400, 1, 1, 16384)
    assert (
        len(large.fills) == 3 * steps
        and len(large.sums) == 2 * steps
        and large.max_touched_share == pytest.approx(0.371, abs=0.001)
    )


def test_one_table_needs_one_sparse_update() -> None:
    """Of 12 tables, 11 lookups, 11 gradients and 11 updates disappear.

    All kernels take 4 µs and need 24 µs of the host. A step has 12 lookups, 6 products, 12 gradients, and 12 updates of 10 launches
    and a wait: 150 kernels, 600 µs on the GPU. The host launches 18 of them after the change, in 12 % of its time before. The
    remaining kernels still do the work of all.
    """
    found = finding("sparse_tables_one_by_one", "tables-one-by-one")
    assert found is not None and found.predicted_step_ms is not None
    assert "12 embedding tables are looked up and updated one after the other: 144 kernels" in found.title
    assert "dense gradients" in found.risk
    step_ms = result_of("sparse_tables_one_by_one").lead.best.ms
    assert step_ms is not None and step_ms > 3
    assert 0.6 < found.predicted_step_ms < 0.6 + 0.12 * step_ms


def test_dense_gradients_replace_the_sparse_updates_of_tables_that_cannot_be_joined() -> None:
    """The 12 tables have 1000 rows of 16, 32 or 48 values.

    All of their 384,000 values are read or written 8 times by a dense update, 12.3 MB or 3 µs of an H200. The 120 launches and 12
    waits of SparseAdam disappear; the host launches 6 more operations for each dense gradient.
    """
    found = finding("sparse_tables_of_three_widths", "tables-one-by-one")
    assert found is not None and found.predicted_step_ms is not None
    assert "12 embedding tables with sparse gradients are updated one after the other: 120 kernels" in found.title
    assert found.fix.startswith("Use dense gradients") and "weight decay" in found.risk
    step_ms = result_of("sparse_tables_of_three_widths").lead.best.ms
    # Of 150 launches, 30 remain; 72 small ones are new.
    assert step_ms is not None and 30 / 150 * step_ms < found.predicted_step_ms < (30 + 72) / 150 * step_ms


def test_several_lookups_of_one_table_are_one_update() -> None:
    """Of 8 tables, each is looked up twice. SparseAdam updates each table once, with 10 launches."""
    with context_of("eight_sparse_tables_looked_up_twice") as context:
        updates = sparse_updates(context)
        assert updates is not None and updates.tables == 8
        assert len(updates.rows) == 8 * 10 * context.work_steps
    found = finding("eight_sparse_tables_looked_up_twice", "tables-one-by-one")
    assert found is not None and found.title.startswith("8 embedding tables with sparse gradients are updated")
    with context_of("one_sparse_table_looked_up_often") as context:
        updates = sparse_updates(context)
        assert updates is not None and updates.tables == 1


def test_weights_of_linear_layers_are_no_tables() -> None:
    """Of 11 parameters of 1000 × 16, three are weights of linear layers, so 8 are tables."""
    with context_of("eight_sparse_tables_beside_linears") as context:
        updates = sparse_updates(context)
        assert updates is not None and updates.tables == 8
        assert table_bytes(context) == 8 * 1000 * 16 * 4


@pytest.mark.parametrize(
    ("name", "value_bytes"), [("large_sparse_tables_of_three_widths", 4), ("half_sparse_tables_of_three_widths", 2)]
)
def test_bytes_of_tables_follow_their_dtype(name: str, value_bytes: int) -> None:
    """Rows of four tables have 16 values, of four 32, and of four 48: together 384."""
    with context_of(name) as context:
        assert table_bytes(context) == 1_000_000 * 4 * (16 + 32 + 48) * value_bytes

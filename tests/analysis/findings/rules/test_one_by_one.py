"""Tests of the rules about heads and weights that a loop handles one by one."""

from __future__ import annotations

import pytest

from sawtooth.analysis.replay.edits import WithoutOps
from tests.support.findings_of import context_of, finding, result_of


@pytest.mark.parametrize(
    ("name", "rule", "removed"),
    [
        # 8 heads of a product, a scaling, a softmax and a product. The two products of a fused attention remain.
        ("heads_in_a_loop", "heads-one-by-one", 8 * 4 - 2),
        # Each head has three more products, which remain once.
        ("heads_with_own_projections", "heads-one-by-one", 8 * 7 - 5),
        # The copy after the last head joins the result, as a reshape still does.
        ("heads_written_to_their_place", "heads-one-by-one", 8 * 5 - 1 - 2),
        ("fused_heads_in_a_loop", "heads-one-by-one", 8 - 1),
        # 8 heads of two products and a softmax, of which the products stay once. All gradients of 24 slices go.
        ("sliced_heads_in_a_loop", "heads-one-by-one", 8 * 3 - 2 + 24 * 2),
        # 12 weights with two kernels each. Two kernels of a foreach update remain.
        # 12 lookups with one launch forward and two backward, which remain once.
        ("tables_looked_up_one_by_one", "tables-one-by-one", 12 * 3 - 3),
        ("weights_averaged", "weights-averaged-one-by-one", 12 * 2 - 2),
        ("weights_averaged_in_a_copy", "weights-averaged-one-by-one", 12 * 4 - 2),
    ],
)
def test_the_prediction_removes_all_launches_but_those_of_one(name: str, rule: str, removed: int) -> None:
    found, best_ms = finding(name, rule), result_of(name).lead.best.ms
    assert found is not None and found.predicted_step_ms is not None
    ops = {op for edit in found.edits if isinstance(edit, WithoutOps) for op in edit.ops}
    with context_of(name) as context:
        assert len(ops) == removed * context.work_steps
        launched_ms = best_ms / (len(context.work) / context.work_steps)  # The host launches all operators at the same rate.
    assert found.gain_ms == pytest.approx(removed * launched_ms, rel=0.2)


def test_attention_in_a_loop_over_heads_has_one_finding() -> None:
    assert finding("heads_in_a_loop", "unfused-attention") is None
    assert finding("attention_by_hand", "unfused-attention") is not None


def test_an_average_beside_logged_norms_is_no_clipping() -> None:
    name = "weights_averaged_and_norms_logged"  # Each gradient has a norm, and tensors of this shape are scaled in place.
    assert finding(name, "clipping-by-hand") is None and finding(name, "norms-one-by-one") is not None


@pytest.mark.parametrize(
    ("name", "rule", "other"),
    [
        ("tables_looked_up_by_columns", "tables-one-by-one", "loop-indexing"),
        ("one_table_looked_up_by_columns", "loop-indexing", "tables-one-by-one"),  # One table cannot be joined.
    ],
)
def test_a_loop_of_lookups_has_one_finding(name: str, rule: str, other: str) -> None:
    assert finding(name, rule) is not None and finding(name, other) is None

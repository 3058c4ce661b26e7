"""Tests of the rules about heads and weights that a loop handles one by one."""

from __future__ import annotations

import pytest

from sawtooth.analysis.replay.edits import WithoutOps
from tests.support.findings_of import context_of, finding, result_of


@pytest.mark.parametrize(
    ("name", "rule", "removed"),
    [
        # 8 heads × (product, scaling, softmax, product). The two products of fused attention remain.
        ("heads_in_a_loop", "heads-one-by-one", 8 * 4 - 2),
        # Each head has three more products; one of each remains.
        ("heads_with_own_projections", "heads-one-by-one", 8 * 7 - 5),
        # One copy remains, because a reshape of the result copies too.
        ("heads_written_to_their_place", "heads-one-by-one", 8 * 5 - 1 - 2),
        ("fused_heads_in_a_loop", "heads-one-by-one", 8 - 1),
        # 8 heads × (product, softmax, product); two products remain. The gradients of 24 slices are removed.
        ("sliced_heads_in_a_loop", "heads-one-by-one", 8 * 3 - 2 + 24 * 2),
        # 12 lookups with one launch forward and two backward; three launches remain.
        ("tables_looked_up_one_by_one", "tables-one-by-one", 12 * 3 - 3),
        # 12 weights with two kernels each; two kernels of a foreach update remain.
        ("weights_averaged", "weights-averaged-one-by-one", 12 * 2 - 2),
        ("weights_averaged_in_a_copy", "weights-averaged-one-by-one", 12 * 4 - 2),
    ],
)
def test_the_prediction_removes_the_repeated_launches(name: str, rule: str, removed: int) -> None:
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


@pytest.mark.parametrize(
    ("name", "confidence"),
    [
        ("called_sample_by_sample", "medium"),
        ("called_after_reads", "low"),  # The read value may decide the next input.
        ("called_as_it_grows", "low"),  # A generated sequence grows.
        ("called_with_several_sizes", "medium"),  # Lengths of 60 to 75 tokens rise and fall, so no call continues another one.
    ],
)
def test_sizes_that_rise_and_fall_show_independent_samples(name: str, confidence: str) -> None:
    found = finding(name, "samples-one-by-one")
    assert found is not None and found.confidence == confidence
    assert ("previous call" in found.prediction_note) is (confidence == "low")


def test_experts_in_one_product_need_no_reads() -> None:
    # Each expert launches for 102 µs. Eight reads of 40 µs more make no difference after the change, which needs none.
    plain, with_reads = finding("expert_loop", "expert-loops"), finding("expert_loop_with_reads", "expert-loops")
    assert plain is not None and with_reads is not None
    assert with_reads.predicted_step_ms == pytest.approx(plain.predicted_step_ms, rel=0.05)
    assert with_reads.gain_ms == pytest.approx(plain.gain_ms + 8 * 0.040, rel=0.1)
    assert "waits for the number of tokens" in with_reads.prediction_note

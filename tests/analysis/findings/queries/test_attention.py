"""Tests of attention that runs as several kernels: its copies, its products, and a bias per head."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.queries.attention import fusing_edits, unfused_attention_rows
from sawtooth.analysis.findings.recorded.counted_operations import ms_per_step
from tests.support.findings_of import context_of


@pytest.mark.parametrize(
    ("name", "copies_per_step"),
    [
        # Three layers: 3 copies of queries, keys and values, 1 of transposed keys and 1 of the output in each. The run with the fused
        # call has none of them.
        ("attention_math", 15),
        ("attention_sdpa", 0),
    ],
)
def test_copies_to_the_layout_of_products_disappear_with_a_fused_kernel(name: str, copies_per_step: int) -> None:
    with context_of(name) as context:
        moves, _ = unfused_attention_rows(context.work)
        copies = moves[
            (moves["category"] == "copy") & moves["dims"].map(lambda dims: 1024 not in dims[0][:1] and 64 in dims[0])
        ]
        assert len(copies) == copies_per_step * context.work_steps


def test_attention_with_a_bias_per_head_needs_the_slower_fused_kernel() -> None:
    # In the run with the fused call, two of the three attentions have a bias: 1.70 ms instead of 0.83 ms of batched products.
    with context_of("t5_math") as context:
        assert context.rank.gpu is not None
        moves, products = unfused_attention_rows(context.work)
        timed = fusing_edits(moves, products, context.rank.gpu)[0]
        assert ms_per_step(products, context.work_steps) == pytest.approx(0.83, rel=0.01)
        assert sum(timed.dur_ns) / 1e6 / context.work_steps == pytest.approx(1.70, rel=0.2)

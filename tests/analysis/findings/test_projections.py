"""Tests of projections of single heads that become one projection of all heads."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.loops.heads import head_loops
from sawtooth.analysis.findings.loops.projections import fewer_parameters_edits, with_joined_projections
from sawtooth.analysis.findings.recorded.counted_operations import product_dtype
from sawtooth.analysis.knowledge.kernel_time import estimate
from sawtooth.analysis.knowledge.kernel_work import product_work
from tests.support.findings_of import context_of


def test_a_joined_projection_takes_the_time_of_one_product_of_all_heads() -> None:
    """All heads' columns form one product, which reads the input once. The model gives its time."""
    with context_of("heads_with_own_projections") as context:
        loop = head_loops(context)[0]
        rows = with_joined_projections(loop.work.forward, loop, context.rank.gpu)
        projections = rows[rows["operator"] == "aten::mm"]
        same = projections[projections["flop_signature_id"] == projections["flop_signature_id"].iloc[0]]
        first = same.iloc[0]
        (m, k), (_, n) = first["flop_dims"][:2]
        dtype, gpu = product_dtype(first), context.rank.gpu
        assert dtype is not None and gpu is not None
        work = product_work("aten::mm", [[m, k], [k, n * loop.heads]], first["flop_strides"], dtype)
        assert work is not None
        time = estimate(work, gpu)
    assert time is not None
    per_projection = len(same) // loop.heads
    recorded_ns = loop.work.forward.loc[same.index, "dur_ns"].sum() / per_projection
    assert time.ms * 1e6 < recorded_ns
    assert same["dur_ns"].sum() / per_projection == pytest.approx(time.ms * 1e6, rel=0.02)


def test_heads_without_own_projections_keep_their_times() -> None:
    with context_of("heads_in_a_loop") as context:
        loops = head_loops(context)
        rows = with_joined_projections(loops[0].work.forward, loops[0], context.rank.gpu)
        assert rows["dur_ns"].tolist() == loops[0].work.forward["dur_ns"].tolist()
        assert fewer_parameters_edits(context, loops) == []

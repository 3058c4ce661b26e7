"""Tests of recognising a trace's program by its kernels, if no shapes are recorded."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from sawtooth.analysis.compare.changed.same_program import shared_kernels
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.matching import PerStepWork
from sawtooth.app.words.comparisons import comparison as words
from tests.support.run_results import run_of, side


def kernels(**ns: int) -> tuple[PerStepWork, ...]:
    return tuple(
        PerStepWork(name.replace("__", "::"), "", "", "other", Fraction(time), Fraction(1)) for name, time in ns.items()
    )


TORCH = kernels(at__native__add=10, at__native__mul=20, nvjet_gemm=60, at__native__softmax=10)
CUPY = kernels(cupy_fill=30, cupy_copy=30, gemv2T_kernel=30, cub__Reduce=10)


def test_the_share_refers_to_the_side_with_more_common_kernels():
    # Kinds of kernels that both sides have take 30 of 100 ns in A and 30 of 60 ns in B.
    other = kernels(at__native__add=10, at__native__mul=20, ampere_gemm=20, at__native__mean=10)
    assert shared_kernels(TORCH, other) == shared_kernels(other, TORCH) == 0.5
    assert shared_kernels(TORCH, CUPY) == 0


def test_template_arguments_and_void_do_not_change_the_kind():
    typed = tuple(replace(piece, name=f"void {piece.name}<float, 4>(int)") for piece in TORCH)
    assert shared_kernels(TORCH, typed) == 1


@pytest.mark.parametrize("hidden", ["CUDA graph 1 (traced as a whole)", "triton_poi_fused_add_0"])
def test_hidden_kernels_do_not_show_the_program(hidden: str):
    graph = (*CUPY, PerStepWork(hidden, "", "", "other", Fraction(900), Fraction(1)))
    assert shared_kernels(TORCH, graph) is None
    assert shared_kernels(TORCH, CUPY[:3]) is None, "a few hand-written kernels may have been replaced by others"


def test_without_shapes_only_runs_of_one_program_are_compared():
    a, b = side(run_of(best_ms=60.0)), side(run_of("b" * 16, best_ms=40.0))
    separate = compare(replace(a, kernels=TORCH), replace(b, kernels=CUPY))
    assert (separate.verdict.word, separate.other_model, separate.other_program) == ("inconclusive", True, True)
    assert "are different programs" in words.headline(separate)
    assert "→" not in words.headline(separate) and "do not show the effect" in words.below(separate)
    assert not compare(replace(a, kernels=TORCH), replace(b, kernels=TORCH)).other_model

"""Tests of real pairs recorded before and after one change, against their stopwatch.

The change is named, and the verdict agrees with the stopwatch.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

from sawtooth.analysis.compare.changed.products import OF_ONE_MODEL, common_share
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.app.words.comparisons import setup_changes as words
from tests.support.findings_of import library, result_of, stopwatch_ms

PAIRS = {
    ("loader_inline", "loader_workers"): "Batches are loaded: in the training process → in worker processes",
    ("adam_single", "adam_fused"): "Optimizer: one tensor at a time → fused",
    ("attention_math", "attention_sdpa"): "Attention: as separate operators → fused",
    ("channels_first", "channels_last"): "Memory layout of convolutions: channels first → channels_last",
    ("copy_pageable", "copy_pinned"): "Batches are copied from: pageable memory → pinned memory",
    ("mlp_eager", "mlp_graph"): "CUDA graphs: off → on",
    ("gpt_fp32", "gpt_tf32"): "Compute dtype: FP32 → TF32",
    ("gpt_reads", "gpt_no_reads"): "Reads of GPU values: ",
}


@cache
def side(name):
    return side_of([result_of(name)], library())


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("pair", "sentence"), PAIRS.items(), ids="-".join)
def test_the_change_is_named_and_the_verdict_agrees_with_the_stopwatch(pair, sentence):
    a, b = (side(name) for name in pair)
    found = compare(a, b)
    assert any(line.startswith(sentence) for line in words.sentences(found)), words.sentences(found)
    faster = stopwatch_ms(pair[1]) < stopwatch_ms(pair[0])
    assert found.verdict.word == ("faster" if faster else "slower")
    assert not found.other_model


@pytest.mark.parametrize(
    "pair", [("gpt_fp32", "loader_inline"), ("gpt_reads", "channels_first"), ("adam_single", "loader_workers")], ids="-".join
)
def test_two_models_are_distinguished(pair):
    a, b = (side(name) for name in pair)
    share = common_share(a.products, b.products)
    assert share is not None and share < OF_ONE_MODEL
    assert compare(a, b).other_model


def test_padded_widths_are_still_one_model():
    """This pair shares fewer shapes than any other pair of one model in the repository."""
    a, b = side("mlp_4093"), side("mlp_4096")
    assert OF_ONE_MODEL <= common_share(a.products, b.products) == Fraction(1, 3)
    assert not compare(a, b).other_model


def test_run_does_not_differ_from_itself():
    found = compare(side("adam_fused"), side("adam_fused"))
    assert (found.effects, found.prediction) == ((), None)
    assert words.why_none(found) is None and "same recording" in found.verdict.why

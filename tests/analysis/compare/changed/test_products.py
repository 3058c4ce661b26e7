"""Tests of recognising a trace's model by the shapes of its matrix products."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import msgspec

from sawtooth.analysis.compare.changed.products import batch_ratio, common_share, other_layers
from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.matching import PerStepWork
from sawtooth.app.words.comparisons import audit, changes, setup_changes, step_parts
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.ingest.manifest import UserFacts
from tests.support.run_results import run_of, side


def test_shares_refer_to_the_smaller_set():
    assert common_share("abcd", "bcdefgh") == Fraction(3, 4)
    assert common_share("abc", "abc") is None and common_share("", "abcd") is None


def of_shapes(run, shapes):
    return replace(side(run), products=frozenset(f"64,{ord(letter)}" for letter in shapes))


def test_two_models_are_not_compared():
    a, b = (
        run_of(best_ms=60.0, metrics={"flops_per_step": 1e12}),
        run_of("b" * 16, best_ms=40.0, metrics={"flops_per_step": 5e12}),
    )
    found = compare(of_shapes(a, "abcdef"), of_shapes(b, "uvwxyz"))
    assert (found.verdict.word, found.other_model, found.throughput, found.effects) == ("inconclusive", True, None, ())
    assert (step_parts.steps_divided(found), setup_changes.next_change(found)) == ((), None)
    assert "train different models" in words.headline(found)
    assert found.metric_word(next(c for c in found.metrics if c.key == "best_step_time_ms")) == "changed"
    padded = run_of("b" * 16, best_ms=40.0, metrics={"flops_per_step": 1.002e12})
    assert not compare(of_shapes(a, "abcdef"), of_shapes(padded, "uvwxyz")).other_model  # The same work in other sizes.


BACKBONE = {("convolution", (3, 7, 7, 64)), ("convolution", (1, 1, 512, 2048))}
CLASSIFIER, DECODER = {("addmm", (1000, 2048))}, {("convolution", (3, 3, 256, 320))}


def test_models_with_a_common_backbone_are_distinguished():
    assert other_layers({*BACKBONE, *CLASSIFIER}, {*BACKBONE, *DECODER})
    assert not other_layers({*BACKBONE, *CLASSIFIER}, BACKBONE)  # A removed head is a change.
    assert not other_layers({*BACKBONE, *CLASSIFIER}, {*BACKBONE, ("addmm", (1024, 2048)), *DECODER})  # A padded one, and more.
    assert not other_layers((), DECODER)
    runs = [run_of(name * 16, metrics={"flops_per_step": flops}) for name, flops in (("a", 1e12), ("b", 5e12))]
    a, b = (of_shapes(run, shapes) for run, shapes in zip(runs, ("abcdef", "abcxyz"), strict=True))
    assert not compare(a, b).other_model
    weights = [frozenset({*BACKBONE, *own}) for own in (CLASSIFIER, DECODER)]
    assert compare(*(replace(one, weights=w) for one, w in zip((a, b), weights, strict=True))).other_model


def test_networks_with_different_layers_are_two_models():
    runs = [run_of(name * 16, metrics={"flops_per_step": flops}) for name, flops in (("a", 8e11), ("b", 3e8), ("c", 4e11))]
    large, small, nearly = (of_shapes(run, shapes) for run, shapes in zip(runs, ("abcdefg", "xy", "xy"), strict=True))
    lstm, mlp = frozenset({("embedding", (1024, 8000)), ("addmm", (1024, 8000))}), frozenset({("addmm", (256, 256))})
    for a, b in ((large, small), (small, large)):
        weights = (lstm, mlp) if a is large else (mlp, lstm)
        assert compare(*(replace(one, weights=w) for one, w in zip((a, b), weights, strict=True))).other_model
    assert not compare(replace(large, weights=lstm), replace(small, weights=lstm)).other_model  # The batch sizes differ.
    # The amount of work is almost the same.
    assert not compare(replace(large, weights=lstm), replace(nearly, weights=mlp)).other_model


def test_equal_sets_of_shapes_have_one_batch_size_for_any_count():
    a, b = (
        run_of(best_ms=60.0, metrics={"flops_per_step": 2e11}),
        run_of("b" * 16, best_ms=10.0, metrics={"flops_per_step": 1.2e11}),
    )
    found = compare(of_shapes(a, "abcdefg"), of_shapes(b, "abcdef"))
    assert found.throughput is None and not any(reason.key == "work" for reason in found.reasons)
    assert compare(of_shapes(a, "abcdefg"), of_shapes(b, "abuvwx")).throughput is not None


WEIGHTS = {"168,512", "512,512", "192,512"}
OF_64, OF_8192 = ({*WEIGHTS, f"{rows},168" if rows < 168 else f"168,{rows}", f"512,{rows}"} for rows in (64, 8192))


def test_a_larger_batch_multiplies_one_dimension_of_each_activation_and_the_work():
    assert batch_ratio(OF_64, OF_8192, 128.0) == 128 and batch_ratio(OF_8192, OF_64, 1 / 128) == Fraction(1, 128)
    assert batch_ratio(OF_64, OF_8192, 1.0) is None  # The same amount of work in larger pieces.
    assert batch_ratio(OF_64, OF_8192, None) is None and batch_ratio(OF_64, OF_64, 1.0) is None
    assert batch_ratio({*OF_64, "64,100"}, {*OF_8192, "64,300"}, 128.0) is None  # A weight was widened too.


def test_swapped_sides_give_the_inverse_ratio():
    """In the first pair, two ratios turn A's shapes into B's.

    In the second pair, no ratio turns B's shapes into A's.
    """
    a = {"100,100", "7,100"}
    b = {"100,101", "100,102", "7,101", "7,102"}
    for left, right in ((a, b), (OF_64, {*OF_8192, "8192,9999"})):
        for work_ratio in (1.012, 1.018, 128.0):
            forth, back = batch_ratio(left, right, work_ratio), batch_ratio(right, left, 1 / work_ratio)
            assert (forth is None) == (back is None)
            assert forth is None or forth == 1 / back
    assert batch_ratio(a, b, 1.012) == Fraction(101, 100) and batch_ratio(a, b, 1.018) == Fraction(102, 100)
    assert batch_ratio(OF_64, {*OF_8192, "8192,9999"}, 128.0) == 128


def test_other_batch_size_is_recognised_from_shapes():
    a, b = (
        replace(
            side(run_of(name * 16, best_ms=ms, metrics={"flops_per_step": flops, "flop_coverage": 1.0})),
            products=frozenset(shapes),
        )
        for name, ms, flops, shapes in (("a", 13.0, 3e9, OF_64), ("b", 15.0, 384e9, OF_8192))
    )
    assert setup_changes.rows(compare(a, b))[0][:3] == ("Batch size (ratio)", "1", "128")
    assert setup_changes.why_none(compare(a, replace(b, products=frozenset()))).startswith(
        "The recordings do not show what was changed"
    )


def test_work_without_shapes_does_not_show_rates_or_models():
    """An LSTM in one call hides 99 % of its operations, so its step is judged by its time."""
    cells, fused = (
        run_of(
            name * 16,
            best_ms=ms,
            source="user",
            metrics={"flops_per_step": flops, "flop_coverage": coverage, "mfu": mfu, "achieved_tflops": flops / ms / 1e9},
        )
        for name, ms, flops, coverage, mfu in (("a", 43.6, 24e9, 1.0, 6e-4), ("b", 8.4, 2e8, 0.014, 3e-5))
    )
    other = PerStepWork("gemm", "aten::mm", "[[64,64]]", "gemm", Fraction(10**6), Fraction(1))
    found = compare(side(cells, operators=[other]), side(fused, operators=[replace(other, name="mm", shapes="[[8,8]]")]))
    assert found.throughput is None and found.reasons == ()
    assert "5.2\u00a0× as fast" in words.headline(found)
    answer = {change.key: found.metric_word(change) for change in found.metrics}
    assert {answer[key] for key in ("mfu", "achieved_tflops", "flops_per_step")} == {"not_comparable"}
    rows = {label: text for label, _, _, text in (*changes.metric_rows(found), *audit.pair_rows(found))}
    assert rows["MFU"].startswith("not comparable")
    known = msgspec.structs.replace(fused.manifest, facts=UserFacts(flops_per_step=2e8))
    # a count entered by the user is complete
    assert compare(side(cells), side(replace(fused, manifest=known))).throughput is not None


def test_equal_counts_of_operations_in_other_shapes_are_the_same_work():
    runs = [run_of(name * 16, metrics={"flops_per_step": 2.7e8, "flop_coverage": 1.0}) for name in "ab"]
    piece = PerStepWork("aten::sum [[4]]", "aten::sum", "[[4]]", "", Fraction(10**6), Fraction(1))
    together = replace(piece, name="aten::sum [[96]]", shapes="[[96]]")
    assert compare(side(runs[0], operators=[piece]), side(runs[1], operators=[together])).reasons == ()
    unknown = [run_of(name * 16) for name in "ab"]
    found = compare(side(unknown[0], operators=[piece]), side(unknown[1], operators=[together]))
    assert [reason.key for reason in found.reasons] == ["shapes"]

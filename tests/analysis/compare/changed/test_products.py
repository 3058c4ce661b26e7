"""Which model a trace is of, by the shapes of its products."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sawtooth.analysis.compare.changed.products import alike
from sawtooth.analysis.compare.comparison import compare
from sawtooth.app.words import comparison as words
from tests.support.run_results import run_of, side


def test_shares_are_of_the_smaller_set_and_few_shapes_tell_nothing():
    assert alike("abcd", "bcdefgh") == Fraction(3, 4)
    assert alike("abc", "abc") is None and alike("", "abcd") is None


def of_shapes(run, shapes):
    return replace(side(run), products=frozenset(shapes))


def test_two_models_are_not_compared():
    a, b = (
        run_of(best_ms=60.0, metrics={"flops_per_step": 1e12}),
        run_of("b" * 16, best_ms=40.0, metrics={"flops_per_step": 5e12}),
    )
    found = compare(of_shapes(a, "abcdef"), of_shapes(b, "uvwxyz"))
    assert (found.verdict.word, found.other_model, found.throughput, found.effects) == ("inconclusive", True, None, ())
    assert "train different models" in words.headline(found)
    assert found.metric_word(next(c for c in found.metrics if c.key == "best_step_time_ms")) == "changed"
    padded = run_of("b" * 16, best_ms=40.0, metrics={"flops_per_step": 1.002e12})
    assert not compare(of_shapes(a, "abcdef"), of_shapes(padded, "uvwxyz")).other_model  # the same work in other sizes


def test_one_set_of_shapes_is_one_batch_however_operations_are_counted():
    a, b = (
        run_of(best_ms=60.0, metrics={"flops_per_step": 2e11}),
        run_of("b" * 16, best_ms=10.0, metrics={"flops_per_step": 1.2e11}),
    )
    found = compare(of_shapes(a, "abcdefg"), of_shapes(b, "abcdef"))
    assert found.throughput is None and not any(reason.key == "work" for reason in found.reasons)
    assert compare(of_shapes(a, "abcdefg"), of_shapes(b, "abuvwx")).throughput is not None

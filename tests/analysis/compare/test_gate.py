"""Gates: what is written, what they say, and the exit code."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.gate import COULD_NOT_JUDGE, PASSED, REGRESSED, judge, parse_gate
from sawtooth.ingest.errors import UsageError
from tests.support.run_results import run_of, side


@pytest.mark.parametrize(
    ("text", "key", "direction", "limit", "relative"),
    [
        ("best_step_time_ms:+5%", "best_step_time_ms", "rise", 0.05, True),
        ("step_time_best_ms:+2ms", "best_step_time_ms", "rise", 2.0, False),
        ("step_time_ms: +250 us", "step_time_ms", "rise", 0.25, False),
        ("mfu:-2pp", "mfu", "fall", 0.02, False),
        ("mfu:−2.5%", "mfu", "fall", 0.025, True),
        ("peak_memory_bytes:+1GiB", "peak_memory_bytes", "rise", 2.0**30, False),
        ("kernel_launches_per_step:+10", "kernel_launches_per_step", "rise", 10.0, False),
    ],
)
def test_a_gate_is_read(text, key, direction, limit, relative):
    gate = parse_gate(text)
    assert (gate.key, gate.direction, gate.relative) == (key, direction, relative)
    assert gate.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not a gate"),
        ("mfu", "not a gate"),
        ("mfu:5%", "not a gate"),  # without a sign nobody knows which way is worse
        ("speed:+5%", "not a metric"),
        ("mfu:+5ms", "no unit"),
        ("step_time_ms:+5", "needs a unit"),
        ("mfu:+x%", "not a gate"),
    ],
)
def test_a_wrong_gate_is_refused_in_words(text, word):
    with pytest.raises(UsageError, match=word):
        parse_gate(text)


def comparison(a_ms, b_ms, a_steps=None, b_steps=None, a_metrics=None, b_metrics=None):
    a = run_of("a" * 16, best_ms=a_ms, metrics=a_metrics)
    b = run_of("b" * 16, best_ms=b_ms, metrics=b_metrics)
    return compare(side(a, steps=a_steps or [a_ms, a_ms * 1.001] * 20), side(b, steps=b_steps or [b_ms, b_ms * 1.001] * 20))


def code(found, *gates):
    return judge(found, [parse_gate(gate) for gate in gates])[0]


def test_a_slow_down_beyond_the_limit_fails():
    assert code(comparison(100.0, 106.0), "best_step_time_ms:+5%") == REGRESSED
    assert code(comparison(100.0, 104.0), "best_step_time_ms:+5%") == PASSED
    assert code(comparison(100.0, 90.0), "best_step_time_ms:+5%") == PASSED
    assert code(comparison(100.0, 106.0), "best_step_time_ms:+7ms") == PASSED


def test_a_change_that_is_not_shown_is_not_judged():
    noisy = [float(step) for step in np.random.default_rng(3).normal(100, 30, 25)]
    found = comparison(100.0, 106.0, noisy, [s * 1.06 for s in noisy])
    assert found.verdict.word == "no_difference_shown"
    assert code(found, "best_step_time_ms:+5%") == COULD_NOT_JUDGE


def test_inconclusive_is_not_judged():
    found = comparison(100.0, 100.0, [100.0, 101.0], [100.0, 101.0])
    assert found.verdict.word == "inconclusive"
    exit_code, outcomes = judge(found, [parse_gate("best_step_time_ms:+5%")])
    assert exit_code == COULD_NOT_JUDGE
    assert "could not be judged" in outcomes[0].sentence


def test_shares_fall_by_points_and_a_missing_metric_is_not_judged():
    found = comparison(100.0, 100.0, a_metrics={"mfu": 0.40}, b_metrics={"mfu": 0.37})
    assert code(found, "mfu:-2pp") == REGRESSED
    assert code(found, "mfu:-4pp") == PASSED
    assert code(found, "mfu:-5%") == REGRESSED  # 7.5 % of 0.40
    assert code(found, "mfu:+1%") == PASSED
    assert code(found, "hfu:-1pp") == COULD_NOT_JUDGE


def test_a_regression_outweighs_what_could_not_be_judged():
    found = comparison(100.0, 110.0)
    assert code(found, "hfu:-1pp", "best_step_time_ms:+5%", "step_time_ms:+50%") == REGRESSED

"""Tests of gates: their files, their messages and the exit code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.gate import COULD_NOT_JUDGE, PASSED, REGRESSED, UNITS, WORDS, judge, parse_gate
from sawtooth.analysis.compare.report import compare_json
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
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
def test_a_gate_is_parsed(text, key, direction, limit, relative):
    gate = parse_gate(text)
    assert (gate.key, gate.direction, gate.relative) == (key, direction, relative)
    assert gate.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("key", "limits"),
    [
        ("step_time_ms", {"ns": 1e-6, "us": 0.001, "µs": 0.001, "ms": 1, "s": 1000}),
        ("sawtooth_period_s", {"ms": 0.001, "s": 1, "min": 60}),
        ("mfu", {"pp": 0.01}),
        ("kernel_launches_per_step", {"": 1, "count": 1}),
        ("flops_per_step", {"FLOP": 1, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15}),
        ("achieved_tflops", {"GFLOP/s": 0.001, "TFLOP/s": 1, "PFLOP/s": 1000}),
        (
            "peak_memory_bytes",
            {"B": 1, "bytes": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1024, "MiB": 1048576, "GiB": 1073741824},
        ),
    ],
)  # fmt: skip
def test_every_unit_is_converted_to_that_of_the_metric(key, limits):
    for unit, limit in limits.items():
        assert parse_gate(f"{key}:+1{unit}").limit == limit, unit
    assert parse_gate(f"{key}:+1%").limit == 0.01


def test_every_unit_of_a_metric_is_known():
    assert {metric.unit for metric in METRICS.values()} == set(UNITS) == set(WORDS)


def test_exit_codes_are_those_that_a_shell_reads():
    assert (PASSED, REGRESSED, COULD_NOT_JUDGE) == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not a gate"),
        ("mfu", "not a gate"),
        ("mfu:5%", "not a gate"),  # Without a sign, the worse direction is unknown.
        ("speed:+5%", "not a metric"),
        ("mfu:+5ms", "no unit"),
        ("step_time_ms:+5", "needs a unit"),
        ("mfu:+x%", "not a gate"),
    ],
)
def test_a_wrong_gate_is_refused_with_a_sentence(text, word):
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
    assert code(found, "best_step_time_ms:+6ms") == PASSED  # The change is within the limit, so it need not be certain.


@pytest.mark.parametrize(("gate", "said"), [("+1%", "1 %"), ("+1ms", "1 %"), ("+90%", None)])
def test_a_passing_gate_says_if_a_change_of_its_limit_would_be_invisible(gate, said):
    noisy = [float(step) for step in np.random.default_rng(3).normal(100, 30, 25)]
    found = comparison(100.0, 100.0, noisy, noisy[::-1])
    assert found.verdict.word == "no_difference_shown" and 0.01 < found.verdict.smallest_visible_share < 0.9
    assert code(found, f"best_step_time_ms:{gate}") == PASSED
    seen = sentence(found, f"best_step_time_ms:{gate}")
    assert ("cannot show" in seen) == (said is not None)
    assert said is None or f"These recordings cannot show a change of {said}, only one above " in seen


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


def test_a_regression_outweighs_gates_that_could_not_be_judged():
    found = comparison(100.0, 110.0)
    assert code(found, "hfu:-1pp", "best_step_time_ms:+5%", "step_time_ms:+50%") == REGRESSED


def sentence(found, gate):
    ((outcome),) = judge(found, [parse_gate(gate)])[1]
    return outcome.sentence


def test_a_gate_reports_the_change_in_its_own_unit():
    found = comparison(100.0, 100.0, a_metrics={"mfu": 0.40, "hfu": 0.40}, b_metrics={"mfu": 0.375, "hfu": 0.42})
    assert sentence(found, "mfu:-5%") == "mfu:-5%: failed. MFU went from 40 % to 37.5 % (-6.25%)."  # 0.025 of 0.4
    assert sentence(found, "mfu:-3pp") == "mfu:-3pp: passed. MFU went from 40 % to 37.5 %."
    assert sentence(found, "hfu:+6%") == "hfu:+6%: passed. HFU went from 40 % to 42 % (+5.00%)."


def test_values_of_a_gate_are_rounded_for_people():
    a, b = (
        {"peak_memory_bytes": 15.2 * 2**30, "flops_per_step": 1.2e15},
        {"peak_memory_bytes": 16.4 * 2**30, "flops_per_step": 1.3e15},
    )
    found = comparison(12_345.6, 12_345.6, a_metrics=a, b_metrics=b)
    assert sentence(found, "peak_memory_bytes:+1GB").endswith("failed. Peak memory went from 15.2 GiB to 16.4 GiB.")
    assert "from 1,200 TFLOP to 1,300 TFLOP" in sentence(found, "flops_per_step:+1%")
    assert "from 12.346 s to 12.346 s (+0.00%)" in sentence(found, "best_step_time_ms:+1%")


def test_the_limit_itself_passes():
    found = comparison(100.0, 100.0, a_metrics={"kernel_launches_per_step": 64.0}, b_metrics={"kernel_launches_per_step": 80.0})
    assert code(found, "kernel_launches_per_step:+16") == PASSED
    assert code(found, "kernel_launches_per_step:+25%") == PASSED  # 16 of 64
    assert code(found, "kernel_launches_per_step:+15") == REGRESSED
    assert code(found, "kernel_launches_per_step:-1") == PASSED


def test_zero_has_no_percentage():
    found = comparison(100.0, 100.0, a_metrics={"mfu": 0.0, "hfu": 0.0}, b_metrics={"mfu": 0.1, "hfu": 0.0})
    assert code(found, "mfu:+5%") == COULD_NOT_JUDGE and "of A is 0" in sentence(found, "mfu:+5%")
    assert code(found, "mfu:+5pp") == REGRESSED
    assert code(found, "hfu:+5%") == PASSED


@pytest.mark.parametrize("one", ["a", "b"])
def test_an_unusable_value_on_either_side_is_not_judged(one):
    broken = Reading(1.4, trust="unusable", notes=("The peak is wrong.",))
    found = comparison(100.0, 100.0, a_metrics={"mfu": 0.4}, b_metrics={"mfu": 0.4})
    metrics = tuple(replace(change, **{one: broken}) if change.key == "mfu" else change for change in found.metrics)
    found = replace(found, metrics=metrics)
    assert code(found, "mfu:-5%") == COULD_NOT_JUDGE
    assert sentence(found, "mfu:-5%") == f"mfu:-5%: not judged, MFU of {one.upper()} cannot be used. The peak is wrong."


def test_a_fall_of_the_step_time_can_be_gated_as_well():
    assert code(comparison(100.0, 90.0), "best_step_time_ms:-5%") == REGRESSED
    assert code(comparison(100.0, 110.0), "best_step_time_ms:-5%") == PASSED
    noisy = [float(step) for step in np.random.default_rng(3).normal(100, 30, 25)]
    found = comparison(106.0, 100.0, [s * 1.06 for s in noisy], noisy)
    assert code(found, "best_step_time_ms:-5%") == COULD_NOT_JUDGE
    assert "beyond the limit, but this change is not certain" in sentence(found, "best_step_time_ms:-5%")
    assert code(found, "best_step_time_ms:-50%") == PASSED


@pytest.mark.parametrize("high", [None, 3.0])
def test_a_gross_slow_down_of_estimates_is_judged_in_both_directions(high):
    sides = []
    for name, best in (("a", 43.0), ("b", 191.0)):
        measured = MeasuredSteps(
            (best,) * 3, best, "estimate", (name,), low_ms=best / 3, high_ms=high and best * high, profiled_ms=80.0
        )
        sides.append(replace(side(run_of(name * 16, best_ms=best, source="estimate")), measured=(measured,)))
    a, b = sides
    assert code(compare(a, b), "best_step_time_ms:+5%") == REGRESSED
    assert code(compare(b, a), "best_step_time_ms:-5%") == REGRESSED
    assert code(compare(b, a), "best_step_time_ms:+5%") != REGRESSED


def test_a_run_on_a_cpu_beside_a_run_on_a_gpu_cannot_be_judged():
    """The step times show no effect of a change, so the report and the gate state no direction."""
    gpu, cpu = (run_of(name * 16, best_ms=ms, source="user") for name, ms in (("a", 773.0), ("b", 39.5)))
    found = compare(side(gpu), replace(side(cpu), runs=(replace(cpu, lead=None, ranks=[]),)))
    best = compare_json(found)["best_step_time_ms"]
    assert (best["verdict"], best["confidence"], best["why"]) == ("inconclusive", "low", found.reasons[0].sentence)
    for gate in ("best_step_time_ms:+5%", "best_step_time_ms:-5%"):
        assert judge(found, [parse_gate(gate)])[0] == COULD_NOT_JUDGE

"""Tests of the audit by hand: rates, energy and cost of a step, or the reason for a gap."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.run.audit import audit
from sawtooth.app.words.comparisons import audit as words
from sawtooth.ingest.manifest import UserFacts
from tests.support.run_results import run_of, side


def values(run):
    return {row.key: row.reading.value for row in audit(run)}


def with_power(run, power_w, counted_w=None):
    lead = replace(run.lead, telemetry=SimpleNamespace(means={"power_w": power_w}, counted_power_w=counted_w))
    return replace(run, lead=lead, ranks=[lead])


def test_a_step_of_fifty_ms_with_128_samples():
    facts = UserFacts(samples_per_step=128, price_per_gpu_hour=3.6)
    run = with_power(run_of(best_ms=50.0, source="user", facts=facts, tags=["steps_per_epoch=7200"]), 600.0)
    found = values(run)
    assert found["throughput"] == pytest.approx(2560)  # 128 ÷ 0.05 s
    assert found["hours_per_epoch"] == pytest.approx(0.1)  # 7200 × 0.05 s = 360 s
    assert found["energy_per_step_j"] == pytest.approx(30)  # 600 W × 0.05 s
    assert values(with_power(run, 600.0, 500.0))["energy_per_step_j"] == pytest.approx(25)  # The energy counter gives 25 J.
    assert found["energy_per_sample_j"] == pytest.approx(30 / 128)
    assert found["cost_per_1000_steps"] == pytest.approx(0.05)  # 50 s at 3.6 an hour


def test_step_lines_have_a_range_and_a_basis():
    run = with_power(
        run_of(best_ms=50.0, source="user", facts=UserFacts(samples_per_step=128), tags=["steps_per_epoch=7200"]), 600.0
    )
    step = replace(run.metrics["best_step_time_ms"], low=40.0, high=60.0)
    shown = dict(words.rows(replace(run, metrics=run.metrics | {"best_step_time_ms": step})))
    assert shown["Energy per step, one GPU"] == "30.0\u00a0J (24.0 to 36.0\u00a0J): 600 W × 50.0\u00a0ms"
    assert shown["Throughput"] == "2,560\u00a0samples/s (2,130 to 3,200\u00a0samples/s): 128 in 50.0\u00a0ms"
    assert shown["Hours per epoch"] == "0.100\u00a0h (0.0800 to 0.120\u00a0h): 7,200 steps × 50.0\u00a0ms"
    assert "(" not in dict(words.rows(run))["Energy per step, one GPU"]


def test_unknown_settings_are_listed():
    run = run_of(tags=["steps_per_epoch=many"])
    for row in audit(run):
        if row.key in ("throughput", "hours_per_epoch", "energy_per_step_j", "energy_per_sample_j", "cost_per_1000_steps"):
            assert row.reading.value is None
            assert row.reading.why_missing.endswith(".") and "…" not in row.reading.why_missing


def test_a_reason_is_stated_once_for_all_lines_that_it_hides():
    known, unknown = words.known_and_unknown(with_power(run_of(best_ms=50.0, source="user"), 600.0))
    reasons = {reason: names for names, reason in unknown}
    assert reasons["The number of samples or tokens per step is not known."] == "Throughput, energy per sample"
    assert dict(known)["Energy per step, one GPU"].startswith("30.0\u00a0J")  # 600 W × 0.05 s
    assert not {label for label, _ in known} & {label for label, _ in unknown}


def test_with_several_gpus_cost_counts_them_and_energy_per_token_is_not_guessed():
    run = run_of(best_ms=100.0, source="user", facts=UserFacts(tokens_per_step=1000, price_per_gpu_hour=3.6), world_size=8)
    found = values(with_power(run, 500.0))
    assert found["cost_per_1000_steps"] == pytest.approx(0.8)  # 100 s × 8 GPUs at 3.6 an hour
    assert found["energy_per_token_j"] is None


def test_pair_is_shown_side_by_side_and_equal_runs_do_not_differ():
    a, b = (
        run_of(i * 16, best_ms=ms, source="user", facts=UserFacts(samples_per_step=n))
        for i, ms, n in (("a", 50.0, 100), ("b", 40.0, 100))
    )
    pair = compare(side(a, steps=[49.9, 50.1] * 15), side(b, steps=[39.9, 40.1] * 15))
    shown = {label: (left, right, change) for label, left, right, change in words.pair_rows(pair)}
    assert shown["Throughput"][2] == "+25\u00a0% ✓ better"
    assert {line.change for line in compare(side(a), side(a)).audit} <= {0.0, None}
    tokens = run_of("c" * 16, facts=UserFacts(tokens_per_step=7))
    lines = [line for line in compare(side(a), side(tokens)).audit if line.row.key == "throughput"]
    assert [(line.a.value is None, line.b.value is None) for line in lines] == [(False, True), (True, False)]

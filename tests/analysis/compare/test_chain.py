"""Tests of a chain of real recordings with one more change in each.

The audits stand side by side, and predicted step times stand next to measured ones and the stopwatch.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from sawtooth.analysis.compare import chain as module
from sawtooth.analysis.compare.chain import OTHER_UNIT, ChainChange, RunChain, chain
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.app.reports import audit as report
from sawtooth.app.words.comparisons import chain as words
from tests.support.findings_of import library, result_of
from tests.support.paths import RECORDINGS

NAMES = ("gpt_fp32", "gpt_small", "gpt_compiled")


def stopwatch_ms(name):
    return 1e3 * json.loads((RECORDINGS / name / "truth.json").read_text(encoding="utf-8"))["step_s_pipelined"]


@pytest.fixture(scope="module")
def made():
    return chain([side_of([result_of(name)], library()) for name in NAMES])


def test_every_line_has_a_reading_for_every_run(made):
    assert [run.manifest.name for run in made.runs] == list(NAMES)
    assert all(len(line.readings) == len(NAMES) for line in made.lines)
    steps = next(line for line in made.lines if line.row.key == "step_time_ms")
    assert [reading.value for reading in steps.readings] == pytest.approx([stopwatch_ms(name) for name in NAMES], rel=0.1)


def test_change_has_predicted_and_measured_gain(made):
    first, second = made.changes
    assert "fp32-products" in first.fixed
    assert first.measured_gain_ms == pytest.approx(stopwatch_ms("gpt_fp32") - stopwatch_ms("gpt_small"), rel=0.1)
    assert first.predicted_gain_ms == pytest.approx(first.measured_gain_ms, rel=0.15)
    assert second.before_ms == first.after_ms
    assert second.measured_gain_ms == pytest.approx(stopwatch_ms("gpt_small") - stopwatch_ms("gpt_compiled"), rel=0.25)


def test_the_markdown_table_has_a_column_per_run(made):
    heads, rows = words.heads(made), words.rows(made)
    assert heads[1:] == list(NAMES) and all(len(row) == len(heads) for row in rows)
    assert {"Predicted gain per step", "Measured gain per step"} <= {row[0] for row in rows}
    lines = report.of_chain(made).splitlines()
    assert lines[0].endswith("times as fast") and lines[3] == "| --- | ---: | ---: | ---: |"


def test_chain_without_changes_is_reported():
    same = chain([side_of([result_of("gpt_small")], library())] * 2)
    (change,) = same.changes
    assert (change.fixed, change.predicted_ms, change.measured_gain_ms) == ((), None, 0.0)
    assert words.rows(same)[-2][2] == "none (no change)"


def compared(monkeypatch, *, best=(100.0, 80.0), per_s=None, fixed=(), predicted_ms=None):
    """Replace each comparison's result by these values.

    They are step times, work per second, and (rule, severity, claims, predicted ms) of what was fixed.
    """
    throughput = per_s and SimpleNamespace(a=per_s[0], b=per_s[1])
    findings = [
        SimpleNamespace(rule=rule, severity=severity, claims=claims, predicted_step_ms=ms)
        for rule, severity, claims, ms in fixed
    ]
    comparison = SimpleNamespace(
        best=SimpleNamespace(a=best[0], b=best[1]), throughput=throughput, findings_fixed=findings,
        prediction=predicted_ms and SimpleNamespace(predicted_ms=predicted_ms, tried=None), answer="slower" if per_s else "faster",
    )  # fmt: skip
    monkeypatch.setattr(module, "compare", lambda a, b: comparison)


def change_of(at_batch=lambda run, times: None) -> ChainChange:
    return module._change(SimpleNamespace(first="run A"), SimpleNamespace(first="run B"), at_batch)


def test_without_a_joint_prediction_the_largest_gain_counts(monkeypatch):
    fixed = [("a", "warning", "gain", 90.0), ("b", "warning", "gain", 85.0), ("c", "warning", "other", 10.0), ("d", "info", "gain", 5.0), ("a", "warning", "gain", None)]  # fmt: skip
    compared(monkeypatch, fixed=fixed)
    change = change_of()
    assert (change.fixed, change.predicted_ms, change.verdict) == (("a", "b", "c"), 85.0, "faster")
    assert (change.predicted_gain_ms, change.measured_gain_ms, change.work) == (15.0, 20.0, 1.0)
    compared(monkeypatch, fixed=fixed, predicted_ms=82.0)
    assert change_of().predicted_ms == 82.0


def test_other_batch_size_is_scaled_to_the_previous_work(monkeypatch):
    # A: 320 samples/s and 100 ms are 32 samples per step. B: 400 samples/s and 160 ms are 64, twice the work, so B needs 80
    # ms for A's work. The prediction was 150 ms for B's whole step.
    compared(monkeypatch, best=(100.0, 160.0), per_s=(320.0, 400.0), fixed=[("a", "warning", "gain", 1.0)])
    asked = []
    change = change_of(lambda run, times: asked.append((run, times)) or 150.0)
    assert asked == [("run A", 2.0)]
    assert (change.work, change.after_ms, change.predicted_ms, change.verdict) == (2.0, 80.0, 75.0, "slower")
    assert change_of().predicted_ms is None


def test_unknown_values_stay_unknown(monkeypatch):
    compared(monkeypatch, best=(100.0, None), per_s=(320.0, 400.0))
    change = change_of()
    assert (change.work, change.after_ms, change.measured_gain_ms) == (1.0, None, None)
    compared(monkeypatch, best=(None, 80.0))
    assert (change_of().measured_gain_ms, change_of().predicted_gain_ms) == (None, None)


def test_changes_multiply():
    twice, half_more = ChainChange((), None, 100.0, 50.0, "faster"), ChainChange((), None, 60.0, 40.0, "faster")
    unknown, other = ChainChange((), None, 60.0, None, "cannot_tell"), ChainChange((), None, None, 60.0, "cannot_tell")
    assert twice.work == 1.0
    assert RunChain((), (), (twice, half_more)).speedup == 3.0
    assert RunChain((), (), (twice, unknown)).speedup is None and RunChain((), (), (twice, other)).speedup is None


def test_a_line_that_the_first_run_lacks_comes_last(monkeypatch):
    rows = {
        "A": [("step", "ms"), ("rate", "samples"), ("power", "W")],
        "B": [("rate", "tokens"), ("step", "ms"), ("power", "W")],
    }
    monkeypatch.setattr(
        module, "audit", lambda run: [SimpleNamespace(key=k, unit=u, reading=f"{run} {k}") for k, u in rows[run]]
    )
    monkeypatch.setattr(module, "_change", lambda *sides: None)
    made = chain([SimpleNamespace(first="A"), SimpleNamespace(first="B")])
    assert [(line.row.key, line.row.unit) for line in made.lines] == [*rows["A"], ("rate", "tokens")]
    assert made.lines[0].readings == ("A step", "B step")
    assert made.lines[1].readings[0] == "A rate" and made.lines[1].readings[1].why_missing == OTHER_UNIT
    assert chain([]).lines == ()

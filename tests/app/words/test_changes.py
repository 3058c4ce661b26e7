"""What differs between two sides, in rows that agree with the headline."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.measured import Measured
from sawtooth.analysis.compare.report import compare_json
from sawtooth.app.reports import comparison as comparison_text
from sawtooth.app.words import changes
from sawtooth.app.words import comparison as words
from tests.support.run_results import run_of, side


def test_rows_that_rest_on_the_step_say_what_the_headline_says():
    """30 ± 6 → 28 ± 6 ms: no change is shown; so MFU and utilization, which are work and busy time by that step, show none."""
    metrics = [
        {"mfu": 0.30, "nvml_gpu_util_mean": 0.80, "kernel_launches_per_step": 900.0},
        {"mfu": 0.33, "nvml_gpu_util_mean": 0.70, "kernel_launches_per_step": 500.0},
    ]
    sides = []
    for name, best, values in zip("ab", (30.0, 28.0), metrics, strict=True):
        run = run_of(name * 16, best_ms=best, source="telemetry", metrics=values)
        measured = Measured((best,) * 3, best, "telemetry", (name,), low_ms=best - 6, high_ms=best + 6)
        sides.append(replace(side(run), measured=(measured,)))
    found = compare(*sides)
    said = {row[0]: row[3] for row in changes.metric_rows(found)}
    assert words.headline(found).startswith("No measurable change between")
    assert [said[label] for label in ("Step time", "MFU")] == ["no measurable change"] * 2
    assert {changes.label(c.key): found.metric_word(c) for c in found.metrics if c.change}["Kernels per step"] == "better"
    marked = {row[0]: row[3] for row in changes.changed_rows(found)[0]}
    assert marked["Step time"] == "no measurable change" and "MFU" not in marked
    data = compare_json(found)
    assert data["metrics"]["mfu"]["says"] == data["metrics"]["best_step_time_ms"]["says"] == "not_measurable"
    assert "no measurable change" in comparison_text.markdown(found) and "✓ better" not in words.tab_title(found)

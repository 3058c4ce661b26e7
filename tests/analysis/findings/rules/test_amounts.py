"""Tests that no part of a step is longer than the step."""

from __future__ import annotations

import re

import pytest

from tests.support.findings_of import NAMES, result_of

AMOUNT = re.compile(r"(?<![\d.,])(\d[\d,]*(?:\.\d+)?)[ \u00a0](ns|µs|ms|s)\b")
IN_MS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}
ROUNDED = 1.005  # three digits
PROFILED_LONGER = ("collected_garbage", "conv_searches", "slow_every_fourth", "series_evaluated")


@pytest.mark.parametrize(
    "name",
    [*PROFILED_LONGER, *(pytest.param(name, marks=pytest.mark.sweep(15)) for name in NAMES if name not in PROFILED_LONGER)],
)
def test_a_title_has_no_part_longer_than_the_step(name: str) -> None:
    # A time measured under the profiler is scaled to the run's step, or called profiled.
    result = result_of(name)
    step_ms = result.metrics["best_step_time_ms"].value
    assert step_ms is not None
    for finding in result.findings:
        amounts = [float(number.replace(",", "")) * IN_MS[unit] for number, unit in AMOUNT.findall(finding.title)]
        if "profile" not in finding.title:
            assert max(amounts, default=0.0) <= ROUNDED * step_ms, finding.title
        assert (finding.ceiling_ms_per_step or 0.0) <= ROUNDED * step_ms, finding.title

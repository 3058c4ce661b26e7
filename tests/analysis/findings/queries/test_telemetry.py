"""Tests of what telemetry shows about a rank's GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.queries.telemetry import idle_by_telemetry_ms
from sawtooth.analysis.metrics.reading import Reading


def context(gpus: int, busy: float) -> RuleContext:
    rank = SimpleNamespace(
        metrics={"nvml_gpu_util_mean": Reading(busy)}, facts=SimpleNamespace(kernels_in_counted_steps=100), counted=[1] * 10
    )
    return cast("RuleContext", SimpleNamespace(run=SimpleNamespace(gpus=gpus), rank=rank, step_ms=100.0))


def test_utilization_of_a_job_shows_no_idle_time() -> None:
    """A GPU that waits for another one in a collective counts as busy."""
    assert idle_by_telemetry_ms(context(1, 0.9)) == pytest.approx(10)
    assert idle_by_telemetry_ms(context(2, 0.9)) is None

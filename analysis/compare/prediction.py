"""Predicted against measured: what A's report said of the fixes that B made, beside what B takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.run.model import Finding, RunResult


@dataclass(frozen=True)
class Prediction:
    """The step (ms) that A's report predicted for the fixes of ``rules``, and what was measured of B."""

    rules: tuple[str, ...]
    predicted_ms: float
    measured_ms: float


def prediction(a: RunResult, measured_ms: float | None, fixed: Sequence[Finding]) -> Prediction | None:
    """Return the prediction that B puts to the test, None where A made none for just these fixes.

    One fix has its finding's prediction, several have the plan's where they are its first ones: gains do not add up.
    """
    promised = tuple(finding for finding in fixed if finding.claims == "gain" and finding.severity != "info")
    if measured_ms is None or not promised:
        return None
    if len(promised) == 1 and promised[0].predicted_step_ms is not None:
        return Prediction((promised[0].rule,), promised[0].predicted_step_ms, measured_ms)
    first = a.plan[: len(promised)]
    rules = tuple(step.rule for step in first)
    if set(rules) != {finding.rule for finding in promised}:
        return None
    return Prediction(rules, first[-1].predicted_step_ms, measured_ms)

"""A hand-built plan chart: a step of 100 ms, and the step time after each change."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.run.model import CodeChange, Finding, RunResult
from sawtooth.analysis.staircase import Parts, Staircase, StairStep
from tests.support.actions import act
from tests.support.run_results import run_of

CODE = (CodeChange("PyTorch", "a = 1\nb = 2", "a = 1\nb = 3\nc = 4"),)


def change(rule: str, action: str, before: float, after: float, **more: object) -> Finding:
    return Finding(rule, "warning", f"{rule} costs time", act(action), "high", predicted_step_ms=after, predicted_speedup=before / after, changes=CODE, **more)  # type: ignore[arg-type]  # fmt: skip


def stairs_of(*steps: tuple[float, float, float]) -> tuple[RunResult, Staircase]:
    """Return a run with a step of 100 ms, and its plan chart with ``steps`` (ms, low, high)."""
    result = run_of(ledger=[("other_compute", None, 40_000_000, 40.0), ("idle", "data_wait", 60_000_000, 60.0)])
    rules = [f"rule-{i}" for i in range(len(steps))]
    found = [change(rule, "Use the fused optimizer.", 100.0, ms) for rule, (ms, _, _) in zip(rules, steps, strict=True)]
    choices = {0: StairStep(100.0, 98.0, 102.0, _parts(100.0))}
    choices |= {choice: StairStep(*steps[choice.bit_length() - 1], _parts(steps[choice.bit_length() - 1][0])) for choice in range(1, 1 << len(steps))}  # fmt: skip
    return replace(result, findings=found), Staircase(tuple(rules), len(rules), choices)


def _parts(ms: float) -> Parts:
    return (("other_compute", None, min(ms, 40.0)), ("idle", "data_wait", max(ms - 40.0, 0.0)))

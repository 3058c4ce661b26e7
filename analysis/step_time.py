"""Which step time speaks for the run: the user's stopwatch, telemetry's, the profile's or the unprofiled estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.metrics import Reading, Trust, missing

AGREES_WITHIN = 0.05  # within 5 % of the estimate, the profile itself is the better number: it was measured
ONE_STEP = "A single step: it may hold what filling the pipeline took, and nothing says how steps vary."


@dataclass(frozen=True)
class BestStepTime:
    """``source`` is user, telemetry, estimate or profile. ``profiled`` is the median, ``mean_ms`` the mean device step of the profile."""

    source: str
    reading: Reading
    profiled: Reading
    estimate: Reading
    mean_ms: float | None

    @property
    def ms(self) -> float | None:
        """The best step time in ms."""
        return self.reading.value


def choose_step_time(
    steps: pd.DataFrame, estimate: dict[str, Any] | None, user_ms: float | None, telemetry_ms: Reading | None = None
) -> BestStepTime:
    """Choose the run's step time.

    ``steps`` is the derived table; ``estimate`` holds ``step_ns`` or ``why_missing`` of the replay; ``telemetry_ms`` is given only
    where telemetry shows that the profiled steps do not represent the run.
    """
    from_steps = steps[steps["counted"]]
    durations = (from_steps["end_ns"] - from_steps["start_ns"]) / 1e6
    nothing = missing("The trace has no steps: no ProfilerStep, optimizer step or repeated annotation.")
    several = len(durations) > 1
    trust: Trust = "ok" if several else "caution"
    profiled = (
        Reading(float(durations.median()), trust=trust, notes=() if several else (ONE_STEP,)) if len(durations) else nothing
    )
    mean_ms = float(durations.mean()) if len(durations) else None
    est = _estimate(estimate, profiled)
    if user_ms is not None:
        return BestStepTime(
            "user", Reading(user_ms, notes=("Measured without the profiler, as given by the user.",)), profiled, est, mean_ms
        )
    if telemetry_ms is not None and telemetry_ms.value is not None:
        return BestStepTime("telemetry", telemetry_ms, profiled, est, mean_ms)
    if mean_ms is None or profiled.value is None:
        return BestStepTime("profile", nothing, profiled, est, None)
    if est.value is None:
        note = f"As profiled; the profiler's own cost is not taken off. {est.why_missing}"
        return BestStepTime("profile", Reading(mean_ms, trust="caution", notes=(note,)), profiled, est, mean_ms)
    if abs(est.value - mean_ms) <= AGREES_WITHIN * mean_ms:
        note = f"Mean of the profiled steps; the estimate without the profiler ({est.value:.4g} ms) agrees within 5 %."
        return BestStepTime("profile", Reading(mean_ms, trust=trust, notes=(note, *profiled.notes)), profiled, est, mean_ms)
    note = f"Estimated without the profiler's cost; under the profiler a step took {mean_ms:.4g} ms."
    return BestStepTime("estimate", Reading(est.value, trust="caution", notes=(note, *est.notes)), profiled, est, mean_ms)


def _estimate(estimate: dict[str, Any] | None, profiled: Reading) -> Reading:
    if profiled.value is None:
        return missing("There are no steps to estimate.")
    if not estimate:
        return missing("No replay of this trace was made.")
    if estimate.get("step_ns") is None:
        return missing(estimate.get("why_missing") or "The replay does not explain this trace.")
    return Reading(estimate["step_ns"] / 1e6, trust="caution", notes=tuple(estimate.get("notes", ())))

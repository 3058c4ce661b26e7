"""Decide whether a change is kept, by the comparison's verdict and the drift of the base runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps, mean_of_all

Word = Literal["kept", "slower", "not_shown"]


@dataclass(frozen=True)
class JudgedTrial:
    """The decision about a trial, its verdict, and its change from the base runs (negative: faster)."""

    word: Word
    verdict: Verdict
    change_ms: float | None
    drift_ms: float


def judge(
    neighbours: Sequence[MeasuredSteps], trial: MeasuredSteps, base_runs: Sequence[MeasuredSteps], drift_ms: float = 0.0
) -> JudgedTrial:
    """Decide whether the change of ``trial`` is kept, compared with the adjacent base runs.

    ``neighbours`` are these runs. ``drift_ms`` is the change within a base run. The drift is the larger of ``drift_ms`` and the difference between
    ``base_runs``. If the trial differs from the nearest base run by no more than the drift, the result is "not_shown",
    because a drifting host may explain such a difference.
    """
    compared = verdict(neighbours, [trial])
    base = mean_of_all([run.best_ms for run in neighbours])
    times = [run.best_ms for run in base_runs if run.best_ms is not None]
    drift = max(drift_ms, max(times) - min(times) if times else 0.0)
    change = trial.best_ms - base if trial.best_ms is not None and base is not None else None
    nearest = min((abs(trial.best_ms - run.best_ms) for run in neighbours if trial.best_ms and run.best_ms), default=0.0)
    if change is None or not compared.shown or nearest <= drift:
        return JudgedTrial("not_shown", compared, change, drift)
    return JudgedTrial("kept" if compared.word == "faster" else "slower", compared, change, drift)

"""A sentence for two runs whose profiles show another change than the best step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.analysis.units import in_words, percent

# Allowed relative difference between two ratios: B ÷ A of the profiled steps, and B ÷ A of the runs' steps. For large
# changes, the logarithms of the ratios are compared.
MAX_RATIO_DIFFERENCE = 0.10
MIN_CHANGE = 0.005  # The replay reproduces a recorded step to half a percent, so the sign of a smaller change means nothing.


def disagreement(
    best: tuple[float | None, float | None],
    a_ns: Fraction | None,
    b_ns: Fraction | None,
    sources: tuple[Sequence[StepSource], Sequence[StepSource]],
    *,
    is_shown: bool,
) -> str | None:
    """Return a sentence if the profiles and the best step times show different changes.

    They differ if the signs are opposite, or if the ratios of B to A differ by more than 10 %. Otherwise return None.
    Swapping the sides gives the same answer.
    """
    a, b = best
    if a is None or b is None or not a or not b or not a_ns or not b_ns:
        return None
    profile = (float(a_ns) / 1e6, float(b_ns) / 1e6)
    moves = (b / a - 1, profile[1] / profile[0] - 1)
    opposite = moves[0] * moves[1] < 0 and min(abs(move) for move in moves) > MIN_CHANGE
    run, profiled = (math.log1p(move) for move in moves)
    if not opposite and abs(profiled - run) <= max(math.log1p(MAX_RATIO_DIFFERENCE), MAX_RATIO_DIFFERENCE * abs(run)):
        return None
    measured = " and ".join(STEP_SOURCES[source].name for source in dict.fromkeys((*sources[0], *sources[1])))
    costs = [_longer(p / t - 1) for p, t in zip(profile, (a, b), strict=True)]
    return (
        f"The profiles and the runs disagree. Under the profiler a step of B takes {_move_in_words(moves[1])} ({in_words(profile[0], 4)} → {in_words(profile[1], 4)}); "
        f"by {measured} it takes {_move_in_words(moves[0])}{'' if is_shown else ', which is uncertain'} ({in_words(a, 4)} → {in_words(b, 4)}). Profiled steps are {costs[0]} the run's in A and "
        f"{costs[1]} the run's in B, so the waterfall of the profiles explains the recordings, not the gain."
    )


def _longer(move: float) -> str:
    return "as long as" if abs(move) < MIN_CHANGE else f"{percent(abs(move))} {'longer' if move > 0 else 'shorter'} than"


def _move_in_words(move: float) -> str:
    if move > 1:
        return f"{1 + move:.3g} times as long"
    return "as long" if abs(move) < MIN_CHANGE else f"{percent(abs(move))} {'more' if move > 0 else 'less'} time"

"""The facts below the plan chart: training time, MFU and money, now and after the changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.combined_changes import CombinedPrediction, mfu_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.staircase import Staircase
from sawtooth.app.words import headline, savings
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as run_words
from sawtooth.app.words.answer.title import chosen


@dataclass(frozen=True)
class CostFacts:
    """Facts for costs: remaining steps and price of a GPU-hour."""

    steps: float | None = None
    price: float | None = None


def facts(result: RunResult, stairs: Staircase, choice: int, cost_facts: CostFacts) -> list[tuple[str, str]]:
    """Return the facts below the chart for ``choice``: label and value."""
    if not choice or stairs.choices[choice].limit:
        in_headline = not choice and headline.healthy(result) is not None  # The headline of a healthy run has the MFU.
        shows_mfu = result.lead is not None and not in_headline and savings.is_mfu_meaningful(result.metrics)
        mfu_fact = run_words.mfu_fact(result.metrics) if shows_mfu else None
        return _named([*host_words.facts(result, None), *([mfu_fact] if mfu_fact is not None else [])])
    changed, findings = stairs.choices[choice], chosen(stairs, choice, result)
    mfu = mfu_of(result.lead, findings) if result.lead is not None else None
    forecast = CombinedPrediction(stairs.now.ms, changed.ms, mfu, max(result.gpus, 1), changed.low_ms, changed.high_ms)
    if result.lead is not None:
        forecast = savings.with_known_mfu(forecast, result.lead.metrics)
    saved = savings.lines(
        forecast,
        None,
        steps=cost_facts.steps,
        price_per_gpu_hour=cost_facts.price,
        about=headline.about_now(result),
    )
    return _named(host_words.facts(result, forecast) + saved)


def _named(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return facts whose labels begin with a capital letter."""
    return [(f"{label[0].upper()}{label[1:]}", value) for label, value in lines]

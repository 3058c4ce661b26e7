"""The answer as one slide.

This module collects the content. The browser draws the slide and saves it as PNG.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from sawtooth.analysis import reading_order
from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import poster_bars
from sawtooth.app.page.parts import findings
from sawtooth.app.words import advice, headline, savings
from sawtooth.app.words import run as words
from sawtooth.app.words.comparisons import comparison as compare_words
from sawtooth.app.words.comparisons import intervals, setup_changes, step_parts

_COMPONENTS = Path(__file__).resolve().parents[2] / "components"
MAX_LINES = 3  # Lines below the bars. More would not fit on the slide.


def button(slide: dict[str, Any], file: str) -> None:
    """Offer ``slide`` as the file ``file``.png."""
    component = st.components.v2.component(
        "sawtooth.slide",
        html=(_COMPONENTS / "slide.html").read_text(encoding="utf-8"),
        css=(_COMPONENTS / "slide.css").read_text(encoding="utf-8"),
        js=(_COMPONENTS / "slide.js").read_text(encoding="utf-8"),
    )
    component(key="slide", data={**slide, "file": file}, width="content")


def of_run(result: RunResult) -> dict[str, Any] | None:
    """Return the slide of a Verdict; None without a step time.

    The slide contains the first change, its gain, the step before and after it, and the first advised changes.
    """
    forecast, before = headline.forecast(result), words.step_time_text(result)
    if before is None:
        return None
    lines = [
        f"{number}  {headline.action(finding)}  {advice.gain_text(result, finding)}"
        for number, finding in findings.advised_findings(result)[:MAX_LINES]
    ]
    facts = (
        savings.lines(forecast, reading_order.lead_finding(result), steps=None, price_per_gpu_hour=None)
        if forecast is not None
        else []
    )
    bars = poster_bars.of_run(
        result, before, forecast, plan=advice.plan_bar(result, forecast.after_ms if forecast is not None else None)
    )
    return {
        "title": fmt.clean(headline.on_poster(result)),
        "under": fmt.clean(advice.below(result) or ""),
        "before": f"{before} per step" if forecast is None else before,
        "after": f"≈\u00a0{fmt.duration_ms(forecast.after_ms)} per step" if forecast is not None else "",
        "times": fmt.speedup(forecast.speedup) if forecast is not None else "",
        "facts": facts,
        "bars": poster_bars.plain_data(bars),
        "small": poster_bars.plain_data(poster_bars.unlabelled(bars)),
        "lines": [fmt.clean(line) for line in lines],
        "foot": f"{fmt.clean(result.manifest.name, 60)} · {words.subtitle(result)} · Sawtooth",
    }


def of_comparison(comparison: Comparison) -> dict[str, Any] | None:
    """Return the slide of a comparison; None if the steps cannot be divided into parts.

    The slide contains the verdict, both steps, and the largest changes.
    """
    steps = step_parts.steps_divided(comparison)
    if not steps:
        return None
    bars = step_parts.bars(comparison, steps[0])
    _, *moves, _ = poster_bars.moves(bars)
    names = compare_words.names(comparison)
    return {
        "title": fmt.clean(compare_words.headline(comparison)),
        "under": fmt.clean(setup_changes.tested_prediction(comparison) or compare_words.certainty(comparison)),
        "before": "",  # The title contains the times.
        "after": "",
        "times": "",
        "facts": [],
        "bars": poster_bars.plain_data(
            poster_bars.both_steps(
                bars,
                dark=False,
                about=compare_words.both_about(comparison),
                ratio=intervals.stated_ratio(comparison),
            )
        ),
        "small": [],  # The lines below name the differences.
        "lines": [f"{move.text}  {move.name}" for move in moves[:MAX_LINES]],
        "foot": f"A: {fmt.clean(names[0], 60)} · B: {fmt.clean(names[1], 60)} · Sawtooth",
    }

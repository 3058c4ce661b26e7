"""Is this run good, what loses most time, what to do first."""

from __future__ import annotations

import streamlit as st

from analysis.judgement import GOOD, columns_of, judge, parts_of
from analysis.run_result import RankResult, RunResult
from app import cards, current, findings, frame, panel, share, telemetry_strip, words
from app.charts import step_bar


def main() -> None:
    """Show the page."""
    result = current.run_result()
    share.bar(result)
    if result.lead is None:
        cards.headline(words.first_line(result))
        current.what_is_missing(result)
    else:
        _judged(result, result.lead)
    telemetry_strip.last_minute(result)
    findings.limits(result)


def _judged(result: RunResult, rank: RankResult) -> None:
    verdict = judge(rank)
    cards.headline(words.first_line(result))
    if verdict and (sentence := words.distortion(verdict)):
        cards.small(sentence)
    notes = {
        "step_time_best_ms": words.spread(rank),
        "mfu": words.mfu_note(result.metrics),
        "tensor_core_time_share": words.tensor_note(result.metrics),
        "gpu_busy_share": words.busy_note(result.metrics),
    }
    with st.grid(min_column_width=215, gap="small"):
        for key, note in notes.items():
            cards.metric_card(key, result.metrics[key], note=note, good=GOOD.get(key))
    if verdict:
        bars = {column: parts_of(rank, column) for column in columns_of(rank)}
        chart = step_bar.chart(bars, words.step_bar_title(verdict), dark=frame.dark(), per_step=bool(len(rank.counted)))
        panel.show(chart, "where-a-step-goes")
    if not len(rank.counted):
        cards.empty_state(words.NO_STEPS, words.NO_STEPS_WHY, "profiler.step()  # after each training step", "python")
    findings.show(result)


main()

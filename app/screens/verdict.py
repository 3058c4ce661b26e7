"""The Verdict screen: is the run good, what loses most time, and what to do first.

One poster gives the answer, and the part "Why" shows the numbers behind it.
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from sawtooth.analysis.metrics.registry import CARDS
from sawtooth.analysis.run.host import HostWork
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import Judgement, columns_of, judge, parts_of
from sawtooth.app.charts import step_bar
from sawtooth.app.page import basis, cards, current, frame, panel
from sawtooth.app.page.parts import findings, telemetry_strip
from sawtooth.app.page.sharing import poster, share
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as words


def main() -> None:
    """Show the page."""
    result = current.run_result()
    share.bar(result)
    if result.lead is None:
        poster.show(result)
        if result.host is not None:
            _of_the_host(result.host)
        current.what_is_missing(result, beside_answer=True)
        telemetry_strip.last_minute(result)
    else:
        _judged(result, result.lead)
    findings.limits(result)


def _of_the_host(work: HostWork) -> None:
    with st.expander("Why: where the host's time goes", icon=":material/help:", expanded=True):
        for note in work.step.notes:
            cards.small(note)
        with st.grid(min_column_width=340, gap="medium"):
            for title, heads, rows in host_words.tables(work):
                with st.container():
                    cards.title(title)
                    cards.table(heads, rows, title, figures=True)


def _judged(result: RunResult, rank: RankResult) -> None:
    verdict = judge(rank)
    poster.show(result)
    if not len(rank.counted) and not findings.claimed(result):  # otherwise a finding says how to mark steps
        code = (
            'with torch.cuda.nvtx.range("step"):\n    train(batch)'
            if rank.trace.by_nsight
            else "profiler.step()  # after each training step"
        )
        cards.empty_state(words.NO_STEPS, words.NO_STEPS_WHY, code, "python")
    with st.expander("Why: what the numbers are and where a step goes", icon=":material/help:"):
        _why(result, rank, verdict)


def _why(result: RunResult, rank: RankResult, verdict: Judgement | None) -> None:
    if verdict and (sentence := words.distortion(verdict)):
        cards.small(sentence)
    chosen = basis.switch(rank)
    with st.grid(min_column_width=215, gap="small"):
        for metric in CARDS:
            reading, note = basis.reading(metric.key, result, rank, chosen)
            cards.metric_card(metric.key, reading, note=note, good=metric.good)
    if verdict:
        column = chosen if chosen in columns_of(rank) else columns_of(rank)[0]
        shown = replace(verdict, column=column, parts=parts_of(rank, column))
        chart = step_bar.chart(
            {column: shown.parts},
            words.step_bar_title(shown),
            dark=frame.dark(),
            per_step=bool(len(rank.counted)),
        )
        panel.show(chart, "where-a-step-goes")
    telemetry_strip.last_minute(result)
    findings.not_checked(result)


main()

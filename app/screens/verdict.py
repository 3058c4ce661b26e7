"""The Verdict screen: the step now and after each change, and the evidence.

The answer is the staircase: a bar for the step now and after each change. Folded sections below it contain the findings
without a predicted gain, and all numbers.
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.metrics.registry import CARDS, METRICS
from sawtooth.analysis.run.host import HostWork
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import RunJudgement, columns_of, judge, parts_of
from sawtooth.analysis.staircase import Staircase
from sawtooth.app import format as fmt
from sawtooth.app.charts import step_bar
from sawtooth.app.page import basis, cards, controls, current_result, frame, panel, staircase
from sawtooth.app.page.parts import findings, step_strip, telemetry_strip
from sawtooth.app.page.runs import attach_telemetry
from sawtooth.app.page.sharing import share
from sawtooth.app.words import advice, headline
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as words
from sawtooth.app.words import staircase as staircase_words
from sawtooth.app.words.answer.step import answer_of
from sawtooth.app.words.answer.title import first_without_bar

NUMBERS = "numbers"  # Address parameter: whether the section of all numbers is open.
SHOWN_FIRST = 3  # Findings that are shown open if there are no bars; the others are folded.


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    share.bar(result)
    stairs = staircase_words.of_run(result, current_result.staircase(result))
    depends_on_viewer = staircase.show(result, stairs)
    if (withdrawn := result.withdrawn_by) is not None:
        _without_answer(result, withdrawn)
    if result.manifest.failure is not None:
        cards.caution(fmt.clean(result.manifest.failure))
    attach_telemetry.offer_telemetry(result.manifest)
    with st.container(gap="xsmall"):
        if depends_on_viewer:  # Directly below the training time that these numbers change.
            staircase.questions()
        _findings(result, stairs)
        _why(result, stairs)
    findings.limits(result)
    if result.lead is None:
        findings.notes(result)


def _without_answer(result: RunResult, check: FailedCheck) -> None:
    """Show what is known, what is not known, and what to do after a check withdrew the answer."""
    known = [  # Leave out bounds and assumed values. For a few records, "busy ≥ 0.05 %" says nothing.
        f"{METRICS[key].label}: {fmt.reading(key, reading)}"
        for key, reading in result.metrics.items()
        if reading.value is not None and reading.bound is None and reading.trust == "ok"
    ]
    unknown = [
        metric.label for metric in CARDS if (reading := result.metrics[metric.key]).value is None or reading.bound is not None
    ]
    rules = fmt.many(len(result.not_checked), "rule")
    blocks = (
        ("What is known", [*known, "What the host did: its operators and launches are on the Timeline and in SQL."]),
        ("What is not known", [f"{', '.join(unknown)}.", f"What shortens a step: {rules} could not be checked."]),
        ("What to do", [check.advice, "Drop the new trace on this page. Its Verdict then has the step and the changes."]),
    )
    with st.grid(min_column_width=300, gap="small"):
        for heading, sentences in blocks:
            with st.container(border=True, gap="xsmall", height="stretch"):
                cards.title(heading)
                for sentence in filter(None, sentences):
                    cards.paragraph(sentence)
    frame.link("timeline", "What the host did, on the timeline", icon=":material/view_timeline:")


def _findings(result: RunResult, stairs: Staircase | None) -> None:
    """Show the findings that are not bars: open if there are no bars, else folded."""
    drawn = [finding for _, finding in advice.numbered(result) if stairs is not None and finding.rule in stairs.changes]
    if (
        drawn and stairs is not None and (limit := first_without_bar(stairs, result)) is not None
    ):  # Show the headline's change first if it has no bar.
        findings.show_finding(next(number for number, finding in advice.numbered(result) if finding is limit), limit, result)
        drawn.append(limit)
    if drawn or headline.healthy(result) is not None:
        findings.show_rest(result, drawn)
        return
    first = (findings.advised_findings(result) or advice.findings_on_loss(result))[:SHOWN_FIRST]
    if (loss := advice.advice_on_loss(result)) is not None:
        findings.show_advice_on_loss(*loss)
    for number, finding in first:
        findings.show_finding(number, finding, result)
    findings.show_rest(result, [finding for _, finding in first])


def _why(result: RunResult, stairs: Staircase | None) -> None:
    """Show the numbers behind the answer; without GPU work, show what is known and what is missing."""
    if result.lead is None:
        if result.host is not None:
            _of_the_host(result.host)
        current_result.what_is_missing(result, beside_answer=True)
        telemetry_strip.last_minute(result)
        findings.not_checked(result)
        return
    rank, verdict = result.lead, judge(result.lead)
    if not len(rank.counted) and not findings.advised_findings(result):  # Otherwise a finding says how to mark steps.
        code = (
            'with torch.cuda.nvtx.range("step"):\n    train(batch)'
            if rank.trace.by_nsight
            else "profiler.step()  # after each training step"
        )
        cards.empty_state(words.NO_STEPS, words.NO_STEPS_WHY, code, "python")
    linked = basis.BASIS in st.query_params
    if fold := controls.fold("All numbers, and where a step goes", NUMBERS, icon=":material/table_rows:", opened=linked):
        with fold:
            _numbers(result, rank, verdict, stairs)
            findings.notes(result)


def _of_the_host(work: HostWork) -> None:
    with st.expander("Why: where the host's time goes", icon=":material/help:", expanded=True):
        for note in work.step.notes:
            cards.small(note)
        with st.grid(min_column_width=340, gap="medium"):
            for title, heads, rows in host_words.tables(work):
                with st.container():
                    cards.title(title)
                    cards.table(heads, rows, title, figures=True)


def _numbers(result: RunResult, rank: RankResult, verdict: RunJudgement | None, stairs: Staircase | None) -> None:
    if verdict and (sentence := words.distortion(verdict)):
        cards.small(sentence)
    chosen = basis.switch(rank)
    with st.grid(min_column_width=215, gap="small"):
        for metric in CARDS:
            reading, note = basis.reading(metric.key, result, rank, chosen)
            cards.metric_card(metric.key, reading, note=note, good=metric.good)
    if verdict:
        column = chosen if chosen in columns_of(rank) else columns_of(rank)[0]
        parts = staircase_words.now_parts(result, stairs) if stairs is not None and column == verdict.column else ()
        shown = replace(verdict, column=column, parts=parts or parts_of(rank, column))
        step = answer_of(result, rank)
        names = step.names if step is not None else {}
        chart = step_bar.chart(
            {column: shown.parts},
            words.step_bar_title(shown, names),
            names,
            dark=frame.is_dark(),
            per_step=bool(len(rank.counted)),
        )
        panel.show(chart, "where-a-step-goes")
    step_strip.show(result.manifest.id, rank)
    telemetry_strip.last_minute(result)
    findings.not_checked(result)


main()

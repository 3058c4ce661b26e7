"""Findings on the page: the change, its predicted gain, its evidence, and the limits of the numbers."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import streamlit as st

from sawtooth.analysis import reading_order
from sawtooth.analysis.findings.recorded.source_lines import user_stack
from sawtooth.analysis.knowledge.frames import FRAME, MODULE, readable_frame
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.page.timeline import views
from sawtooth.app.reports import text as report_text
from sawtooth.app.words import advice, evidence, headline
from sawtooth.app.words import run as words

MAX_TRIED = 8  # The Python stacks of this many pieces of evidence are read to find a code line, to save time.
TIMELINE_SPAN_RATIO = 1.1  # Time span that the timeline shows, relative to the step's length.
_ICON = {"critical": ":material/error:", "warning": ":material/warning:", "info": ":material/info:"}
_COLOUR: dict[str, Literal["red", "orange", "blue"]] = {"critical": "red", "warning": "orange", "info": "blue"}
_DIAGNOSTIC = {"error": "Damage", "data_loss": "Missing", "info": "Note"}


def advised_findings(result: RunResult) -> list[tuple[int, Finding]]:
    """Return the numbered findings that advise a change, in the order in which to make the changes."""
    return [(number, finding) for number, finding in advice.numbered(result) if reading_order.is_advice(finding)]


def show_rest(result: RunResult, shown: list[Finding]) -> None:
    """Show all findings except ``shown``, folded."""
    other_findings = [(number, finding) for number, finding in advice.numbered(result) if finding not in shown]
    with_advice = [(number, finding) for number, finding in other_findings if reading_order.is_advice(finding)]
    without_advice = other_findings[len(with_advice) :]
    changes = fmt.many(len(with_advice), "more change") if shown else f"{fmt.many(len(with_advice), 'change')} to try"
    groups = ((changes, with_advice), (words.remarks_heading(len(without_advice)), without_advice))
    unshown = [(label, folded) for label, folded in groups if folded]
    if unshown:
        with st.expander(" · ".join(label for label, _ in unshown), icon=":material/list:"):
            for label, folded in unshown:
                if len(unshown) > 1:
                    cards.section_label(label)
                for number, finding in folded:
                    show_finding(number, finding, result)


def not_checked(result: RunResult) -> None:
    """Say which rules could not be checked and why; shows nothing if all were checked."""
    if result.not_checked:
        with st.expander(words.not_checked(len(result.not_checked)), icon=":material/rule:"):
            for sentence in words.why_unchecked(result.not_checked):
                cards.small(sentence)


def show_finding(number: int, finding: Finding, result: RunResult) -> None:
    """Show one finding."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            cards.numbered(number, finding.title)
            st.badge(finding.severity, icon=_ICON[finding.severity], color=_COLOUR[finding.severity])
        if not finding.observed:  # The last paragraph of a finding from samples already contains this sentence.
            cards.small(advice.gain_and_step(result, finding))
        for paragraph in advice.paragraphs(finding):
            cards.paragraph(paragraph)
        if (note := advice.note_on_other_changes(result, finding)) is not None:
            cards.small(note)
        why_button(number, finding, result)


def show_advice_on_loss(what: str, gain: str) -> None:
    """Show what to do about the largest loss if no finding covers it."""
    with st.container(border=True):
        cards.numbered(1, what)
        cards.small(gain)
        frame.link("idle", "Where it is lost", run=st.session_state.get("run"), icon=":material/hourglass_empty:")


def why_button(number: int, finding: Finding, result: RunResult) -> None:
    """Offer the evidence of a finding in a dialog, because a popover is too small for it."""
    if st.button("Why", icon=":material/fact_check:", key=f"why-{number}"):
        st.dialog(fmt.markdown(headline.action(finding)), width="large")(_why)(number, finding, result)


def _why(number: int, finding: Finding, result: RunResult) -> None:
    cards.show_bold(finding.title)
    for paragraph in advice.paragraphs(finding):
        cards.paragraph(paragraph)
    cards.small(f"{advice.gain_and_step(result, finding)}.")
    if finding.evidence:
        _evidence(number, finding, result)
    for label, note in (("The prediction", finding.prediction_note), ("The risk", finding.risk)):
        if note and not finding.observed:
            cards.definition(label, note)
    for change in finding.changes:
        cards.small(f"In {change.framework}")
        st.code(advice.diff(change), language="diff")


def _evidence(number: int, finding: Finding, result: RunResult) -> None:
    """Show the evidence of a finding, and its CSV."""
    heads, rows = evidence.table(finding)
    cards.table(heads, rows, "The evidence of the finding")
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        panel.csv_button(pd.DataFrame(list(finding.evidence)), f"evidence-{finding.rule}", f"evidence-{number}")
        timeline_link(finding, result)


def timeline_link(finding: Finding, result: RunResult) -> None:
    """Link to the step on the timeline with most of the evidence; shows nothing if no evidence has a time."""
    if (place := place_of(finding, result)) is not None:
        frame.link("timeline", "Show on the timeline", run=result.manifest.id, icon=":material/view_timeline:", **place)


def place_of(finding: Finding, result: RunResult) -> dict[str, str] | None:
    """Return the address parameters of the step with most of the evidence; None if no evidence has a time."""
    rank = result.lead
    view = whole_step(rank, finding) if rank is not None else None
    if rank is None or view is None:
        return None
    extent = views.extent(rank.recording_id)
    low, high = view.zoomed(TIMELINE_SPAN_RATIO, extent).relative_ms(extent.start_ns)
    return {"t0": f"{low:.6f}", "t1": f"{high:.6f}", "finding": finding.rule}


def own_line(result: RunResult, finding: Finding) -> str | None:
    """Return the user's code line behind a finding and its callers; None without Python stacks.

    For example "train.py:96 in step, main › train".
    """
    rank = result.lead
    starts = [int(row["start_ns"]) for row in finding.evidence if row.get("start_ns") is not None]
    if rank is None or not rank.trace.with_stack:
        return None
    root = str(frame.data_folder().root)
    stacks = (_frames(root, rank.recording_id, rank.device, start) for start in starts[:MAX_TRIED])
    stack = next((stack for stack in stacks if stack), None)
    if stack is None:
        return None
    parsed = [match for name in stack if (match := FRAME.match(name))]
    path = " › ".join(match["function"] for match in parsed[:-1] if match["function"] != MODULE)
    return ", ".join(filter(None, (readable_frame(stack[-1]), path)))


@st.cache_data(max_entries=256, show_spinner=False)
def _frames(root: str, recording_id: str, device: int, start_ns: int) -> tuple[str, ...]:
    with frame.library().open(recording_id) as recording:
        return user_stack(recording, device, start_ns)


def whole_step(rank: RankResult, finding: Finding) -> TimelineSpan | None:
    """Return the counted step that contains most pieces of the evidence; None if no piece has a time.

    The whole step is shown, because a single piece, such as one launch gap, would not show the pattern. If no counted step
    contains a piece, the result is the span of all pieces.
    """
    timed = [row for row in finding.evidence if row.get("start_ns") is not None and row.get("end_ns") is not None]
    if not timed:
        return None
    pieces = [TimelineSpan(int(row["start_ns"]), int(row["end_ns"])) for row in timed]
    steps = [
        TimelineSpan(int(start), int(end)) for start, end in zip(rank.counted["start_ns"], rank.counted["end_ns"], strict=True)
    ]
    pieces_in = {step: sum(step.start_ns <= piece.start_ns < step.end_ns for piece in pieces) for step in steps}
    best = max(pieces_in, key=lambda step: pieces_in[step], default=None)
    if best is not None and pieces_in[best]:
        return best
    return TimelineSpan(min(piece.start_ns for piece in pieces), max(piece.end_ns for piece in pieces))


def limits(result: RunResult) -> None:
    """Say what limits the numbers: import problems, dropped events and readings with low trust."""
    diagnostics = _limiting(result)
    if any(d.severity != "info" for d in diagnostics):
        with st.expander(_heading(diagnostics), icon=":material/warning:", expanded=True):
            _list(diagnostics)


def notes(result: RunResult) -> None:
    """Show the notes about the recording if none of them limits a number."""
    diagnostics = _limiting(result)
    if diagnostics and all(d.severity == "info" for d in diagnostics):
        cards.title(_heading(diagnostics))
        _list(diagnostics)


def _limiting(result: RunResult) -> list[Diagnostic]:
    # This sentence is already below the headline.
    already_shown = result.withdrawn_by.sentence if result.withdrawn_by is not None else None
    limiting = [
        d for d in report_text.limiting_diagnostics(result) if already_shown is None or not d.sentence.startswith(already_shown)
    ]
    return list({(d.severity, d.sentence): d for d in limiting}.values())  # Several ranks may have the same sentence.


def _heading(diagnostics: list[Diagnostic]) -> str:
    return f"{fmt.many(len(diagnostics), 'thing')} to know about this recording"


def _list(diagnostics: list[Diagnostic]) -> None:
    for diagnostic in diagnostics:
        cards.small(f"{_DIAGNOSTIC.get(diagnostic.severity, 'Note')}: {diagnostic.sentence}")

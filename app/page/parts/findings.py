"""Findings on the page: the change, its predicted gain, its evidence, and the limits of the numbers."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import streamlit as st

from sawtooth.analysis.outlook import Outlook, outlook
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.tables.timeline import Span
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.page.timeline import views
from sawtooth.app.reports import text as report_text
from sawtooth.app.words import advice, evidence, headline
from sawtooth.app.words import run as words

SHOWN_FIRST = 3  # three changes are enough for one day's work; the others are folded
# Address parameters: the included changes, the price of a GPU-hour, the remaining steps.
FIXES, PRICE, STEPS = "fixes", "price", "steps"
AROUND = 1.1  # shown time span on the timeline, relative to the step's length
_ICON = {"critical": ":material/error:", "warning": ":material/warning:", "info": ":material/info:"}
_COLOUR: dict[str, Literal["red", "orange", "blue"]] = {"critical": "red", "warning": "orange", "info": "blue"}
_DIAGNOSTIC = {"error": "Damage", "data_loss": "Missing", "info": "Note"}


def claimed(result: RunResult) -> list[tuple[int, Finding]]:
    """Return the numbered findings that the user can act on, in the order of the work."""
    return [(number, finding) for number, finding in advice.numbered(result) if advice.is_advice(finding)]


def show_plan(result: RunResult) -> None:
    """Show the folded plan: its fixes in order, each with the step time after it.

    Shows nothing if the plan has only one fix.
    """
    if len(result.plan) > 1 and (title := advice.plan_title(result)):
        with st.expander(title, icon=":material/checklist:"):
            for number, line in enumerate(advice.plan_lines(result), 1):
                cards.small(f"{number}. {line}")


def show_rest(result: RunResult, shown: list[Finding]) -> list[Finding]:
    """Show all findings except ``shown``, folded; return those that are ticked."""
    rest = [(number, finding) for number, finding in advice.numbered(result) if finding not in shown]
    more = [(number, finding) for number, finding in rest if advice.is_advice(finding)]
    known = rest[len(more) :]
    ticked: list[Finding] = []
    left = [
        (label, folded)
        for label, folded in (
            (f"{len(more)} more to change" if shown else f"{fmt.many(len(more), 'change')} to try", more),
            (words.cautions(len(known)), known),
        )
        if folded
    ]
    if left:
        with st.expander(" and ".join(label for label, _ in left), icon=":material/list:"):
            for label, folded in left:
                if len(left) > 1:
                    cards.section_label(label)
                for number, finding in folded:
                    ticked += _finding(number, finding, result)
    return ticked


def not_checked(result: RunResult) -> None:
    """Say which rules could not be checked and why; shows nothing if all were checked."""
    if result.not_checked:
        with st.expander(words.not_checked(len(result.not_checked)), icon=":material/rule:"):
            for rule in result.not_checked:
                cards.small(words.why_not_checked(rule))


def forecast(result: RunResult, ticked: list[Finding]) -> Outlook | None:
    """Return the combined prediction for the ticked changes; None if they cannot be replayed."""
    rank = result.lead
    if rank is None:
        return None
    rules = tuple(sorted(f.rule for f in ticked))
    return _predicted(rank.recording_id, rank.device, rank.best.ms, rules, gpus=result.gpus, _result=result, _ticked=ticked)


@st.cache_data(max_entries=128, show_spinner="Replaying the step with these changes …")
def _predicted(
    recording_id: str,
    device: int,
    step_ms: float | None,
    rules: tuple[str, ...],
    *,
    gpus: int,
    _result: RunResult,
    _ticked: list[Finding],
) -> Outlook | None:
    return outlook(frame.library(), _result.lead, gpus, _ticked) if _result.lead is not None else None


def tick(finding: Finding, key: str) -> bool:
    """Offer a checkbox that includes a change; the address stores the ticked changes."""
    asked = _asked()

    def remember() -> None:
        kept = [rule for rule in _asked() if rule != finding.rule] + ([finding.rule] if st.session_state[key] else [])
        if kept:
            st.query_params[FIXES] = ",".join(kept)
        else:
            st.query_params.pop(FIXES, None)

    return st.checkbox("Include", value=finding.rule in asked, key=key, on_change=remember)


def _asked() -> list[str]:
    return [rule for rule in st.query_params.get(FIXES, "").split(",") if rule]


def _finding(number: int, finding: Finding, result: RunResult) -> list[Finding]:
    """Show one finding; return it in a list if it is ticked."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            cards.numbered(number, finding.title)
            st.badge(finding.severity, icon=_ICON[finding.severity], color=_COLOUR[finding.severity])
        cards.small(advice.whole(result, finding))
        cards.paragraph(finding.fix)
        if (adds := advice.beside_others(result, finding)) is not None:
            cards.small(adds)
        ticked = False
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            if finding.edits:
                ticked = tick(finding, f"combine-{result.manifest.id}-{number}-{finding.rule}")
            why_button(number, finding, result)
    return [finding] if ticked else []


def why_button(number: int, finding: Finding, result: RunResult) -> None:
    """Offer the evidence of a finding in a dialog, because a popover is too small for it."""
    if st.button("Why", icon=":material/fact_check:", key=f"why-{number}"):
        st.dialog(fmt.markdown(headline.action(finding)), width="large")(_why)(number, finding, result)


def _why(number: int, finding: Finding, result: RunResult) -> None:
    cards.strong(finding.title)
    cards.paragraph(finding.fix)
    cards.small(f"{advice.whole(result, finding)}.")
    if finding.evidence:
        _evidence(number, finding, result)
    for label, note in (("The prediction", finding.prediction_note), ("The risk", finding.risk)):
        if note:
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
    rank = result.lead
    view = whole_step(rank, finding) if rank is not None else None
    if rank is not None and view is not None:
        whole = views.extent(rank.recording_id)
        low, high = view.zoomed(AROUND, whole).relative_ms(whole.start_ns)
        frame.link(
            "timeline",
            "Show on the timeline",
            run=result.manifest.id,
            icon=":material/view_timeline:",
            t0=f"{low:.6f}",
            t1=f"{high:.6f}",
            finding=finding.rule,
        )


def whole_step(rank: RankResult, finding: Finding) -> Span | None:
    """Return the counted step that contains most pieces of the evidence.

    A single piece, such as one launch gap, would not show the pattern. If no counted step contains a piece, the result spans
    all pieces. It is None if no piece has a time.
    """
    timed = [row for row in finding.evidence if row.get("start_ns") is not None and row.get("end_ns") is not None]
    if not timed:
        return None
    pieces = [Span(int(row["start_ns"]), int(row["end_ns"])) for row in timed]
    steps = [Span(int(start), int(end)) for start, end in zip(rank.counted["start_ns"], rank.counted["end_ns"], strict=True)]
    held = {step: sum(step.start_ns <= piece.start_ns < step.end_ns for piece in pieces) for step in steps}
    best = max(held, key=lambda step: held[step], default=None)
    if best is not None and held[best]:
        return best
    return Span(min(piece.start_ns for piece in pieces), max(piece.end_ns for piece in pieces))


def limits(result: RunResult) -> None:
    """Say what limits the numbers: import problems, dropped events and readings with low trust."""
    diagnostics = report_text.worth_knowing(result)
    if not diagnostics:
        return
    worst = any(d.severity != "info" for d in diagnostics)
    count = len(diagnostics)
    label = f"{count} thing{'s' if count > 1 else ''} to know about this recording"
    with st.expander(label, icon=":material/warning:" if worst else ":material/info:", expanded=worst):
        for diagnostic in diagnostics:
            cards.small(f"{_DIAGNOSTIC.get(diagnostic.severity, 'Note')}: {diagnostic.sentence}")

"""Findings on the page: what to change, what it brings, what proves it; and what limits the numbers."""

from __future__ import annotations

from typing import Literal

import pandas as pd
import streamlit as st

from analysis.run_result import Finding, RankResult, RunResult
from analysis.timeline import Span
from analysis.together import Outlook, outlook
from app import cards, frame, panel, report_text, words
from app import format as fmt
from app import timeline_views as views

SHOWN_FIRST = 3  # three changes are what somebody does today; the rest is folded
FIXES, PRICE = "fixes", "price"  # in the address: the changes counted in, and what a GPU-hour costs
AROUND = 2.2  # of its own length that a piece of evidence is shown with on the timeline
_ICON = {"critical": ":material/error:", "warning": ":material/warning:", "info": ":material/info:"}
_COLOUR: dict[str, Literal["red", "orange", "blue"]] = {"critical": "red", "warning": "orange", "info": "blue"}
_DIAGNOSTIC = {"error": "Damage", "data_loss": "Missing", "info": "Note"}


def show(result: RunResult) -> None:
    """Show the findings, largest gain first; nothing while no rule has spoken."""
    if result.findings:
        _changes(result)
    if result.not_checked:
        with st.expander(words.not_checked(len(result.not_checked)), icon=":material/rule:"):
            for rule in result.not_checked:
                cards.small(f"{rule.rule}: not checked, because {rule.because.replace('`', '')}")


@st.fragment
def _changes(result: RunResult) -> None:
    numbered = list(enumerate(result.findings, start=1))
    found = [(n, f) for n, f in numbered if f.claims != "caution" or f.severity != "info"]
    known = [(n, f) for n, f in numbered if f.claims == "caution" and f.severity == "info"]
    if found:
        cards.title("What to change")
    together = st.container()  # above the changes, where a tick is seen to count
    ticked: list[Finding] = []
    for number, finding in found[:SHOWN_FIRST]:
        ticked += _finding(number, finding, result)
    for label, folded in ((f"{len(found) - SHOWN_FIRST} more", found[SHOWN_FIRST:]), (words.cautions(len(known)), known)):
        if folded:
            with st.expander(label):
                for number, finding in folded:
                    ticked += _finding(number, finding, result)
    if result.lead is not None and any(f.edits for f in result.findings):
        with together:
            _together(result, result.lead, ticked)


def _together(result: RunResult, rank: RankResult, ticked: list[Finding]) -> None:
    """Say what the ticked changes bring together: step, MFU, and what of each day of training they save."""
    if not ticked:
        cards.small("Tick changes to see what they bring together: gains do not add up, so one replay makes them all.")
        return
    rules = tuple(sorted(f.rule for f in ticked))
    found = _predicted(rank.recording_id, rank.device, rank.best.ms, rules, result, ticked)
    with st.container(border=True, horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        if found is None:
            cards.text("What these bring together cannot be replayed.")
            return
        said = st.container(gap=None, width="stretch")
        price = st.number_input(
            "Price of a GPU-hour",
            value=None,
            min_value=0.0,
            key=PRICE,
            bind="query-params",
            placeholder="none given",
            width=170,
        )
        with said:
            cards.title(words.outlook(found))
            cards.small(words.outlook_saves(found, price))


@st.cache_data(max_entries=128, show_spinner="Replaying the step with these changes …")
def _predicted(
    recording_id: str, device: int, step_ms: float | None, rules: tuple[str, ...], _result: RunResult, _ticked: list[Finding]
) -> Outlook | None:
    return outlook(frame.library(), _result.lead, len(_result.ranks), _ticked) if _result.lead is not None else None


def _tick(finding: Finding, key: str) -> bool:
    """Offer to count a change in; what is ticked stands in the address."""
    asked = _asked()

    def remember() -> None:
        kept = [rule for rule in _asked() if rule != finding.rule] + ([finding.rule] if st.session_state[key] else [])
        if kept:
            st.query_params[FIXES] = ",".join(kept)
        else:
            st.query_params.pop(FIXES, None)

    return st.checkbox("Count this change in", value=finding.rule in asked, key=key, on_change=remember)


def _asked() -> list[str]:
    return [rule for rule in st.query_params.get(FIXES, "").split(",") if rule]


def _finding(number: int, finding: Finding, result: RunResult) -> list[Finding]:
    """Show one finding; return it in a list where it is ticked."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            cards.title(f"{number}  {finding.title}")
            with st.container(horizontal=True, width="content", vertical_alignment="center"):
                st.badge(finding.severity, icon=_ICON[finding.severity], color=_COLOUR[finding.severity])
                cards.small(gain(finding))
        st.html(f"<p>{fmt.plain(finding.fix, None)}</p>")
        ticked = False
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            if finding.edits:
                ticked = _tick(finding, f"combine-{result.manifest.id}-{number}-{finding.rule}")
            if finding.changes:
                with st.popover("Code", icon=":material/code:", key=f"code-{number}"):
                    for change in finding.changes:
                        cards.small(f"{change.framework}, before")
                        st.code(change.before, language="python")
                        cards.small("after")
                        st.code(change.after, language="python")
            if finding.evidence:
                _evidence(number, finding, result)
        for note in (finding.prediction_note, finding.risk):
            if note:
                cards.small(note)
    return [finding] if ticked else []


def _evidence(number: int, finding: Finding, result: RunResult) -> None:
    rows = pd.DataFrame(list(finding.evidence))
    with st.popover("Evidence", icon=":material/fact_check:", key=f"evidence-{number}"):
        st.dataframe(
            rows,
            hide_index=True,
            column_order=[c for c in rows if c not in ("start_ns", "end_ns")],
            alt="What proves the finding.",
        )
        panel.csv_button(rows, f"evidence-{finding.rule}", f"evidence-{number}")
    first = next((row for row in finding.evidence if row.get("start_ns") is not None and row.get("end_ns") is not None), None)
    if first is not None and result.lead is not None:
        whole = views.extent(result.lead.recording_id)
        view = Span(int(first["start_ns"]), int(first["end_ns"])).zoomed(AROUND, whole)
        low, high = view.relative_ms(whole.start_ns)
        frame.link(
            "timeline",
            "Show on the timeline",
            run=result.manifest.id,
            icon=":material/view_timeline:",
            t0=f"{low:.6f}",
            t1=f"{high:.6f}",
        )


def gain(finding: Finding) -> str:
    """Return what a finding brings: → ≈ 47 ms (6.6 ×), high confidence."""
    if finding.claims == "gain" and finding.predicted_step_ms is not None:
        speedup = f" ({fmt.factor(finding.predicted_speedup)})" if finding.predicted_speedup else ""
        return f"→ ≈ {fmt.duration_ms(finding.predicted_step_ms)}{speedup}, {finding.confidence} confidence"
    if finding.claims == "ceiling" and finding.ceiling_ms_per_step is not None:
        return f"at most {fmt.duration_ms(finding.ceiling_ms_per_step)} a step, {finding.confidence} confidence"
    return f"{report_text.caution(finding)}, {finding.confidence} confidence"


def limits(result: RunResult) -> None:
    """Say what limits the numbers: import trouble, dropped events, readings that are not to be trusted fully."""
    if not result.diagnostics:
        return
    worst = any(d.severity != "info" for d in result.diagnostics)
    count = len(result.diagnostics)
    label = f"{count} thing{'s' if count > 1 else ''} to know about this recording"
    with st.expander(label, icon=":material/warning:" if worst else ":material/info:", expanded=worst):
        for diagnostic in result.diagnostics:
            cards.small(f"{_DIAGNOSTIC.get(diagnostic.severity, 'Note')}: {diagnostic.sentence}")

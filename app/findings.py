"""Findings on the page: what to change, what it brings, what proves it; and what limits the numbers."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analysis.findings import Finding
from analysis.results import RunResult
from app import cards
from app import format as fmt

SHOWN_FIRST = 3  # three changes are what somebody does today; the rest is folded
_ICON = {"critical": ":material/error:", "warning": ":material/warning:", "info": ":material/info:"}
_COLOUR = {"critical": "red", "warning": "orange", "info": "blue"}
_DIAGNOSTIC = {"error": "Damage", "data_loss": "Missing", "info": "Note"}


def show(result: RunResult) -> None:
    """Show the findings, largest gain first; nothing while no rule has spoken."""
    found: list[Finding] = list(getattr(result, "findings", ()))
    not_checked = list(getattr(result, "not_checked", ()))
    if found:
        cards.title("What to change")
        for number, finding in enumerate(found[:SHOWN_FIRST], start=1):
            _finding(number, finding)
        if len(found) > SHOWN_FIRST:
            with st.expander(f"{len(found) - SHOWN_FIRST} more"):
                for number, finding in enumerate(found[SHOWN_FIRST:], start=SHOWN_FIRST + 1):
                    _finding(number, finding)
    if not_checked:
        with st.expander(f"{len(not_checked)} rules not checked", icon=":material/rule:"):
            for rule in not_checked:
                cards.small(f"{rule.rule}: not checked, because {rule.because}")


def _finding(number: int, finding: Finding) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            cards.title(f"{number}  {finding.title}")
            with st.container(horizontal=True, width="content", vertical_alignment="center"):
                st.badge(finding.severity, icon=_ICON[finding.severity], color=_COLOUR[finding.severity])  # type: ignore[arg-type]
                cards.small(gain(finding))
        st.html(f"<p>{fmt.plain(finding.fix, None)}</p>")
        with st.container(horizontal=True, gap="small"):
            if finding.changes:
                with st.popover("Code", icon=":material/code:", key=f"code-{number}"):
                    for change in finding.changes:
                        cards.small(f"{change.framework}, before")
                        st.code(change.before, language="python")
                        cards.small("after")
                        st.code(change.after, language="python")
            if finding.evidence:
                with st.popover("Evidence", icon=":material/fact_check:", key=f"evidence-{number}"):
                    st.dataframe(pd.DataFrame(list(finding.evidence)), hide_index=True, alt="What proves the finding.")
            for note in (finding.prediction_note, finding.risk):
                if note:
                    cards.small(note)


def gain(finding: Finding) -> str:
    """Return what a finding brings: → ≈ 47 ms (6.6 ×), high confidence."""
    if finding.predicted_step_ms is not None:
        speedup = f" ({fmt.factor(finding.predicted_speedup)})" if finding.predicted_speedup else ""
        return f"→ ≈ {fmt.duration_ms(finding.predicted_step_ms)}{speedup}, {finding.confidence} confidence"
    if finding.ceiling_ms_per_step is not None:
        return f"at most {fmt.duration_ms(finding.ceiling_ms_per_step)} a step, {finding.confidence} confidence"
    return f"{finding.confidence} confidence"


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

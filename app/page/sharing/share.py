"""Ways to share a screen: its address, and the report as a file."""

from __future__ import annotations

import json

import streamlit as st

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.app.format import clean, markdown
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.sharing import copy_link, slide
from sawtooth.app.reports import html as html_report
from sawtooth.app.reports import text as report_text
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.words import run as words
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.recordings import recorded_ns


def bar(result: RunResult) -> None:
    """Show the run's name, what was recorded, and the buttons that share the page."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", key="handed_on"):
        with st.container(gap=None, width="stretch"):
            cards.small(f"{clean(result.manifest.name)} · {words.subtitle(result)}")
        with st.container(horizontal=True, width="content", gap="small"):
            _compare_with(result)
            copy_link.button(result.manifest.id)
            with st.popover("Report", icon=":material/download:", width="content"):
                downloads(result)


MAX_COMPARED_RUNS = 12  # Runs in the list. The newest ones, which usually follow a change; the Compare screen offers all runs.


def _compare_with(result: RunResult) -> None:
    """Offer the other runs for a comparison; shows nothing if there is no other run."""
    other_runs = [manifest for manifest in frame.data_folder().manifests() if manifest.id != result.manifest.id]
    if not other_runs:
        return
    names = distinct_names(frame.data_folder().manifests(), 50)
    with st.popover("Compare with …", icon=":material/compare_arrows:", width="content"):
        for other in other_runs[:MAX_COMPARED_RUNS]:
            before, after = _in_order(result.manifest, other)
            frame.link("compare", markdown(names[other.id], None), a=before.id, b=after.id)


def _in_order(run_a: Manifest, run_b: Manifest) -> tuple[Manifest, Manifest]:
    """Return both runs in the order of their recording, or of their import if a recording time is unknown."""
    recorded = [recorded_ns(frame.data_folder(), run) for run in (run_a, run_b)]
    first, second = recorded if None not in recorded else (run_a.created_ns, run_b.created_ns)
    return (run_a, run_b) if (first or 0) <= (second or 0) else (run_b, run_a)


def downloads(result: RunResult) -> None:
    """Offer the report as HTML, Markdown and JSON, and the answer as a slide."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in clean(result.manifest.name, 60)) or "run"
    formats = (
        ("One HTML file", "html", "text/html", lambda: html_report.run_html(result, current_result.staircase(result))),
        ("Markdown", "md", "text/markdown", lambda: report_text.markdown(result)),
        ("JSON", "json", "application/json", lambda: json.dumps(report_json(result), indent=2)),
    )
    panel.downloads(name, formats, "report")
    if (drawn := slide.of_run(result)) is not None:
        slide.button(drawn, name)

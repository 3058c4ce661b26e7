"""What leaves a screen with somebody: its address, and the report as a file."""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode

import streamlit as st

from analysis.report import report_json
from analysis.run_result import RunResult
from app import cards, html_report, panel, report_text, words
from app.findings import FIXES, PRICE
from app.format import clean


def bar(result: RunResult) -> None:
    """Show the run's name, what was recorded, and the ways to hand it on."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        with st.container(gap=None, width="stretch"):
            cards.small(clean(result.manifest.name))
            cards.small(words.subtitle(result))
        with st.container(horizontal=True, width="content", gap="small"):
            with st.popover("Copy link", icon=":material/link:", width="content", key="copy-link", on_change="rerun"):
                cards.small("This address means the same run on every server that has its recordings.")
                st.code(address(result), language=None, wrap_lines=True)
            with st.popover("Report", icon=":material/download:", width="content"):
                downloads(result)


def address(result: RunResult) -> str:
    """Return the address of the page shown, with the run and what was chosen on it."""
    state = {key: value for key, value in st.query_params.items() if key in (FIXES, PRICE)} | {"run": result.manifest.id}
    return f"{(st.context.url or '/').split('?')[0]}?{urlencode(sorted(state.items()), safe=',', quote_via=quote)}"


def downloads(result: RunResult) -> None:
    """Offer the report as one HTML file, as Markdown and as JSON."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in clean(result.manifest.name, 60)) or "run"
    formats = (
        ("One HTML file", "html", "text/html", lambda: html_report.run_html(result)),
        ("Markdown", "md", "text/markdown", lambda: report_text.markdown(result)),
        ("JSON", "json", "application/json", lambda: json.dumps(report_json(result), indent=2)),
    )
    panel.downloads(name, formats, "report")

"""What leaves a screen with somebody: its address, and the report as a file."""

from __future__ import annotations

import json

import streamlit as st

from analysis.report import report_json
from analysis.results import RunResult
from app import cards, report_text, words
from app.format import clean


def bar(result: RunResult) -> None:
    """Show the run's name, what was recorded, and the ways to hand it on."""
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        with st.container(gap=None, width="stretch"):
            cards.small(clean(result.manifest.name))
            cards.small(words.subtitle(result))
        with st.container(horizontal=True, width="content", gap="small"):
            with st.popover("Copy link", icon=":material/link:", width="content"):
                cards.small("This address means the same run on every server that has its recordings.")
                st.code(address(result), language=None, wrap_lines=True)
            with st.popover("Report", icon=":material/download:", width="content"):
                downloads(result)


def address(result: RunResult) -> str:
    """Return the address of the page shown, with the run in it."""
    return f"{(st.context.url or '/').split('?')[0]}?run={result.manifest.id}"


def downloads(result: RunResult) -> None:
    """Offer the report as JSON and as Markdown."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in clean(result.manifest.name, 60)) or "run"
    st.download_button(
        "JSON",
        data=lambda: json.dumps(report_json(result), indent=2).encode(),
        file_name=f"{name}.json",
        mime="application/json",
        on_click="ignore",
        key="report-json",
    )
    st.download_button(
        "Markdown",
        data=lambda: report_text.markdown(result).encode(),
        file_name=f"{name}.md",
        mime="text/markdown",
        on_click="ignore",
        key="report-md",
    )

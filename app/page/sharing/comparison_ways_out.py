"""Ways to share a comparison: its address, and the comparison as a file or a picture."""

from __future__ import annotations

import json

import streamlit as st

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.report import compare_json
from sawtooth.app.page import panel
from sawtooth.app.page.sharing import copy_link, slide
from sawtooth.app.reports import comparison as compare_text
from sawtooth.app.reports import html as html_report
from sawtooth.app.reports import pictures


def show(comparison: Comparison) -> None:
    """Show buttons that copy the address and save the comparison."""
    copy_link.button()
    with st.popover("Report", icon=":material/download:", width="content"):
        _downloads(comparison)


def _downloads(comparison: Comparison) -> None:
    formats = (
        ("One HTML file", "html", "text/html", lambda: html_report.comparison_html(comparison)),
        ("Picture (SVG)", "svg", "image/svg+xml", lambda: pictures.slide_of(comparison)),
        ("Markdown", "md", "text/markdown", lambda: compare_text.markdown(comparison)),
        ("JSON", "json", "application/json", lambda: json.dumps(compare_json(comparison), indent=1, ensure_ascii=False)),
    )
    panel.downloads("comparison", formats, "compare")
    if (drawn := slide.of_comparison(comparison)) is not None:
        slide.button(drawn, "comparison")

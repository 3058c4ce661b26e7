"""The button that copies the page's address with the run, the view and the viewer's choices."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_COMPONENTS = Path(__file__).resolve().parents[2] / "components"


def button(run: str | None = None) -> None:
    """Show the button; ``run`` is added if the address does not name a run."""
    component = st.components.v2.component(
        "sawtooth.copy_link",
        html=(_COMPONENTS / "copy_link.html").read_text(encoding="utf-8"),
        css=(_COMPONENTS / "copy_link.css").read_text(encoding="utf-8"),
        js=(_COMPONENTS / "copy_link.js").read_text(encoding="utf-8"),
    )
    component(key="copy-link", data={"run": run or ""}, width="content")

"""Keyboard shortcuts of the app, and links between the views of a place.

/ searches, j and k move through a list, ? shows the shortcuts.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).resolve().parents[1] / "components"


def listen(place: str) -> None:
    """Activate the shortcuts on this page, and mark the navigation's link to it as the current one."""
    component = st.components.v2.component(
        "sawtooth.keys",
        html=(_HERE / "keys.html").read_text(encoding="utf-8"),
        css=(_HERE / "keys.css").read_text(encoding="utf-8"),
        js=(_HERE / "keys.js").read_text(encoding="utf-8"),
    )
    component(key="keys", height="content", data={"place": place})

"""The live GPU chart.

Each second, the component gets new data. It keeps its DOM nodes, so that nothing flickers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

_COMPONENTS = Path(__file__).resolve().parents[2] / "components"


def show(picture: dict[str, Any], key: str) -> int | None:
    """Draw ``picture`` (see ``sawtooth.app.charts.live.picture``); return the GPU that was just selected."""
    component = st.components.v2.component(
        "sawtooth.live_chart",
        html=(_COMPONENTS / "live_chart.html").read_text(encoding="utf-8"),
        css=(_COMPONENTS / "live_chart.css").read_text(encoding="utf-8"),
        js=(_COMPONENTS / "live_chart.js").read_text(encoding="utf-8"),
    )
    result: Any = component(key=key, data=picture, on_picked_change=lambda: None)
    picked = getattr(result, "picked", None)
    return int(picked) if picked is not None else None

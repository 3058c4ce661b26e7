"""The drop zone: the browser uploads files directly to ``PUT /api/v1/uploads``, with progress.

Files that are dropped together become one ingest job. Traces of one training job become one run, and telemetry is attached to
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).resolve().parents[1] / "components"


def drop_zone(*, note: str, compact: bool = False, key: str = "drop_zone") -> str | None:
    """Show the drop zone; return the id of the job that it has just started, or None."""
    component = st.components.v2.component(
        "sawtooth.drop_zone",
        html=(_HERE / "drop_zone.html").read_text(encoding="utf-8"),
        css=(_HERE / "drop_zone.css").read_text(encoding="utf-8"),
        js=(_HERE / "drop_zone.js").read_text(encoding="utf-8"),
    )
    result: Any = component(key=key, data={"note": note, "compact": compact}, on_started_change=lambda: None)
    started = getattr(result, "started", None)
    return str(started) if started else None

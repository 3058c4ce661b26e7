"""Open a trace in Perfetto: the one thing on any screen that leaves this machine, on click, and labelled so."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from sawtooth.app.format import clean
from sawtooth.app.page import frame
from sawtooth.app.settings import settings
from sawtooth.ingest.schema import Manifest

_HERE = Path(__file__).resolve().parents[2] / "components"


def button(manifest: Manifest, recording_id: str) -> None:
    """Offer the trace to ui.perfetto.dev; nothing where external links are off or the source was not kept."""
    if not settings().external_links or not frame.data_folder().source_file(recording_id).exists():
        return
    component = st.components.v2.component(
        "sawtooth.perfetto",
        html=(_HERE / "perfetto.html").read_text(encoding="utf-8"),
        css=(_HERE / "perfetto.css").read_text(encoding="utf-8"),
        js=(_HERE / "perfetto.js").read_text(encoding="utf-8"),
    )
    name = next((r.source_name for r in manifest.recordings if r.id == recording_id), "trace.json")
    component(
        key=f"perfetto-{recording_id}",
        data={
            "url": f"/api/v1/runs/{manifest.id}/trace?recording={recording_id}",
            "title": clean(manifest.name, 60),
            "file": clean(name.removesuffix(".gz"), 80) + ".gz",
        },
    )

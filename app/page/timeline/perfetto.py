"""The button that opens a trace in Perfetto.

It is the only element of the app that sends data away from this machine, and it does so only when somebody clicks it.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from sawtooth.app.format import clean
from sawtooth.app.page import frame
from sawtooth.app.reports.perfetto import mergeable, viewable
from sawtooth.app.settings import settings
from sawtooth.ingest.manifest import Manifest

_HERE = Path(__file__).resolve().parents[2] / "components"


def button(manifest: Manifest, recording_id: str) -> None:
    """Offer to open one trace, and all traces of a job merged, in ui.perfetto.dev.

    Shows nothing if external links are turned off, or if Perfetto cannot read the source.
    """
    folder = frame.data_folder()
    ref = next((r for r in manifest.recordings if r.id == recording_id), None)
    if not settings().external_links or ref is None or not viewable(folder, ref):
        return
    address, name = f"/api/v1/runs/{manifest.id}/trace", clean(manifest.name, 60)
    _offer("Open in Perfetto", f"{address}?recording={recording_id}", name, clean(ref.source_name.removesuffix(".gz"), 80))
    if mergeable(folder, manifest):
        _offer("Open all ranks in Perfetto", f"{address}?merged=1", name, f"{manifest.id}.json")


def _offer(label: str, url: str, title: str, file: str) -> None:
    component = st.components.v2.component(
        "sawtooth.perfetto",
        html=(_HERE / "perfetto.html").read_text(encoding="utf-8"),
        css=(_HERE / "perfetto.css").read_text(encoding="utf-8"),
        js=(_HERE / "perfetto.js").read_text(encoding="utf-8"),
    )
    component(key=f"perfetto-{url}", width="content", data={"label": label, "url": url, "title": title, "file": f"{file}.gz"})

"""Attach telemetry to an existing run: offer what covers the trace's time, or let the viewer choose."""

from __future__ import annotations

import streamlit as st

from sawtooth.app.format import clean
from sawtooth.app.page import cards, frame
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.grouping import overlapping_telemetry
from sawtooth.ingest.runs.manifests import attach


def offer_telemetry(manifest: Manifest) -> None:
    """Offer telemetry that covers the time of the run's trace.

    Shows nothing if the run has telemetry already, or if none fits.
    """
    if manifest.telemetry or not manifest.traces:
        return
    fitting = overlapping_telemetry(frame.data_folder(), manifest)
    if fitting:
        which = clean(fitting[0].name, 60) if len(fitting) == 1 else f"{len(fitting)} recordings"
        cards.small(f"Telemetry was sampled at the time of this trace: {which}. Attach it to see the whole run.")
        _control(manifest, fitting, selectable=len(fitting) > 1)


def choose(manifest: Manifest) -> None:
    """Let the viewer attach any telemetry of this server.

    Telemetry from the time of the trace comes first.
    """
    fitting = overlapping_telemetry(frame.data_folder(), manifest)
    other_runs = [m for m in frame.data_folder().manifests() if not m.traces and m not in fitting]
    if fitting or other_runs:
        _control(manifest, [*fitting, *other_runs], selectable=True, covering=len(fitting))
    else:
        cards.small("This server has no telemetry yet. Drop its file on any screen.")


def _control(manifest: Manifest, choices: list[Manifest], *, selectable: bool, covering: int | None = None) -> None:
    """Show the button *Attach*; the first ``covering`` of ``choices`` cover the trace's time."""
    key = f"attach-{manifest.id}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = choices[0]
        if selectable:
            notes = {m.id: "" if covering is None or i < covering else " (another time)" for i, m in enumerate(choices)}
            chosen = st.selectbox(
                "Telemetry", choices, format_func=lambda m: f"{clean(m.name, 60)}{notes[m.id]}", key=f"{key}-which"
            )
        if st.button("Attach", key=key, icon=":material/add_link:"):
            attach(frame.data_folder(), manifest.id, chosen.telemetry)
            st.rerun()

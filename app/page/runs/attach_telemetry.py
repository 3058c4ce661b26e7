"""Attaching telemetry to a run later: offered if its time matches the trace, else on request."""

from __future__ import annotations

import streamlit as st

from sawtooth.app.format import clean
from sawtooth.app.page import cards, frame
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.grouping import overlapping_telemetry
from sawtooth.ingest.runs.manifests import attach


def offer(manifest: Manifest) -> None:
    """Offer telemetry that covers the time of the run's trace.

    Shows nothing if the run has telemetry already, or if none fits.
    """
    if manifest.telemetry or not manifest.traces:
        return
    fitting = overlapping_telemetry(frame.data_folder(), manifest)
    if fitting:
        which = clean(fitting[0].name, 60) if len(fitting) == 1 else f"{len(fitting)} recordings"
        cards.small(f"Telemetry was sampled at the time of this trace: {which}. Attach it to see the whole run.")
        _control(manifest, fitting, asks=len(fitting) > 1)


def choose(manifest: Manifest) -> None:
    """Let the viewer choose any telemetry of this server; recordings that cover the trace come first."""
    fitting = overlapping_telemetry(frame.data_folder(), manifest)
    others = [m for m in frame.data_folder().manifests() if not m.traces and m not in fitting]
    if fitting or others:
        _control(manifest, [*fitting, *others], asks=True, covering=len(fitting))
    else:
        cards.small("No telemetry is here yet: drop its file on any screen.")


def _control(manifest: Manifest, choices: list[Manifest], *, asks: bool, covering: int | None = None) -> None:
    key = f"attach-{manifest.id}"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = choices[0]
        if asks:
            notes = {m.id: "" if covering is None or i < covering else " (another time)" for i, m in enumerate(choices)}
            chosen = st.selectbox(
                "Telemetry", choices, format_func=lambda m: f"{clean(m.name, 60)}{notes[m.id]}", key=f"{key}-which"
            )
        if st.button("Attach", key=key, icon=":material/add_link:"):
            attach(frame.data_folder(), manifest.id, chosen.telemetry)
            st.rerun()

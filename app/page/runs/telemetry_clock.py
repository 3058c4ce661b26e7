"""Show how a run's telemetry is aligned with its trace, and let the viewer correct the alignment."""

from __future__ import annotations

import msgspec
import streamlit as st

from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.telemetry.alignment import Alignment, align_recordings, zones_that_fit
from sawtooth.analysis.telemetry.clock import ClockOrigin, SampleClock
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, current_result, frame
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.runs.clocks import ClockCorrection, apply

ZONES_NAMED = 4  # Time zones. If more than this number fit, the text names none, because the list would not help.


def show(result: RunResult, ref: RecordingRef, telemetry: TelemetrySeries) -> None:
    """Show the telemetry's clock and a form that corrects it; shows nothing without a trace."""
    lead, clock, origin = result.lead, result.telemetry.clocks[ref.id], result.telemetry.origins[ref.id]
    if lead is None:
        return
    with st.expander("Clocks of the telemetry and the trace", expanded=not clock.known, icon=":material/schedule:"):
        cards.text(_known(clock))
        _from_the_signals(result, lead, ref, telemetry, clock)
        if origin.clock == "local" and ref.offset_ns is None:
            _zones(lead, origin)
        _form(result, ref, origin, clock)


def _known(clock: SampleClock) -> str:
    if not clock.known:
        return f"The telemetry is not aligned with the trace: {clock.reason}."
    if clock.name == "placed":
        return f"{seconds(clock.offset_ns)} are added to the telemetry's times: {clock.reason}."
    return f"{clock.reason[0].upper()}{clock.reason[1:]}."


def seconds(ns: int) -> str:
    """Return a time shift in seconds as text, such as "+2.310 s"."""
    return f"{'+' if ns >= 0 else '−'}{abs(ns) / 1e9:,.3f}\u00a0s"


@st.cache_data(max_entries=64, show_spinner="Comparing the trace's activity with the telemetry …")
def _aligned(root: str, trace: tuple[str, int], sampled: tuple[str, int], clock: SampleClock) -> Alignment:
    return align_recordings(frame.library(), trace, sampled, clock)


def _from_the_signals(
    result: RunResult, lead: RankResult, ref: RecordingRef, telemetry: TelemetrySeries, clock: SampleClock
) -> None:
    key = f"align-{ref.id}-{telemetry.device}"
    if clock.known and not st.session_state.get(key):
        if st.button(
            "Compare the signals",
            key=f"{key}-button",
            help="Searches for the time shift with which the trace's activity fits the samples best.",
        ):
            st.session_state[key] = True
            st.rerun()
        return
    alignment = _aligned(str(frame.data_folder().root), (lead.recording_id, lead.device), (ref.id, telemetry.device), clock)
    if alignment.shift_ns is None or alignment.within_ns is None:
        cards.small(f"The signals do not show how far the clocks are apart: {alignment.why_none}.")
        return
    sure = f"± {fmt.duration_ns(alignment.within_ns)}, correlation {alignment.correlation:.2f} over {alignment.windows} windows"
    if abs(alignment.shift_ns) <= alignment.within_ns and clock.known:
        cards.small(f"The signals agree: the trace's activity fits the samples best without a shift ({sure}).")
        return
    cards.text(f"The trace's activity fits the samples best with {seconds(alignment.shift_ns)} added to their times ({sure}).")
    if st.button("Use this shift", key=f"{key}-use", type="primary"):
        _keep(result, msgspec.structs.replace(ref, offset_ns=clock.offset_ns + alignment.shift_ns))


def _zones(lead: RankResult, origin: ClockOrigin) -> None:
    if lead.trace.clock != "unix" or lead.trace.span_ns is None:
        return
    fits = zones_that_fit(lead.trace.span_ns, (origin.first_ns, origin.last_ns))
    if not 0 < len(fits) <= ZONES_NAMED:
        return
    names = " or ".join(f"UTC{'−' if m < 0 else '+'}{abs(m) // 60}{f':{abs(m) % 60:02d}' if m % 60 else ''}" for m in fits)
    cards.small(f"The telemetry covers the time of the trace if its time zone is {names}.")


def _form(result: RunResult, ref: RecordingRef, origin: ClockOrigin, clock: SampleClock) -> None:
    zone = start = interval = shift = None
    with st.form(f"clock-{ref.id}", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        if origin.clock == "local":
            zone = st.text_input("Time zone", placeholder="Europe/Berlin or +01:00", width=230, key=f"zone-{ref.id}")
        if origin.clock == "unknown":
            start = st.text_input(
                "Time of the first sample", placeholder="2026-11-21 09:30:00+01:00", width=260, key=f"start-{ref.id}"
            )
        if origin.assumed_interval_ns:
            default_s = (ref.interval_ns or origin.assumed_interval_ns) / 1e9
            interval = st.number_input(
                "Seconds between samples", 0.001, value=default_s, format="%.3f", width=200, key=f"interval-{ref.id}"
            )
        if clock.known:
            shift = st.number_input(
                "Seconds to add", value=clock.offset_ns / 1e9, step=0.1, format="%.3f", width=200, key=f"shift-{ref.id}",
                help="Moves the telemetry later; use it when its host's clock is behind the trace's.",
            )  # fmt: skip
        saved = st.form_submit_button("Save")
    if not saved:
        return
    try:
        correction = ClockCorrection(zone or None, start or None, interval, None if zone or start else shift)
        _keep(result, apply(ref, origin.clock, origin.first_ns, correction))
    except UsageError as error:
        cards.problem("Not saved", str(error))


def _keep(result: RunResult, ref: RecordingRef) -> None:
    current_result.keep_recording(result.manifest, ref)
    st.rerun()

"""The run's telemetry as every screen reads it, and the strip of its last minute on the Verdict."""

from __future__ import annotations

import streamlit as st

from analysis import series
from analysis.run_result import RunResult
from analysis.sample_clock import AS_RECORDED, SampleClock
from analysis.series import Telemetry
from analysis.telemetry import DeviceTelemetry
from app import format as fmt
from app import frame, panel, words
from app.charts import telemetry as charts

LAST_SECONDS = 60.0
KEPT = 24  # recordings of telemetry kept in memory: an hour at 10 Hz is about 10 MB


@st.cache_data(max_entries=KEPT, show_spinner=False)
def devices(root: str, recording_id: str) -> list[tuple[int, str | None]]:
    """Return the sampled devices of a telemetry recording."""
    with frame.library().open(recording_id, derived=False) as recording:
        return series.devices(recording)


@st.cache_resource(max_entries=KEPT, show_spinner="Reading telemetry …")
def _read(root: str, recording_id: str, device: int, clock: SampleClock) -> Telemetry:
    with frame.library().open(recording_id, derived=False) as recording:
        return series.telemetry(recording, device, clock)


def read(result: RunResult, recording_id: str, device: int) -> Telemetry:
    """Return one device's telemetry on the run's clock, whole and shared: do not change it."""
    clock = result.telemetry.clocks.get(recording_id, AS_RECORDED)
    return _read(str(frame.data_folder().root), recording_id, device, clock)


def of(result: RunResult, device: int | None = None) -> Telemetry | None:
    """Return the telemetry that belongs to a traced device (the first one by default), None where the run has none.

    A telemetry with one device speaks for the device that was traced, whatever its number in the process was.
    """
    root = str(frame.data_folder().root)
    for ref in result.manifest.telemetry:
        known = [d for d, _ in devices(root, ref.id)]
        if known:
            return read(result, ref.id, device if device in known else known[0])
    return None


def summary_of(result: RunResult, told: Telemetry) -> DeviceTelemetry | None:
    """Return what analysis found in a device's telemetry."""
    mine = [s for s in result.telemetry.devices if s.device == told.device]
    return next((s for s in mine if s.first_ns == int(told.samples["time_ns"].min())), mine[0] if mine else None)


def last_minute(result: RunResult) -> None:
    """Show utilization over the last minute, the steps marked where the trace lies in it; nothing without telemetry."""
    told = of(result, result.lead.device if result.lead else None)
    if told is None or not told.has("util_pct"):
        return
    whole, told = told, series.last(told, LAST_SECONDS)
    facts = series.facts(told, "util_pct")
    mean, low, high = (fmt.in_unit(facts[k], "percent") for k in ("mean", "p5", "p95"))
    length = fmt.duration_ns(told.span.ns)
    origin = told.span.start_ns
    steps = charts.step_spans(result.lead.steps, origin) if result.lead is not None and _same_time(result, told) else []
    summary = summary_of(result, whole)
    found = summary.sawtooth if summary is not None else None
    title = f"Over {length} utilization averages {mean}, between {low} and {high}"
    if found is not None and found.period_s is not None:
        title = words.sawtooth(found, summary.signal if summary else None) or title
    chart = charts.lanes(
        told,
        title,
        f"{title}. Drawn as a line over time.",
        origin_ns=origin,
        dark=frame.dark(),
        steps=steps,
        wanted=("util_pct",),
        height=170,
        sawtooth=found,
    )
    panel.show(chart, "last-minute")
    frame.link("telemetry", "All telemetry", icon=":material/monitoring:")


def _same_time(result: RunResult, told: Telemetry) -> bool:
    lead = result.lead
    if lead is None or not len(lead.steps):
        return False
    steps = lead.steps
    span = series.Span(int(steps["start_ns"].min()), int(steps["end_ns"].max()))
    return series.overlap(told, span, str(lead.info["clock"]))

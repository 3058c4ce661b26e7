"""The run's telemetry, cached for all screens, and the chart of its last minute on the Verdict."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.app import format as fmt
from sawtooth.app.charts import sawtooth
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.words import telemetry as words
from sawtooth.ingest.quantities.registry import BY_COLUMN

LAST_SECONDS = 60.0
CACHED_RECORDINGS = 24  # Telemetry recordings in memory. An hour at 10 Hz is about 10 MB.


@st.cache_data(max_entries=CACHED_RECORDINGS, show_spinner=False)
def devices(root: str, recording_id: str) -> list[tuple[int, str | None]]:
    """Return the sampled devices of a telemetry recording."""
    with frame.library().open(recording_id, derived=False) as recording:
        return series.devices(recording)


@st.cache_resource(max_entries=CACHED_RECORDINGS, show_spinner="Reading telemetry …")
def _read(root: str, recording_id: str, device: int, clock: SampleClock) -> TelemetrySeries:
    with frame.library().open(recording_id, derived=False) as recording:
        return series.telemetry(recording, device, clock)


def read(result: RunResult, recording_id: str, device: int) -> TelemetrySeries:
    """Return all telemetry of one device on the run's clock; viewers share it, so do not change it."""
    clock = result.telemetry.clocks.get(recording_id, AS_RECORDED)
    return _read(str(frame.data_folder().root), recording_id, device, clock)


def telemetry_of(result: RunResult, device: int | None = None) -> TelemetrySeries | None:
    """Return the telemetry of a traced device; None if the run has no telemetry.

    If the analysis matched no telemetry with the traced device, return that of the sampled device with the same ordinal, else
    of the first device. Telemetry of the trace's own host is preferred. Without a trace, return the GPU of the first finding.
    """
    own = result.lead.telemetry if result.lead is not None and result.lead.device == device else None
    if own is not None:
        return read(result, own.recording_id, own.device)
    root = str(frame.data_folder().root)
    if device is None and (named := words.first_gpu(result)) is not None:
        return read(result, *named)
    host = result.lead.host if result.lead is not None else None
    hosts = {sampled.recording_id: sampled.host for sampled in result.telemetry.devices}
    for ref in sorted(result.manifest.telemetry, key=lambda ref: host is None or hosts.get(ref.id) != host):
        known = [d for d, _ in devices(root, ref.id)]
        if known:
            return read(result, ref.id, device if device in known else known[0])
    return None


def summary_of(result: RunResult, telemetry: TelemetrySeries) -> DeviceTelemetry | None:
    """Return the analysis of a device's telemetry."""
    key = telemetry.recording_id, telemetry.device
    return next((s for s in result.telemetry.devices if (s.recording_id, s.device) == key), None)


def column_of(telemetry: TelemetrySeries | None, summary: DeviceTelemetry | None) -> str | None:
    """Return the column that shows best how busy the GPU is; None if no such quantity was sampled."""
    columns = (summary.signal_column if summary is not None else None, "util_pct")
    return next((c for c in columns if c and telemetry is not None and telemetry.has(c)), None)


def last_minute(result: RunResult) -> None:
    """Show the main telemetry signal over the last minute of the steady part.

    If the signal has a sawtooth, one folded period is shown next to it.
    """
    full_telemetry = telemetry_of(result, result.lead.device if result.lead else None)
    summary = summary_of(result, full_telemetry) if full_telemetry is not None else None
    column = column_of(full_telemetry, summary)
    if full_telemetry is None or column is None:
        return
    telemetry = series.last_seconds(steady(full_telemetry, summary), LAST_SECONDS)
    facts = series.facts(telemetry, column)
    if not facts:  # This quantity is missing in all samples of the last minute.
        return
    name = BY_COLUMN[column].label
    steady_mean = (
        summary.means.get(column) if summary is not None and telemetry.span == steady(full_telemetry, summary).span else None
    )
    title = average(name, telemetry.span.ns, facts if steady_mean is None else {**facts, "mean": steady_mean})
    tooth = summary.sawtooth if summary is not None and summary.signal_column == column else None
    if tooth is not None and tooth.period_s is not None:
        title = words.sawtooth(tooth, name) or title
    origin = telemetry.span.start_ns
    steps = sawtooth.step_spans(result.lead.steps, origin) if result.lead is not None and _same_time(result, telemetry) else []
    chart = sawtooth.signal(telemetry, column, title, origin_ns=origin, dark=frame.is_dark(), steps=steps, sawtooth=tooth)
    folded = (
        sawtooth.folded_chart(steady(full_telemetry, summary), column, tooth, dark=frame.is_dark())
        if tooth is not None
        else None
    )
    if folded is None:
        panel.show(chart, "last-minute")
    else:
        over_time, one = panel.two_columns()
        with over_time:
            panel.show(chart, "last-minute")
        with one:
            panel.show(folded, "one-tooth")
    if result.lead is not None and result.troughs is not None and result.troughs.steps is not None:
        for line in words.period_disagreement(result.lead, result.troughs.steps):
            cards.small(line)
    frame.link("telemetry", "All telemetry", icon=":material/monitoring:")


def average(name: str, ns: int, facts: Mapping[str, float]) -> str:
    """Return the mean of a share over ``ns``, and the range of most samples if it contains the mean."""
    mean, low, high = (fmt.in_unit(facts[key], "percent") for key in ("mean", "p5", "p95"))
    inside = facts["p5"] <= facts["mean"] <= facts["p95"] and low != high
    return f"Over {fmt.duration_ns(ns)} {name} averages {mean}{f', mostly between {low} and {high}' if inside else ''}"


def steady(telemetry: TelemetrySeries, summary: DeviceTelemetry | None) -> TelemetrySeries:
    """Return the steady part, over which means are computed; without one, return all telemetry."""
    part = summary.steady if summary is not None else None
    if part is None or part.start_ns is None or part.end_ns is None:
        return telemetry
    return series.cut_to(telemetry, TimelineSpan(part.start_ns, part.end_ns))


def axis_range(part: TelemetrySeries, whole: TelemetrySeries) -> str:
    """Return the range of a part on the chart's axis, such as "0.36 to 2.44 s"."""
    begin_s, end_s = ((ns - whole.span.start_ns) / 1e9 for ns in (part.span.start_ns, part.span.end_ns))
    return f"{fmt.number(begin_s)} to {fmt.number(end_s)}\u00a0s"


def _same_time(result: RunResult, telemetry: TelemetrySeries) -> bool:
    lead = result.lead
    if lead is None or not len(lead.steps):
        return False
    steps = lead.steps
    span = TimelineSpan(int(steps["start_ns"].min()), int(steps["end_ns"].max()))
    return series.overlap(telemetry, span, lead.trace.clock)

"""The Telemetry screen: the whole recording of utilization, power and clocks, and a sawtooth's period."""

from __future__ import annotations

from typing import Any

import streamlit as st

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.app import format as fmt
from sawtooth.app.charts import constant_quantities
from sawtooth.app.charts import sawtooth as drawing
from sawtooth.app.charts import telemetry as charts
from sawtooth.app.charts.base import CONFIG
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.parts import first_change, fleet, telemetry_strip
from sawtooth.app.page.runs import attach_telemetry, telemetry_clock
from sawtooth.app.words import telemetry as words
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.quantities.registry import BY_COLUMN


def main() -> None:
    """Show the page."""
    manifest = frame.current_run()
    if not manifest.telemetry:
        cards.headline("No telemetry is attached to this run.")
        cards.empty_state(
            "Utilization, power and clocks are not known.",
            "A trace covers a few steps under the profiler; telemetry covers the run without it. Sample beside the training job, and drop the file "
            "together with the trace or attach it later. The run's address stays the same.",
            "sawtooth sample --out telemetry.jsonl",
        )
        attach_telemetry.choose(manifest)
        return
    result = current_result.run_result()
    answer = st.container()  # The answer is above the choice of the device, on which it depends.
    chosen = _chosen_device(result)
    if chosen is None and result.telemetry.host is not None:
        cards.headline("Only the host was sampled, no GPU.")
        cards.table(
            ("Quantity", "Mean", "What it is"), words.host_quantities(result.telemetry.host), "The host while it trained"
        )
        return
    if chosen is None:
        cards.headline("The telemetry of this run has no samples.")
        cards.empty_state(
            "Nothing was sampled.",
            "The file describes a device but has no samples.",
            "sawtooth sample --out telemetry.jsonl",
        )
        return
    ref, telemetry = chosen
    summary = telemetry_strip.summary_of(result, telemetry)
    with answer:
        _head(result, telemetry, summary)
        first_change.show(result)
    _lanes(telemetry, manifest.id, summary, _quantities_of_warning(result, telemetry))
    fleet.show(result)
    with _show_sawtooth_period(result, telemetry, summary):
        _activity_metrics(result, telemetry, summary)
    if result.statements:
        cards.title(words.STATEMENTS)
        if summary is not None and summary.signal_column not in (None, "util_pct"):
            cards.small(words.OF_NVML)
        rows = [(statement.statement, words.STATES[statement.state], statement.because) for statement in result.statements]
        cards.table(("What the samples say", "The profile", "Reason"), rows, words.STATEMENTS)
    if ref.kind == "telemetry":
        telemetry_clock.show(result, ref, telemetry)
    if result.lead is None:
        cards.small("No trace with GPU work is attached: what the GPU waits for is not known.")


def _show_sawtooth_period(result: RunResult, telemetry: TelemetrySeries, summary: DeviceTelemetry | None) -> Any:
    """Show the average period, its numbers and the cause of its troughs; return the container below."""
    is_of_lead = summary is not None and result.lead is not None and summary == result.lead.telemetry
    why = words.troughs(result) if is_of_lead else None
    tooth, column = (summary.sawtooth, summary.signal_column) if summary is not None else (None, None)
    steady = telemetry_strip.steady(telemetry, summary)
    folded = drawing.folded_chart(steady, column, tooth, dark=frame.is_dark()) if tooth is not None and column else None
    if tooth is None or folded is None:
        if why:
            cards.text(why)
        return st.container()
    if not why:
        panel.show(folded, "one-tooth")
        cards.small(words.periods_seen(tooth))
        return st.container()
    picture, numbers = panel.two_columns()
    with picture:
        panel.show(folded, "one-tooth")
    with numbers:
        cards.title("Why it falls")
        cards.text(f"{why} {words.periods_seen(tooth)}")
    return numbers


def _activity_metrics(result: RunResult, telemetry: TelemetrySeries, summary: DeviceTelemetry | None) -> None:
    """Show the mean of each activity metric over the steady part, and what the metric counts."""
    lead = result.lead if result.lead is not None and summary == result.lead.telemetry else None
    steady = telemetry_strip.steady(telemetry, summary)
    mean_by_column = {column: _facts(steady, column, summary).get("mean") for column in words.MEANINGS if telemetry.has(column)}
    means = {column: mean for column, mean in mean_by_column.items() if mean is not None}
    metrics = lead.metrics if lead is not None else result.metrics
    rows = words.activities(means, metrics, busy_share_of_best(lead) if lead is not None else None)
    if rows:
        over = f" over the steady {fmt.duration_ns(steady.span.ns)}" if steady is not telemetry else ""
        with st.expander(f"What each of the {len(rows)} activity metrics counts", icon=":material/help:"):
            cards.table(("Activity", f"Mean{over}", "What it counts"), rows, "What each activity metric counts")


def _chosen_device(result: RunResult) -> tuple[RecordingRef, TelemetrySeries] | None:
    root = str(frame.data_folder().root)
    refs = result.manifest.telemetry
    options = [(ref, device, name) for ref in refs for device, name in telemetry_strip.devices(root, ref.id)]
    if not options:
        return None
    labels = {f"{ref.id}-{device}": f"{fmt.clean(ref.source_name, 40)} · device {device}" for ref, device, _ in options}
    named = words.first_gpu(result)
    key = f"{named[0]}-{named[1]}" if named is not None else next(iter(labels))
    if len(options) > 1:
        key = st.selectbox(
            "Device",
            list(labels),
            index=list(labels).index(key),
            format_func=labels.__getitem__,
            key="sampled",
            bind="query-params",
            width=360,
        )
    recording, device = key.rsplit("-", 1)
    return next(ref for ref in refs if ref.id == recording), telemetry_strip.read(result, recording, int(device))


def _quantities_of_warning(result: RunResult, telemetry: TelemetrySeries) -> tuple[str, ...]:
    """Return the quantities that the first finding is about; empty if the finding is not about this GPU."""
    finding = words.first_finding(result)
    if finding is None or words.first_gpu(result) != (telemetry.recording_id, telemetry.device):
        return ()
    return words.QUANTITIES_OF.get(finding.rule, ())


def _head(result: RunResult, telemetry: TelemetrySeries, summary: DeviceTelemetry | None) -> None:
    sentence = words.sawtooth(summary.sawtooth, summary.signal) if summary is not None else None
    is_of_lead = result.lead is not None and summary is not None and summary == result.lead.telemetry
    if summary is not None and is_of_lead and (caused := words.trough_cause(result, summary.sawtooth, summary.signal)):
        cards.headline(*caused)
        cards.small(_line_below(telemetry))
        return
    if summary is not None and summary.sawtooth.period_s is not None and sentence:
        cards.headline(sentence, _line_below(telemetry))  # a note below the chart says where the loop is steady
        return
    column, name = _activity(telemetry)
    # The steady part of the run, as on every other screen: without start, end and profile.
    steady = telemetry_strip.steady(telemetry, summary)
    facts = _facts(steady, column, summary) if column else {}
    if facts:
        mean, low, high = (fmt.in_unit(facts[k], "percent") for k in ("mean", "p5", "p95"))
        range_text = telemetry_strip.axis_range(steady, telemetry)
        over = f" from {range_text}, where the loop is steady" if steady is not telemetry else ""
        trough = series.lowest_stretch(steady, column) if column else None
        least = ""
        if trough is not None:
            when = telemetry_strip.axis_range(series.cut_to(steady, trough[0]), telemetry)
            least = f", and is lowest from {when}, at {fmt.in_unit(trough[1], 'percent')}"
        average = f"{name} averages {mean}{over}{least}"
        spread = "" if low == high or sentence else f" · mostly between {low} and {high}"  # The sentence has a range too.
        under = f"{_line_below(telemetry)}{spread}"
        if _quantities_of_warning(result, telemetry):
            cards.headline(words.first_line(result), f"{average} · {under}")
        else:
            cards.headline(f"{average}.", under)
    else:
        cards.headline(f"{fmt.duration_ns(telemetry.span.ns)} of telemetry, without utilization.", _line_below(telemetry))
    if sentence and not _quantities_of_warning(result, telemetry):
        cards.small(sentence)


def _activity(telemetry: TelemetrySeries) -> tuple[str | None, str]:
    """Return the column that shows how much of the time the GPU works, and its name.

    The column is None if none was sampled.
    """
    column = next((c for c in BUSY if telemetry.has(c)), None)
    return column, "Utilization" if column in ("util_pct", None) else BY_COLUMN[column].label


def _line_below(telemetry: TelemetrySeries) -> str:
    parts = [fmt.clean(telemetry.name, 40)] if telemetry.name else []
    interval = telemetry.interval_s
    rate = f", one every {fmt.duration_ns(interval * 1e9)}" if interval else ""
    parts.append(f"{fmt.count(len(telemetry.samples))} samples over {fmt.duration_ns(telemetry.span.ns)}{rate}")
    if (used := words.energy(series.energy_of(telemetry))) is not None:
        parts.append(used)
    if len(telemetry.gaps):
        parts.append(f"{len(telemetry.gaps)} telemetry gap{'s' if len(telemetry.gaps) > 1 else ''}")
    return " · ".join(parts)


@st.fragment
def _lanes(telemetry: TelemetrySeries, run_id: str, summary: DeviceTelemetry | None, trouble: tuple[str, ...]) -> None:
    key = f"telemetry-view-{run_id}-{telemetry.device}"
    view: tuple[float, float] | None = st.session_state.get(key)
    origin = telemetry.span.start_ns
    steady = telemetry_strip.steady(telemetry, summary)
    stretch = telemetry_strip.axis_range(steady, telemetry) if steady is not telemetry else None
    if view is not None:
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            cards.small(_range(view))
            if st.button("Whole recording", icon=":material/zoom_out_map:", type="tertiary"):
                st.session_state[key] = None
                st.rerun(scope="fragment")
    # Without a range, the chart below shows the whole recording.
    strip = _overview(telemetry, view) if view is not None else None
    shown = series.cut_to(telemetry, series.seconds_span(view, origin)) if view else telemetry
    title = _title(shown, view) if view else ""  # the page's headline is about the whole recording
    column = summary.signal_column if summary is not None else None
    averages = _averages_of(stretch, summary) if view is None else ""
    constants = constant_quantities.constant(telemetry, trouble)
    chart = charts.lanes(
        shown,
        title,
        " ".join(filter(None, (title, averages, f"{_line_below(telemetry)}."))),
        origin_ns=origin,
        dark=frame.is_dark(),
        sawtooth=summary.sawtooth if summary else None,
        steady=steady if view is None and steady is not telemetry else None,
        quantities=constant_quantities.drawn(constants),
        trouble=trouble,
        means=summary.means if view is None and summary is not None else None,
    )
    picked = panel.show(chart, f"telemetry-{view}", select="box", name="telemetry")
    same, width = constant_quantities.in_words(telemetry, constants), charts.window(column, telemetry.interval_s)
    limited = words.THROTTLED.format(", ".join(reasons)) if (reasons := shown.throttles["reason"].unique().tolist()) else ""
    if note := " ".join(filter(None, (averages, same, width, limited))):
        cards.small(note)
    for selection in (strip, picked):
        if selection and selection.box:
            low, high = sorted(selection.box[0]["x"][:2])
            st.session_state[key] = (float(low), float(high))
            st.rerun(scope="fragment")


def _averages_of(stretch: str | None, summary: DeviceTelemetry | None) -> str:
    """Return over which time the numbers above the lines are averages; "" for all of the recording."""
    if stretch is not None:
        return f"Numbers in bold are averages from {stretch}, where the loop is steady; the rest is faded."
    if summary is None or not summary.steady.why_none:
        return ""
    beside = " outside the profile" if summary.profiles else ""
    return f"Numbers in bold are averages of the whole recording{beside}, because no part of it is known to be steady."


def _overview(telemetry: TelemetrySeries, view: tuple[float, float]) -> Any:
    """Show where the visible range is in the whole recording; return the selection on it."""
    return st.plotly_chart(
        charts.overview(telemetry, view, origin_ns=telemetry.span.start_ns, dark=frame.is_dark()),
        config={**CONFIG, "displayModeBar": False},
        key=f"overview-{view}",
        on_select="rerun",
        selection_mode="box",
        alt="Utilization over the whole recording, as an overview.",
    ).selection


def _range(view: tuple[float, float]) -> str:
    return f"{fmt.number(view[0])} s to {fmt.number(view[1])} s"


def _facts(telemetry: TelemetrySeries, column: str, summary: DeviceTelemetry | None) -> dict[str, float]:
    """Return mean, p5 and p95 of a quantity.

    The mean is that of the analysis, as on the other screens, if it has one.
    """
    facts = series.facts(telemetry, column)
    return {**facts, "mean": summary.means.get(column, facts["mean"])} if facts and summary is not None else facts


def _title(shown: TelemetrySeries, view: tuple[float, float]) -> str:
    """Return the chart's title with the means of the visible range."""
    column, name = _activity(shown)
    facts = _facts(shown, column, None) if column else {}
    power = _facts(shown, "power_w", None) if shown.has("power_w") else {}
    parts = []
    if facts:
        parts.append(
            f"{name if name.startswith(('GPU', 'SM')) else name.lower()} is {fmt.in_unit(facts['mean'], 'percent')} on average"
        )
    if power:
        parts.append(f"power {fmt.number(power['mean'])}\u00a0W")
    return f"From {_range(view)} {' and '.join(parts) or 'neither utilization nor power was sampled'}"


main()

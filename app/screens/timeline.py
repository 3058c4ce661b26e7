"""What happened when: steps, lost time, GPU streams, host threads and telemetry on one clock, closer by selecting."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.timeline import Span
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import Telemetry
from sawtooth.app import format as fmt
from sawtooth.app.charts import timeline as drawing
from sawtooth.app.charts.base import CONFIG, LegendEntry
from sawtooth.app.charts.rankings import short
from sawtooth.app.page import cards, current, frame, panel, perfetto, step_strip, telemetry_strip
from sawtooth.app.page import timeline_views as views
from sawtooth.app.theme import colour_of_quantity
from sawtooth.app.words import causes as cause_words
from sawtooth.ingest.quantities.registry import BY_COLUMN

METHOD = (
    "Bars are operations as recorded. Where more lie in view than can be drawn, short ones are summed per column of time: such a bar takes the "
    "colour of what fills most of it and is as thick as it is filled. Steps are on the device's own clock: a step ends when the last "
    "operation it launched ends. Lost time is cut where its cause changes."
)
HOST_ROWS = ("annotations", "operators", "runtime calls")
NEAR = 0.4  # of the view: less than half, so that two presses are felt
AROUND_STEP = 1.06  # a step and a little of its neighbours
CRUMBS = 3  # breadcrumbs shown: as many as fit into a line at 800 px


def main() -> None:
    """Show the page."""
    result = current.run_result()
    rank = current.chosen_rank(result)
    if rank is None and not result.manifest.traces:
        cards.headline("No trace is attached: there is no timeline of this run.")
        current.no_trace()
        return
    recording_id = rank.recording_id if rank is not None else result.manifest.traces[0].id
    _forget_other_run(result.manifest.id)
    _view(result, rank, recording_id)
    if rank is None:
        current.no_gpu_work()


def _forget_other_run(run: str) -> None:
    """Drop the range of another run from the address when the run changes under it."""
    before = st.session_state.get("timeline_run")
    st.session_state["timeline_run"] = run
    if before not in (None, run):
        _leave_range()


def _asked(whole: Span) -> Span:
    """Return the range of the address, the whole recording where it has none or nonsense."""
    try:
        start, end = float(st.query_params["t0"]), float(st.query_params["t1"])
        return timeline.span_of_ms(start, end, whole.start_ns).within(whole)
    except (KeyError, ValueError, OverflowError):
        return whole


def _go(view: Span | None, whole: Span, trail: str, keep: int | None = None) -> None:
    """Change the range of the address; ``keep`` cuts the trail of breadcrumbs to that length, None adds the range left."""
    crumbs: list[tuple[int, int]] = st.session_state.setdefault(trail, [])
    if keep is None:
        left = _asked(whole)
        crumbs.append((left.start_ns, left.end_ns))
    else:
        del crumbs[keep:]
    _leave_range()
    if view is not None and view != whole:
        st.query_params["t0"], st.query_params["t1"] = (f"{ms:.6f}" for ms in view.relative_ms(whole.start_ns))


def _leave_range() -> None:
    for key in ("t0", "t1"):
        if key in st.query_params:
            del st.query_params[key]


def _go_to_selection(chart: str, whole: Span, trail: str) -> None:
    box = st.session_state[chart].selection.box
    if box:
        low, high = box[0]["x"][:2]
        _go(timeline.span_of_ms(float(low), float(high), whole.start_ns).within(whole), whole, trail)


def _go_to_step(chooser: str, rank: RankResult, whole: Span, trail: str) -> None:
    step = st.session_state[chooser]
    st.session_state[chooser] = None
    if step is not None:
        row = rank.steps[rank.steps["step"] == step].iloc[0]
        _go(Span(int(row["start_ns"]), int(row["end_ns"])).zoomed(AROUND_STEP, whole), whole, trail)


@st.fragment
def _view(result: RunResult, rank: RankResult | None, recording_id: str) -> None:
    whole = views.extent(recording_id)
    view = _asked(whole)
    trail = f"trail-{recording_id}"
    _headline(rank, view, whole)
    _controls(result, rank, recording_id, view, whole, trail)
    if rank is not None:
        step_strip.show(result.manifest.id, rank, view=view)
    telemetry = _overlapping(result, rank, whole)
    figure, legend = _figure(rank, recording_id, telemetry, view, whole)
    cards.legend(legend)
    chart = f"timeline-{recording_id}-{view.start_ns}-{view.end_ns}"
    st.plotly_chart(
        figure,
        config=CONFIG,
        key=chart,
        on_select=lambda: _go_to_selection(chart, whole, trail),
        selection_mode="box",
        alt=f"Lanes over {fmt.duration_ns(view.ns)}: steps, lost time, GPU streams and host threads. The tables below list what is in view.",
    )
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        panel.explain(("gpu_busy_share", "step_time_ms"), METHOD, "timeline")
        cards.small("Drag across the lanes to zoom in.")
    _in_view(rank, recording_id, view, whole)
    if telemetry is None:
        _beside(result, rank, whole)


def _headline(rank: RankResult | None, view: Span, whole: Span) -> None:
    facts = views.facts(rank, view.start_ns, view.end_ns) if rank is not None else None
    length = fmt.duration_ns(view.ns)
    where = f"the whole {length}" if view == whole else f"the {length} in view"
    if facts is None:
        cards.headline(f"There is no GPU operation in {where}.")
        return
    sentence = f"The GPU works {fmt.share(facts.busy_share)} of {where}"
    if facts.lost:
        owner, cause, ms = facts.lost[0]
        sentence += f"; most is lost to {cause_words.loses_to(owner, cause)}: {fmt.duration_ms(ms)}"
    cards.headline(f"{sentence}.")


def _controls(result: RunResult, rank: RankResult | None, recording_id: str, view: Span, whole: Span, trail: str) -> None:
    """Show breadcrumbs and buttons."""
    crumbs: list[tuple[int, int]] = st.session_state.get(trail, [])
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.button(
            "Whole recording",
            icon=":material/home:",
            type="tertiary",
            disabled=view == whole,
            on_click=_go,
            args=(None, whole, trail, 0),
        )
        for depth in range(max(len(crumbs) - CRUMBS, 0), len(crumbs)):
            earlier = Span(*crumbs[depth])
            if earlier != whole:
                label = _range(*earlier.relative_ms(whole.start_ns))
                st.button(
                    label,
                    key=f"crumb-{depth}",
                    icon=":material/chevron_right:",
                    type="tertiary",
                    on_click=_go,
                    args=(earlier, whole, trail, depth),
                )
        if view != whole:
            cards.small(f"› {_range(*view.relative_ms(whole.start_ns))}")
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        moves = {
            "Earlier": (":material/chevron_left:", view.shifted(-0.5, whole)),
            "Later": (":material/chevron_right:", view.shifted(0.5, whole)),
            "Zoom in": (":material/zoom_in:", view.zoomed(NEAR, whole)),
            "Zoom out": (":material/zoom_out:", view.zoomed(1 / NEAR, whole)),
        }
        for label, (icon, target) in moves.items():
            st.button(label, icon=icon, disabled=target == view, on_click=_go, args=(target, whole, trail, len(crumbs)))
        if rank is not None and len(rank.steps):
            _step_chooser(rank, whole, trail)
        perfetto.button(result.manifest, recording_id)


def _range(low: float, high: float) -> str:
    return f"{fmt.number(low, 5)} to {fmt.number(high, 5)} ms"


def _step_chooser(rank: RankResult, whole: Span, trail: str) -> None:
    names = {int(step): fmt.clean(str(name), 40) for step, name in zip(rank.steps["step"], rank.steps["name"], strict=True)}
    key = f"go-{rank.recording_id}-{rank.device}"
    st.selectbox(
        "Go to step",
        list(names),
        index=None,
        format_func=names.__getitem__,
        key=key,
        placeholder="Go to step",
        label_visibility="collapsed",
        width=180,
        on_change=_go_to_step,
        args=(key, rank, whole, trail),
    )


def _figure(
    rank: RankResult | None, recording_id: str, telemetry: Telemetry | None, view: Span, whole: Span
) -> tuple[Any, tuple[LegendEntry, ...]]:
    lanes: list[drawing.Lane] = []
    if rank is not None:
        if len(rank.steps):
            lanes.append(drawing.steps_lane(rank.steps, view))
        lanes += _gpu_lanes(rank, view)
    lanes += _host_lanes(recording_id, view)
    panels = _panels(telemetry, view) if telemetry is not None else []
    dark = frame.dark()
    return drawing.figure(lanes, panels, view, whole.start_ns, dark=dark), drawing.legend(lanes, panels, dark=dark)


def _gpu_lanes(rank: RankResult, view: Span) -> list[drawing.Lane]:
    known = views.streams(rank)
    shown = list(known["stream"].head(timeline.STREAMS_MOST))
    bars, names = views.gpu_bars(rank, view.start_ns, view.end_ns, tuple(shown))
    gaps = views.gap_bars(rank, view.start_ns, view.end_ns)
    lanes = [drawing.Lane("Lost time", gaps, drawing.gap_colours(), {}, "gaps")]
    for stream in sorted(shown):
        lanes.append(drawing.Lane(f"Stream {stream}", bars[bars["lane"] == stream], drawing.work_colours(), names))
    return lanes


def _host_lanes(recording_id: str, view: Span) -> list[drawing.Lane]:
    known = views.threads(recording_id).head(timeline.THREADS_MOST)
    bars, names = views.host_bars(recording_id, view.start_ns, view.end_ns, tuple(known["thread_id"]))
    lanes = []
    for thread, label in zip(known["thread_id"], known["label"], strict=True):
        for row, what in enumerate(HOST_ROWS):
            rows = bars[bars["lane"] == 3 * thread + row]
            if len(rows) or row == 1:
                lanes.append(drawing.Lane(f"{thread_name(str(label))} {what}", rows, drawing.HOST_KINDS, names, what))
    return lanes


def thread_name(label: str) -> str:
    """Return a thread's name without its process: thread 936."""
    return fmt.clean(label.split(" (", 1)[0], 14)


def _panels(telemetry: Telemetry, view: Span) -> list[drawing.Panel]:
    part = series.around(telemetry, view)
    panels = []
    for unit, columns, top in (("%", ("util_pct", "tensor_active_pct", "dram_active_pct"), 102.0), ("W", ("power_w",), None)):
        lines = [drawing.Line(*series.line(part, c), BY_COLUMN[c].label, colour_of_quantity(c)) for c in columns if part.has(c)]
        if lines:
            panels.append(drawing.Panel(unit, lines, top))
    return panels


def _overlapping(result: RunResult, rank: RankResult | None, whole: Span) -> Telemetry | None:
    telemetry = telemetry_strip.of(result, rank.device if rank is not None else None)
    if telemetry is None or rank is None or not series.overlap(telemetry, whole, str(rank.info["clock"])):
        return None
    return telemetry


def _beside(result: RunResult, rank: RankResult | None, whole: Span) -> None:
    """Say why telemetry is not on the lanes, and show its last minute beside them."""
    telemetry = telemetry_strip.of(result, rank.device if rank is not None else None)
    if telemetry is None:
        cards.small("No telemetry is attached to this run, so utilization, power and clocks are missing here.")
        return
    if not telemetry.clock.known:
        cards.small(
            f"The telemetry is not aligned with the trace: {telemetry.clock.why}. Set its clock on the Telemetry page. Shown separately:"
        )
    elif rank is not None and not telemetry.clock.shares(str(rank.info["clock"])):
        cards.small("The trace has no absolute clock, so telemetry cannot be aligned with it. Shown separately:")
    else:
        apart = fmt.duration_ns(max(whole.start_ns - telemetry.span.end_ns, telemetry.span.start_ns - whole.end_ns, 0))
        when = "before" if telemetry.span.end_ns < whole.start_ns else "after"
        cards.small(f"Telemetry was recorded {apart} {when} the trace, not at the same time. Shown separately:")
    telemetry_strip.last_minute(result)


def _in_view(rank: RankResult | None, recording_id: str, view: Span, whole: Span) -> None:
    gpu, lost, host = st.tabs(
        ["GPU operations in view", "Lost time in view", "Host in view"], on_change="rerun", key="in_view", bind="query-params"
    )
    span = (view.start_ns, view.end_ns)
    if gpu.open:
        with gpu:
            rows = views.operations(rank, *span) if rank is not None else pd.DataFrame()
            _list(
                rows,
                {
                    "name": "Operation",
                    "ms": "ms in view",
                    "operations": "Operations",
                    "longest_us": "Longest, µs",
                    "kind": "Class",
                },
                "operations-in-view",
            )
    if lost.open:
        with lost:
            rows = views.gaps(rank, *span) if rank is not None else pd.DataFrame()
            columns = {
                "at_ms": "At, ms",
                "ms": "ms",
                "cause": "Cause",
                "phase": "Phase",
                "operator": "Operator",
                "python": "Python",
                "confidence": "Confidence",
                "evidence": "Evidence",
            }
            _list(rows, columns, "lost-time-in-view")
    if host.open:
        with host:
            rows = views.operators(recording_id, *span)
            _list(
                rows,
                {"name": "Name", "ms": "ms in view", "calls": "Calls", "longest_us": "Longest, µs", "kind": "Kind"},
                "host-in-view",
            )


def _list(rows: pd.DataFrame, columns: dict[str, str], key: str) -> None:
    if rows.empty:
        cards.small("Nothing of this kind is in view.")
        return
    if "name" in rows:
        rest = {column: heading for column, heading in columns.items() if column != "name"}
        columns = {"short": columns["name"], **rest, "name": "Full name"}
        rows = rows.assign(short=rows["name"].map(lambda name: short(str(name), 60)))
    for column in ("kind", "cause"):
        if column in rows:
            rows = rows.assign(**{column: rows[column].map(drawing.kind_label)})
    panel.table(rows, {c: heading for c, heading in columns.items() if rows[c].notna().any()}, key)


main()

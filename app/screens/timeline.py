"""The Timeline screen: steps, lost time, streams, host threads and telemetry on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
import streamlit as st

from sawtooth.analysis.knowledge.lost_time import known_by
from sawtooth.analysis.reading_order import lead_finding
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app import format as fmt
from sawtooth.app.charts import timeline as drawing
from sawtooth.app.charts.rankings import distinct_names
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.parts import breakdown, rank_panels, telemetry_strip
from sawtooth.app.page.timeline import narrow, perfetto, second_run, views
from sawtooth.app.page.timeline import picture as timeline_picture
from sawtooth.app.words import headline
from sawtooth.app.words import timeline as words
from sawtooth.app.words.answer.step import MAX_WORKING_SHARE, UNTRUSTED, StepAnswer, answer_of

METHOD = (
    "Slices are as recorded. Slices that are too short to be drawn one by one are added up: the height of a pixel column is the filled share of its time, in the colour "
    "of the kind that fills most of it. Steps use the device's clock: a step ends when the last operation that it launched ends. Lost time is divided where "
    "its cause changes."
)


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None and not result.manifest.traces:
        cards.headline("No trace is attached: there is no timeline of this run.")
        current_result.what_is_missing(result)
        return
    recording_id = rank.recording_id if rank is not None else result.manifest.traces[0].id
    timeline_picture.begin()
    views.summed(recording_id)
    _view(result, rank, recording_id)
    if rank is None:
        current_result.what_is_missing(result)


@st.fragment
def _view(result: RunResult, rank: RankResult | None, recording_id: str) -> None:
    extent = views.extent(recording_id)
    view = timeline_picture.range_in_address(extent)
    with st.container(horizontal=True, vertical_alignment="top", gap="small", key="timeline_head"):
        with st.container():
            _headline(result, rank, view, extent)
        other = second_run.choose(result, rank) if rank is not None else None
        shows_all_ranks = other is None and timeline_picture.all_ranks(result)
    if (
        shows_all_ranks
        and result.communication is not None
        and (late := rank_panels.late_in_the_profile(result, result.communication))
    ):
        cards.caution(late)
    telemetry = _overlapping(result, rank, extent)
    if rank is not None and other is not None:
        cards.small(second_run.sentence(rank, other))
    signal = telemetry_strip.column_of(telemetry, telemetry_strip.summary_of(result, telemetry)) if telemetry else None
    timeline_picture.show(result, rank, recording_id, telemetry, other, all_ranks_shown=shows_all_ranks, signal=signal)
    cards.legend(timeline_picture.legend(result, rank, all_ranks_shown=shows_all_ranks))
    if rank is not None and len(rank.steps):
        cards.small(words.HOST_AHEAD)
    _in_view(result, rank, recording_id, view)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        panel.explain(("gpu_busy_share", "step_time_ms"), METHOD, "timeline")
        perfetto.button(result.manifest, recording_id)
    if telemetry is None and timeline_picture.drawn():
        _separate_telemetry(result, rank, extent)


def _headline(result: RunResult, rank: RankResult | None, view: TimelineSpan, extent: TimelineSpan) -> None:
    length = fmt.duration_ns(view.ns)
    length = f"the whole {length}" if view == extent else f"the {length} in view"
    if rank is None:
        cards.headline(f"No GPU work was recorded: what the host does in {length}.")
        return
    if not rank.ledger:
        cards.headline(UNTRUSTED)  # A caution above the headline gives the reason.
        return
    answer = answer_of(result, rank)
    if view == extent and answer is not None:
        named = f"Rank {rank.rank}" if len(result.ranks) > 1 and rank.rank is not None else "The GPU"
        cards.headline(answer.works.replace("The GPU", named, 1), answer.waits or _of_a_busy_gpu(result, rank, answer))
        return
    facts = views.facts(rank, view.start_ns, view.end_ns)
    if facts is None:
        cards.headline(f"There is no GPU operation in {length}.")
        return
    counted = [
        TimelineSpan(int(start), int(end)) for start, end in rank.counted[["start_ns", "end_ns"]].itertuples(index=False)
    ]
    most_lost = (
        words.most_lost(facts, view, counted, answer.names if answer is not None else {})
        if facts.works_share < MAX_WORKING_SHARE
        else None
    )
    under = [
        *([f"most is lost to {most_lost.sentence}"] if most_lost is not None else []),
        *(["as profiled"] if rank.best.source != "profile" else []),
        *([most_lost.remark] if most_lost is not None and most_lost.remark else []),
    ]
    sentence = f"The GPU works {fmt.share(facts.works_share)} of {length}."
    note = "; ".join(under)
    cards.headline(sentence, fmt.ended(note[0].upper() + note[1:]) if note else None)


def _of_a_busy_gpu(result: RunResult, rank: RankResult, answer: StepAnswer) -> str:
    """Return the title of the first change; without one, return how long the GPU waits."""
    lead = lead_finding(result) if rank is result.lead else None
    if lead is not None:
        return fmt.ended(fmt.spaced(lead.title))
    healthy = ": healthy" if rank is result.lead and headline.healthy(result) is not None else ""
    return f"It waits {fmt.part_ms(answer.step_ms, answer.waits_ms)}{healthy}."


def _overlapping(result: RunResult, rank: RankResult | None, extent: TimelineSpan) -> TelemetrySeries | None:
    telemetry = telemetry_strip.telemetry_of(result, rank.device if rank is not None else None)
    if telemetry is None or rank is None or not series.overlap(telemetry, extent, rank.trace.clock):
        return None
    return telemetry


def _separate_telemetry(result: RunResult, rank: RankResult | None, extent: TimelineSpan) -> None:
    """Say why the telemetry is not drawn on the timeline, and where it is shown."""
    telemetry = telemetry_strip.telemetry_of(result, rank.device if rank is not None else None)
    if telemetry is None and result.telemetry.host is not None:
        cards.small("Only the host was sampled, no GPU. Its cores, memory and disks are under Telemetry.")
        return
    if telemetry is None:
        cards.small("No telemetry is attached to this run, so utilization, power and clocks are missing here.")
        return
    if not telemetry.clock.known:
        cards.small(f"The telemetry is not aligned with the trace: {telemetry.clock.reason}. Set its clock under Telemetry.")
    elif rank is not None and not telemetry.clock.shares(rank.trace.clock):
        cards.small("The trace has no absolute clock, so telemetry cannot be aligned with it.")
    else:
        distance = fmt.duration_ns(max(extent.start_ns - telemetry.span.end_ns, telemetry.span.start_ns - extent.end_ns, 0))
        when = "before" if telemetry.span.end_ns < extent.start_ns else "after"
        cards.small(f"Telemetry was recorded {distance} {when} the trace, not at the same time.")
    frame.link("telemetry", "All telemetry", icon=":material/monitoring:")


def _in_view(result: RunResult, rank: RankResult | None, recording_id: str, view: TimelineSpan) -> None:
    if rank is None:  # Without GPU work, only the host is shown.
        if timeline_picture.drawn():
            _host_in_view(rank, recording_id, view)
        return
    gpu, lost, host = st.tabs(
        ["GPU operations in view", "Lost time in view", "Host in view"], on_change="rerun", key="in_view", bind="query-params"
    )
    if not timeline_picture.drawn():
        return  # Return only now. Streamlit removes an address parameter if its element (here the tabs) was not shown.
    span = (view.start_ns, view.end_ns)
    if gpu.open:
        with gpu:
            rows = views.operations(rank, *span)
            _list(
                rows,
                lambda at: _to_longest(rank, recording_id, str(rows["name"].iloc[at]), view),
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
            rows = views.gaps(rank, *span) if rank.ledger else pd.DataFrame(columns=["at_ms", "owner", "cause"])
            rows = rows.assign(
                cause=[known_by(owner, cause) for owner, cause in zip(rows["owner"], rows["cause"], strict=True)]
            )
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
            _list(
                rows,
                lambda at: timeline_picture.visit("gaps", round(float(rows["at_ms"].iloc[at]) * 1e6)),
                columns,
                "lost-time-in-view",
                timeline_picture.names_of(result, rank),
            )
    if host.open:
        with host:
            _host_in_view(rank, recording_id, view)


def _to_longest(rank: RankResult | None, recording_id: str, name: str, view: TimelineSpan, *, host: bool = False) -> None:
    """Move to the longest visible slice with a name."""
    longest = views.longest_named(rank, recording_id, name, view, host=host)
    if longest is not None:
        timeline_picture.visit(*longest)


def _host_in_view(rank: RankResult | None, recording_id: str, view: TimelineSpan) -> None:
    rows = views.operators(recording_id, view.start_ns, view.end_ns)
    columns = {"name": "Name", "ms": "ms in view", "calls": "Calls", "longest_us": "Longest, µs", "kind": "Kind"}
    _list(
        rows,
        lambda at: _to_longest(rank, recording_id, str(rows["name"].iloc[at]), view, host=True),
        columns,
        "host-in-view",
    )


def _list(
    rows: pd.DataFrame, on_row: Callable[[int], None], columns: dict[str, str], key: str, names: Mapping[str, str] | None = None
) -> None:
    if rows.empty:
        cards.small("Nothing of this kind is in view.")
        return
    if "name" in rows:
        other_columns = {column: heading for column, heading in columns.items() if column != "name"}
        columns = {"short": columns["name"], **other_columns}  # The CSV and the timeline have the full name.
        rows = rows.assign(short=distinct_names(rows["name"].astype(str).tolist(), breakdown.NAME_SHOWN))
    with st.container(key="view_narrow"):
        cards.narrow_rows(narrow.rows(rows, names or {}), "The longest in view")
    for column in ("kind", "cause"):
        if column in rows:
            rows = rows.assign(**{column: [drawing.kind_label(kind, names or {}) for kind in rows[column]]})
    with st.container(key="view_table", gap="small"):
        panel.table(
            rows, {c: heading for c, heading in columns.items() if rows[c].notna().any()}, key, on_row=on_row, csv=False
        )
        to = "its longest slice in view" if "at_ms" not in rows else "it"
        cards.small(f"Select a row to move the timeline to {to}.")
    panel.csv_button(rows, key)


main()

"""The Idle screen: the largest loss and its change, all causes of lost time, and the longest waits."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.recorded.source_lines import user_lines, without_stale_lines
from sawtooth.analysis.knowledge.frames import readable_frame
from sawtooth.analysis.knowledge.owners import OUTSIDE_PROFILE
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.verdict import columns_of, uses_estimate
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.tables import waits as lost_time
from sawtooth.app import format as fmt
from sawtooth.app import places
from sawtooth.app.charts import cause_bars, rankings
from sawtooth.app.page import basis, cards, current_result, frame, panel
from sawtooth.app.page.parts import findings, first_change
from sawtooth.app.theme import colour_of
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words import lost_time as words_of_loss
from sawtooth.app.words.answer.step import answer_of
from sawtooth.app.words.lost_time import LostTimeRow

KERNEL_SHOWN = 70  # Characters. A longer name of a kernel does not fit into the column.
IN_PYTHON = "python_host"
ON_A_PHONE = 8  # Waits that a phone lists.
STEP_PREFIX = r"^(?:ProfilerStep#|Optimizer\.step#\w+\.step )(?=\d+$)"  # The column of steps shows the number without these prefixes of the profiler.
CAUSE_LOCATIONS = {
    "operator": "Operator", "python": "Python line", "call": "Runtime call", "phase": "Phase", "next_operation": "Ended by",
    "confidence": "Confidence",
}  # fmt: skip


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("No GPU work was recorded, so it is not known what a GPU waited for.")
        current_result.what_is_missing(result)
        return
    if current_result.untrusted(result, rank):
        return
    answer = st.container(key="idle_head", gap="small")  # The answer is above the switch on which it depends.
    answer.empty()  # A container without any element has no height.
    chosen = basis.switch(rank)
    column = chosen if chosen in columns_of(rank) else columns_of(rank)[0]
    step = answer_of(result, rank)
    rows = words_of_loss.rows(rank, column, step.names if step is not None else {})
    if not rows:
        with answer:
            _never_waits(rank)
            first_change.show(result)
        return
    with answer:
        hidden = words_of_loss.hidden_time_finding(result.findings) if rank is result.lead else None
        cards.headline(words_of_loss.sentence(rank, column, rows, hidden), _largest_part(rank, rows))
        _what_to_do(result, rows if rank is result.lead else [], hidden)
    if rank.represents is not None and rank.represents.represents is False:
        cards.small(rank.represents.sentence)
    _where_and_what_helps(rank, rows, hidden)
    if meanwhile := words_of_loss.busy_meanwhile(rows):
        cards.small(meanwhile)
    _how_computed(rank)
    names = {row.key: row.name for row in rows}
    listed = words_of_loss.rows(rank, "recorded")  # the waits below are those of the profile
    causes = {row.key: names.get(row.key, row.name) for row in listed if row.owner not in ("", OUTSIDE_PROFILE)}
    _pieces(rank, causes, {row.helps for row in rows})
    _phases(rank)


def _largest_part(rank: RankResult, rows: list[LostTimeRow]) -> str | None:
    """Return the place with the largest part of the largest cause; None if no place is known."""
    place = _places(rank).get(rows[0].key) if rows[0].owner else None
    return None if place is None else words_of_loss.largest_part(place, with_stack=rank.trace.with_stack is not False)


def _what_to_do(result: RunResult, rows: list[LostTimeRow], hidden: Finding | None) -> None:
    """Show the changes that reduce the largest named cause. The table below has general advice."""
    first = next((row for row in rows if row.owner), None)
    if first is None:
        first_change.show(result)
        return
    outside = first.owner == OUTSIDE_PROFILE  # The finding about this time gives the advice.
    about = [
        (number, finding)
        for number, finding in findings.advised_findings(result)
        if (finding is hidden if outside else first.key in finding.explains.causes)
    ]
    first_change.show_with(about, result)


def _never_waits(rank: RankResult) -> None:
    """Say that no time is lost, or that time is lost only under the profiler."""
    if profiled := words_of_loss.total_ms(words_of_loss.rows(rank, "recorded")):
        per = "of each profiled step" if len(rank.counted) else "of the recorded time"
        cards.headline("Without the profiler, the GPU does not wait (estimated).")
        cards.small(f"Under the profiler {fmt.duration_ms(profiled)} {per} is lost.")
        return
    cards.headline("The GPU never waits in the steady window.")
    cards.small(
        "Between the first and the last counted step there is no idle time, and computation hides all copies and communication."
    )


def _where_and_what_helps(rank: RankResult, rows: list[LostTimeRow], hidden: Finding | None) -> None:
    """Show the time, the main place and the remedy of each cause, and the sum of all causes.

    The headline already names the main place of a single cause.
    """
    places = _places(rank)
    total_row = LostTimeRow("", None, words_of_loss.total_ms(rows))
    per = "per step" if len(rank.counted) else "in the recording"
    several = sum(bool(row.owner) for row in rows) > 1
    heads = ("The GPU waits for", f"Time {per}", "Share", *(["Most of it in"] if several else []), "What helps")
    lines = [
        (
            "Together" if row is total_row else row.label,
            fmt.part_ms(total_row.ms, row.ms),
            fmt.share(row.ms / total_row.ms),
            *([places.get(row.key, fmt.MISSING) if row.owner else ""] if several else []),
            hidden.fix if hidden is not None and row.owner == OUTSIDE_PROFILE else row.helps,
        )
        for row in [*rows, *([total_row] if len(rows) > 1 else [])]
    ]
    bars = cause_bars.bars([(row.owner, row.cause, row.ms) for row in rows], dark=frame.is_dark())
    cards.show_ranked_table(heads, lines, [*bars, cause_bars.LostBar("")], "What the GPU waits for, where, and what helps")


def _how_computed(rank: RankResult) -> None:
    with st.container(horizontal=True, gap="small"):
        panel.explain(cause_bars.METRICS, cause_bars.METHOD, "causes")
        with st.popover("Table", type="tertiary", icon=":material/table_rows:", key="causes-rows"):
            table = cause_bars.table(rank, _causes(rank).set_index("cause")["recoverable_ms"])
            panel.table(table, {c: heading for c, heading in cause_bars.COLUMNS.items() if table[c].notna().any()}, "causes")


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _places(rank: RankResult) -> dict[str, str]:
    """Return the main place of each cause, such as "train.py:96 in step (73 %)", else an operator or call."""
    with current_result.opened(rank) as view:
        rows = lost_time.main_locations(view)
        lines = _own_lines(view.recording, rows)
    return {str(row["cause"]): _place_text(row, lines) for row in rows.to_dict("records")}


def _place_text(row: dict[Any, Any], lines: dict[int, str]) -> str:
    name, share = cause_words.place(str(row["place"])), fmt.share(float(row["share"]))
    line = lines.get(int(row["python_call_id"])) if pd.notna(row["python_call_id"]) else None
    if line is not None:
        name = line
    elif row["cause"] == IN_PYTHON and pd.isna(row["python_call_id"]):
        name = f"before {name}"
    return f"{fmt.clean(name, 80)} ({share})"


def _own_lines(recording: Recording, rows: pd.DataFrame) -> dict[int, str]:
    """Return the user's code line for each python_call_id, such as "train.py:96 in step"."""
    lines = user_lines(recording, [int(call) for call in rows["python_call_id"].dropna()])
    return dict(zip(lines, map(readable_frame, without_stale_lines(recording, list(lines.values()))), strict=True))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _causes(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        return lost_time.causes(view, uses_estimate(rank))


@st.cache_data(max_entries=64, show_spinner="Listing waits …", hash_funcs={RankResult: current_result.key_of})
def _longest(rank: RankResult, cause: str | None) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        rows = lost_time.pieces(view, cause)
        lines = _own_lines(view.recording, rows)
    own_lines = [lines.get(int(call)) if pd.notna(call) else None for call in rows["python_call_id"]]
    return rows.assign(python=[line or name for line, name in zip(own_lines, rows["python"], strict=True)])


def _pieces(rank: RankResult, causes: dict[str, str], advice: set[str]) -> None:
    """Show the longest waits and the details of one; ``advice`` is already on the page."""
    cause = None
    if len(causes) > 1:
        cause = st.pills("Waits of one cause", list(causes), format_func=causes.__getitem__, key="cause", bind="query-params")
    if (rows := _longest(rank, cause)).empty:
        cards.small("No individual wait is recorded.")
        return
    longest = rows.iloc[0]
    profiled = ", as profiled," if basis.differs(rank) else ""
    cards.title(f"The longest single wait{profiled} is {fmt.duration_ms(float(longest['ms']))}")
    shown = rows.assign(
        label=[colour_of(str(row["owner"]), row["cause"]).label for _, row in rows.iterrows()],
        where=[_where(row) for _, row in rows.iterrows()],
        step=rows["step"].str.replace(STEP_PREFIX, "", regex=True),
    )
    columns: dict[str, Any] = {
        "ms": panel.number_column("Wait, ms", rows["ms"]),
        "label": "Cause",
        "where": st.column_config.TextColumn("Where", width="large"),
        "step": "Step",
        "at_ms": st.column_config.NumberColumn("At, ms", format="%.1f", help="After the start of the recording"),
    }
    _on_a_phone(shown)
    with st.container(key="idle_waits"):
        event: Any = st.dataframe(
            shown,
            hide_index=True,
            column_order=[c for c in columns if shown[c].notna().any()],
            column_config=columns,
            on_select="rerun",
            selection_mode="single-row",
            placeholder="",
            key=f"waits-{cause}",
            height=panel.TABLE_HEIGHT,
            alt="The longest waits with cause, operator and evidence.",
        )
    panel.csv_button(rows, "waits")
    chosen = event.selection.rows
    row = rows.iloc[int(chosen[0]) if chosen and chosen[0] < len(rows) else 0]
    with st.container(border=True):
        cards.title(f"{fmt.duration_ms(float(row['ms']))} at {fmt.duration_ms(float(row['at_ms']))}")
        if isinstance(row["evidence"], str):
            cards.text(cause_words.place(row["evidence"]))
        location = {c: row[c] for c in CAUSE_LOCATIONS if isinstance(row[c], str) and row[c]}
        if location.get("operator", "") in str(row["evidence"]):  # The sentence above names it.
            location.pop("operator", None)
        if facts := [f"{CAUSE_LOCATIONS[c]}: {_short(c, name)}" for c, name in location.items()]:
            cards.small(" · ".join(fmt.clean(cause_words.place(fact), 160) for fact in facts))
        if (helps := cause_words.helps(str(row["owner"]), row["cause"])) not in advice:
            cards.small(f"What helps: {helps}")
        frame.link(
            "timeline",
            "Show on the timeline",
            run=st.session_state.get("run"),
            icon=":material/view_timeline:",
            t0=f"{row['t0_ms']:.6f}",
            t1=f"{row['t1_ms']:.6f}",
        )


def _on_a_phone(waits: pd.DataFrame) -> None:
    """Show the longest waits as links to the timeline, in place of the table."""
    longest_ms, run = float(waits["ms"].max()), str(st.session_state.get("run"))
    rows = [
        cards.NarrowRow(
            name=fmt.clean(row["where"], 80) if isinstance(row["where"], str) else row["label"],
            address=places.address("timeline", {"run": run, "t0": f"{row['t0_ms']:.6f}", "t1": f"{row['t1_ms']:.6f}"}),
            chosen=False,
            value=fmt.duration_ms(row["ms"]) + (f" · step {row['step']}" if isinstance(row["step"], str) else ""),
            bar=f"{row['ms'] / longest_ms:.1%}",
            colour=colour_of(str(row["owner"]), row["cause"]).on(frame.is_dark()),
            kind=row["label"],
        )
        for row in waits.head(ON_A_PHONE).to_dict("records")
    ]
    with st.container(key="idle_narrow"):
        cards.narrow_rows(rows, "The longest waits, as links to the timeline")


def _short(column: str, name: str) -> str:
    """Return a short name of a place; a kernel's name is reduced to its distinctive part."""
    return rankings.short_name(name, KERNEL_SHOWN) if column == "next_operation" else name


def _where(row: pd.Series) -> str | None:
    """Return the most specific known place of a wait: Python line, else operator, else runtime call."""
    locations = [row[c] for c in ("python", "operator", "call") if isinstance(row[c], str) and row[c]]
    name = next((place for place in locations if not place.startswith("<built-in")), locations[0] if locations else None)
    if name is not None and row["cause"] == IN_PYTHON and locations == [row["call"]]:
        return f"before {name}"
    return None if name is None else cause_words.place(name)


def _phases(rank: RankResult) -> None:
    if not rank.phases:
        return
    rows = pd.DataFrame(rank.phases).sort_values("idle_ms_per_step", ascending=False, ignore_index=True)
    first = rows.iloc[0]
    idle, name = float(first["idle_ms_per_step"]), fmt.markdown(cause_words.place(str(first["name"])), 60)
    total_ms = words_of_loss.total_ms(words_of_loss.rows(rank, "recorded"))
    share = f"{fmt.share(min(idle / total_ms, 1.0))} of the lost time" if total_ms else "most idle time"
    per = "ms per profiled step" if basis.differs(rank) else "ms per step"
    columns = {
        "name": "Phase",
        "idle_ms_per_step": f"Idle inside, {per}",
        "host_ms_per_step": f"Host, {per}",
        "device_ms_per_step": f"Device, {per}",
    }
    with st.expander(f"By phase, the most in {name}: {share}", icon=":material/segment:"):
        panel.table(rows, columns, "phases")
        cards.small(
            "Phases are annotations from your code and from PyTorch. They may be nested, so their times do not sum to the total."
        )


main()

"""Why the GPU waited: every cause with its place and what helps, what it costs a step, and the longest waits with what proves them."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.source_lines import FRAME, user_lines
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.run.verdict import Column, columns_of, parts_of, uses_estimate
from sawtooth.analysis.tables import waits as lost_time
from sawtooth.app import format as fmt
from sawtooth.app.charts import losses
from sawtooth.app.page import basis, cards, current, frame, panel
from sawtooth.app.theme import CAUSES, UNATTRIBUTED, colour_of
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words import run as words

STEP_PREFIX = "ProfilerStep#"  # what the profiler calls each step
WORTH_A_BAR = 0.01  # of the largest cause: smaller ones are hairlines, and the table has them
PLACES = {
    "operator": "Operator", "python": "Python line", "call": "Runtime call", "phase": "Phase", "next_operation": "Ended by",
    "confidence": "Confidence",
}  # fmt: skip


def main() -> None:
    """Show the page."""
    result = current.run_result()
    rank = current.chosen_rank(result)
    if rank is None:
        cards.headline("No GPU work was recorded: nothing shows what a GPU waited for.")
        current.what_is_missing(result)
        return
    answer = st.container()  # above the switch that it depends on
    chosen = basis.switch(rank)
    rows = _lost(rank, chosen if chosen in columns_of(rank) else columns_of(rank)[0])
    if rows.empty:
        cards.headline("The GPU never waits in the steady window.")
        cards.small("There is no idle time, exposed copy or exposed communication between the first and the last counted step.")
        return
    first = rows.iloc[0]
    with answer:
        _head(first, rank, chosen)
    if rank.represents is not None and rank.represents.represents is False:
        cards.small(rank.represents.sentence)
    _where_and_what_helps(rank, rows, chosen)
    title = (
        f"{losses_label(first)} is the largest of {len(rows)} causes"
        if len(rows) > 1
        else f"{losses_label(first)} is the only cause"
    )
    panel.show(losses.causes(rows, title, dark=frame.dark(), unit=words.unit_of(rank), least=WORTH_A_BAR), "causes")
    _pieces(rank, list(dict.fromkeys(str(c) for c in rows["cause"] if str(c) in CAUSES)))
    _phases(rank)


def _where_and_what_helps(rank: RankResult, rows: pd.DataFrame, column: Column) -> None:
    """Say of each cause that is worth a bar where it lies and what helps, the largest first."""
    times = rows[f"{column}_ms"].fillna(rows["recorded_ms"])
    places = _places(rank)
    lines = [
        (losses_label(row), fmt.duration_ms(ms), places.get(str(row["cause"]), fmt.MISSING), _helps(row))
        for (_, row), ms in zip(rows.iterrows(), times, strict=True)
        if ms > 0 and ms >= WORTH_A_BAR * times.max()
    ]
    per = "a step" if len(rank.counted) else "of the recording"
    cards.table(
        ("The GPU waits for", f"Time {per}", "Most of it in", "What helps"),
        lines,
        "What the GPU waits for, where, and what helps",
    )


def _helps(row: pd.Series) -> str:
    return cause_words.helps(str(row["owner"]), None if row["cause"] == row["owner"] else str(row["cause"]))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current.key_of})
def _places(rank: RankResult) -> dict[str, str]:
    """Return by cause where most of it lies: train.py:96 in step (73 %) where the trace has the line, else an operator or call."""
    with current.opened(rank) as view:
        rows = lost_time.places(view)
        lines = user_lines(view.recording, [int(call) for call in rows["python_call_id"].dropna()])
    return {str(row["cause"]): _placed(row, lines) for row in rows.to_dict("records")}


def _placed(row: dict[Any, Any], lines: dict[int, str]) -> str:
    name, share = cause_words.place(str(row["place"])), fmt.share(float(row["share"]))
    line = FRAME.match(lines.get(int(row["python_call_id"]), "")) if pd.notna(row["python_call_id"]) else None
    if line is not None:
        name = f"{line['file']}:{line['line']} in {line['function']}"
    return f"{fmt.clean(name, 80)} ({share})"


def losses_label(row: pd.Series) -> str:
    """Return the name of a cause, as a sentence begins."""
    label = colour_of(str(row["owner"]), None if row["cause"] == row["owner"] else str(row["cause"])).label
    return label[0].upper() + label[1:]


def _head(first: pd.Series, rank: RankResult, column: Column) -> None:
    estimate = column == "unprofiled" and pd.notna(first["unprofiled_ms"])
    ms = float(first["unprofiled_ms"] if estimate else first["recorded_ms"])
    of = "each step" if len(rank.counted) else "the recorded time"
    cause = None if first["cause"] == first["owner"] else str(first["cause"])
    cards.headline(
        f"{'≈ ' if estimate else ''}{fmt.duration_ms(ms)} of {of} is lost to {cause_words.loses_to(str(first['owner']), cause)}."
    )


def _lost(rank: RankResult, column: Column) -> pd.DataFrame:
    """Return lost time by cause as the Verdict divides it, largest first by ``column``; see ``losses.causes``."""
    pairs: dict[tuple[str, str | None], dict[str, Any]] = {}
    for name, which in (("recorded_ms", "recorded"), ("unprofiled_ms", "unprofiled")):
        for part in parts_of(rank, cast(Column, which)):
            if part.lost:
                one = part.cause is not None and part.cause != UNATTRIBUTED
                row = pairs.setdefault(
                    ("" if one else part.owner, part.cause), {"cause": part.cause or part.owner, "owner": part.owner}
                )
                row[name] = part.ms
    rows = pd.DataFrame(list(pairs.values()), columns=["cause", "owner", "recorded_ms", "unprofiled_ms"])
    rows = rows.astype({"recorded_ms": float, "unprofiled_ms": float}).fillna({"recorded_ms": 0.0})
    rows = rows.merge(_causes(rank)[["cause", "recoverable_ms"]], on="cause", how="left")
    return rows.sort_values(f"{column}_ms", ascending=False, ignore_index=True, na_position="last")


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current.key_of})
def _causes(rank: RankResult) -> pd.DataFrame:
    with current.opened(rank) as view:
        return lost_time.causes(view, uses_estimate(rank))


@st.cache_data(max_entries=64, show_spinner="Listing waits …", hash_funcs={RankResult: current.key_of})
def _longest(rank: RankResult, cause: str | None) -> pd.DataFrame:
    with current.opened(rank) as view:
        return lost_time.pieces(view, cause)


def _pieces(rank: RankResult, causes: list[str]) -> None:
    cause = st.pills("Waits of one cause", causes, format_func=lambda c: CAUSES[c].label, key="cause", bind="query-params")
    rows = _longest(rank, cause)
    if rows.empty:
        cards.small("No individual wait is recorded.")
        return
    longest = rows.iloc[0]
    cards.title(f"The longest wait is {fmt.duration_ms(float(longest['ms']))}, {_place(longest)}")
    text = st.column_config.TextColumn
    shown = rows.assign(
        label=rows["cause"].map(lambda c: CAUSES[c].label if c in CAUSES else ""),
        where=[_where(row) for _, row in rows.iterrows()],
        step=rows["step"].str.removeprefix(STEP_PREFIX),
    )
    columns: dict[str, Any] = {
        "ms": panel.number_column("Wait, ms", rows["ms"]),
        "label": text("Cause"),
        "where": text("Where", width="large"),
        "step": text("Step"),
        "at_ms": st.column_config.NumberColumn("At, ms", format="%.1f", help="After the start of the recording"),
    }
    named = [c for c in columns if shown[c].notna().any()]
    event: Any = st.dataframe(
        shown,
        hide_index=True,
        column_order=named,
        column_config=columns,
        on_select="rerun",
        selection_mode="single-row",
        placeholder="",
        key=f"waits-{cause}",
        height=panel.TABLE_HEIGHT,
        alt="The longest waits with cause, operator and evidence.",
    )
    chosen = event.selection.rows
    row = rows.iloc[int(chosen[0]) if chosen and chosen[0] < len(rows) else 0]
    with st.container(border=True):
        cards.title(f"{fmt.duration_ms(float(row['ms']))} at {fmt.number(float(row['at_ms']), 5)} ms")
        if isinstance(row["evidence"], str):
            cards.text(cause_words.place(row["evidence"]))
        places = [f"{heading}: {row[c]}" for c, heading in PLACES.items() if isinstance(row[c], str) and row[c]]
        if places:
            cards.small(" · ".join(fmt.clean(cause_words.place(place), 160) for place in places))
        cards.small(f"What helps: {CAUSE_OF[row['cause']].to_do}")
        frame.link(
            "timeline",
            "Show on the timeline",
            run=st.session_state.get("run"),
            icon=":material/view_timeline:",
            t0=f"{row['t0_ms']:.6f}",
            t1=f"{row['t1_ms']:.6f}",
        )
    panel.csv_button(rows, "waits")


def _place(row: pd.Series) -> str:
    if where := _where(row):
        return f"in {fmt.clean(where, 80)}"
    return f"in the {row['phase']} phase" if isinstance(row["phase"], str) else "in an unnamed place"


def _where(row: pd.Series) -> str | None:
    """Return the narrowest place that is known of a wait: the Python line, else the operator, else the call of the runtime."""
    known = [row[c] for c in ("python", "operator", "call") if isinstance(row[c], str) and row[c]]
    name = next((place for place in known if not place.startswith("<built-in")), known[0] if known else None)
    return None if name is None else cause_words.place(name)


def _phases(rank: RankResult) -> None:
    if not rank.phases:
        return
    rows = pd.DataFrame(rank.phases).sort_values("idle_ms_per_step", ascending=False, ignore_index=True)
    first = rows.iloc[0]
    idle, name = fmt.duration_ms(float(first["idle_ms_per_step"])), fmt.markdown(cause_words.place(str(first["name"])), 60)
    columns = {
        "name": "Phase",
        "idle_ms_per_step": "Idle inside, ms per step",
        "host_ms_per_step": "Host, ms per step",
        "device_ms_per_step": "Device, ms per step",
    }
    with st.expander(f"By phase: {idle} of idle time a step lies in {name}", icon=":material/segment:"):
        panel.table(rows, columns, "phases")
        cards.small("Annotations from your code and from PyTorch. Phases may be nested, so they do not add up.")


main()

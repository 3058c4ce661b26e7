"""What opens under the table of kernels: how long launches of one last, what it works for, and how near it comes to what this GPU can do."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import attainable
from sawtooth.analysis.tables import kernels as tables
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, current, frame, panel
from sawtooth.app.page.timeline import views
from sawtooth.app.words import run as words

AROUND = 12.0  # of the launch's own length that it is shown with on the timeline: what ran before and after stays in sight
COLUMNS = {
    "operator": "Works for",
    "shapes": "Input shapes",
    "kernel_ms": "This kernel",
    "ms": "Operator",
    "expected_ms": "Timed kernels",
    "least_ms": "Peaks allow",
}
METHOD = (
    "The kernel's launches are added up by the operator they work for: the one whose FLOPs are counted, else the one that launched them. "
    "'Operator' is all kernels of that operator at these shapes. 'Timed kernels' is what such work takes on this GPU by a model fitted on kernels "
    "timed on an H200, where it knows one. 'Peaks allow' is the time of its FLOPs and bytes at the maker's peaks, which nothing quite reaches."
)


def show(row: pd.Series, rank: RankResult) -> None:
    """Show one kernel of the table."""
    name = str(row["name"])
    durations, works_for, longest = _about(rank, name)
    with st.container(border=True):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            cards.title(rankings.short(name, 90))
            if longest is not None:
                _timeline_link(rank, longest)
        if sentence := reached(works_for):
            cards.text(sentence)
        panel.table(_columns_shown(works_for), _headings(works_for, rank), "kernel-works-for")
        panel.explain((), METHOD, "kernel-works-for")
        wide, side = panel.beside()
        with wide:
            low, middle, high = (fmt.duration_ns(row[f"{which}_us"] * 1e3) for which in ("min", "median", "max"))
            spread = f"One launch takes {low} to {high}, median {middle}"
            chart = rankings.histogram(durations, spread, f"Histogram. {spread}.", dark=frame.dark(), method="")
            panel.show(chart, "kernel-durations")
        with side:
            cards.title("Its full name")
            st.code(fmt.clean(name), language=None, wrap_lines=True)


@st.cache_data(max_entries=128, show_spinner="Looking at the kernel …", hash_funcs={RankResult: current.key_of})
def _about(rank: RankResult, name: str) -> tuple[pd.DataFrame, pd.DataFrame, attainable.Span | None]:
    with current.opened(rank) as view:
        durations = tables.kernel_durations(view, name)
        return durations, attainable.attained(view, name), attainable.longest_launch(view, name)


def reached(works_for: pd.DataFrame) -> str | None:
    """Return how near the first operator comes to what is attainable, in one sentence; None where nothing is known to compare with."""
    known = works_for[works_for["least_ms"].notna()]
    if known.empty:
        return None
    first = known.iloc[0]
    shapes = f" ({fmt.clean(str(first['shapes']), 80)})" if first["shapes"] else ""
    took = f"{fmt.clean(str(first['operator']), 60)}{shapes} takes {fmt.duration_ms(first['ms'])}"
    least = f"{fmt.duration_ms(first['least_ms'])} at the GPU's peaks"
    if pd.isna(first["expected_ms"]):
        return f"{took}; its FLOPs and bytes need {least}."
    low, high = fmt.duration_ms(first["low_ms"]), fmt.duration_ms(first["high_ms"])
    return f"{took}; timed kernels of such work take ≈\u00a0{fmt.duration_ms(first['expected_ms'])} ({low} to {high}), and it needs {least}."


def _columns_shown(works_for: pd.DataFrame) -> pd.DataFrame:
    return works_for.drop(columns=[c for c in works_for if works_for[c].isna().all()])


def _headings(works_for: pd.DataFrame, rank: RankResult) -> dict[str, str]:
    unit = words.unit_of(rank)
    shown = _columns_shown(works_for)
    return {c: f"{h}, {unit}" if c.endswith("ms") else h for c, h in COLUMNS.items() if c in shown}


def _timeline_link(rank: RankResult, longest: attainable.Span) -> None:
    whole = views.extent(rank.recording_id)
    low, high = longest.zoomed(AROUND, whole).relative_ms(whole.start_ns)
    frame.link(
        "timeline",
        "Show its longest launch on the timeline",
        icon=":material/view_timeline:",
        t0=f"{low:.6f}",
        t1=f"{high:.6f}",
    )

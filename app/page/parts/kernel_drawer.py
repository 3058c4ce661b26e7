"""Details of a kernel: launch durations, its operators, and its distance from the GPU's limits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from sawtooth.analysis.knowledge.hardware import GpuPeaks, crossed_by, link_of
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import attainable
from sawtooth.analysis.tables import kernels as tables
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.timeline import views
from sawtooth.app.words import run as words

# time span that the timeline shows, relative to the launch, so that the work before and after it is visible
TIMELINE_SPAN_RATIO = 12.0
COLUMNS = {
    "operator": "Works for",
    "shapes": "Input shapes",
    "kernel_ms": "This kernel",
    "ms": "Operator",
    "expected_ms": "Timed kernels",
    "least_ms": "Peaks allow",
}
OF_A_COPY = {**COLUMNS, "kernel_ms": "The copies", "least_ms": "The link allows"}
METHOD = (
    "Each launch counts for the operator whose FLOPs are counted, or else for the operator that launched it. "
    "'Operator' is the time of all kernels of that operator at these shapes. 'Timed kernels' is the time that a model of kernels timed on an H200 "
    "predicts for such work on this GPU, if the model covers it. 'Peaks allow' is the time of its FLOPs and bytes at the maker's peaks, which no kernel quite reaches."
)
COPY_METHOD = (
    "The copies are added up by the operator that launched them. 'The link allows' is the time of their bytes at the maker's bandwidth of the link "
    "between this GPU and its host or other GPUs, in one direction with all lanes in use. Copies of pinned memory reached 88 % of it on an H200."
)
PAGEABLE = "Pageable memory passes through a buffer of the driver and reaches less: 10 to 23 GB/s on an H200, where pinned memory reached 55."
# Starting a copy takes about 1 µs. If the bytes of a copy need less time on the link, its rate does not show the link's rate.
QUICK_NS = 1_000
WORKS_FOR_SHOWN = 8  # Operators of a kernel in the table. The others add up to a few percent of the kernel's time.
MIN_HISTOGRAM = 8  # Launches. The median and the extremes describe fewer.
TITLE_SHOWN = 60  # Characters of a kernel's name in the title above its details.
MIN_NAMED_SHARE = 0.01  # Share of the step. A smaller gain cannot be measured, because step times vary more.


def show(row: pd.Series, rank: RankResult, result: RunResult, *, named: bool) -> None:
    """Show one kernel of the table; ``named`` says that a finding is about it."""
    name = str(row["name"])
    durations, works_for, longest, spread = _about(rank, name)
    copies = crossed_by(name) is not None
    if not named:
        _what_to_gain(works_for, row, rank, result)
    with st.container(border=True):
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            if sentence := copied(works_for, name, rank.gpu) if copies else reached(works_for):
                cards.text(sentence)
            if longest is not None:
                _timeline_link(rank, longest)
        _works_for(works_for, rank, copies=copies)
        with st.container(horizontal=True, gap="small"):
            if not works_for.empty:
                panel.csv_button(works_for, "kernel-works-for")
            panel.explain((), COPY_METHOD if copies else METHOD, "kernel-works-for")
        if durations["launches"].sum() < MIN_HISTOGRAM:
            cards.small(f"{spread}.")
            return
        chart = rankings.histogram(durations, spread, f"Histogram. {spread}.", dark=frame.is_dark())
        if fmt.clean(name) == rankings.short_name(name, TITLE_SHOWN):  # the title has the full name
            panel.show(chart, "kernel-durations")
            return
        wide, side = panel.two_columns()
        with wide:
            panel.show(chart, "kernel-durations")
        with side:
            cards.title("Its full name")
            st.code(fmt.clean(name), language=None, wrap_lines=True)


@st.cache_data(max_entries=128, show_spinner="Looking at the kernel …", hash_funcs={RankResult: current_result.key_of})
def _about(rank: RankResult, name: str) -> tuple[pd.DataFrame, pd.DataFrame, TimelineSpan | None, str]:
    with current_result.opened(rank) as view:
        durations = tables.kernel_durations(view, name)
        all_kernels = tables.kernels(view)
        row = all_kernels[all_kernels["name"] == name].iloc[0]
        low, middle, high = (fmt.duration_ns(row[f"{which}_us"] * 1e3) for which in ("min", "median", "max"))
        spread = f"One launch takes {low} to {high}, median {middle}"
        return durations, attainable.attained_operators(view, name), attainable.longest_launch(view, name), spread


def reached(works_for: pd.DataFrame) -> str | None:
    """Return a sentence that compares the first operator with the attainable time, or None."""
    with_bound = works_for[works_for["least_ms"].notna()]
    if with_bound.empty:
        return None
    first = with_bound.iloc[0]
    shapes = f" ({fmt.clean(str(first['shapes']), 80)})" if first["shapes"] else ""
    took = f"{fmt.clean(str(first['operator']), 60)}{shapes} takes {fmt.duration_ms(first['ms'])}"
    shortest_time = f"{fmt.duration_ms(first['least_ms'])} at the GPU's peaks"
    if pd.isna(first["expected_ms"]):
        return f"{took}; its FLOPs and bytes need {shortest_time}."
    low, high = fmt.duration_ms(first["low_ms"]), fmt.duration_ms(first["high_ms"])
    return f"{took}; timed kernels of such work take ≈\u00a0{fmt.duration_ms(first['expected_ms'])} ({low} to {high}), and it needs {shortest_time}."


def copied(works_for: pd.DataFrame, name: str, gpu: GpuPeaks | None) -> str | None:
    """Return one sentence with the rate of the copies called ``name`` and the rate of their link.

    The result is None if no bytes are recorded.
    """
    with_bytes = works_for[works_for["bytes"] > 0]
    moved, ms, launches = (float(with_bytes[column].sum()) for column in ("bytes", "kernel_ms", "launches"))
    if not moved or not ms:
        return None
    what = f"These copies move {fmt.bytes_(moved)} in {fmt.duration_ms(ms)}"
    between = crossed_by(name)
    link = link_of(gpu.name, between) if gpu is not None and between is not None else None
    if link is not None and moved / launches < QUICK_NS * link.gb_s:
        return f"{what}, {fmt.bytes_(moved / launches)} each. Starting such a copy takes longer than moving its bytes over {link.name}."
    rate = moved / ms / 1e6
    ends = "this GPU and its host" if between == "host" else "this GPU and others"
    carries = (
        f": {fmt.share(rate / link.gb_s)} of the {link.gb_s:g}\u00a0GB/s that {link.name} can transfer in one direction"
        if link is not None
        else f". The bandwidth of the link between {ends} is not in the hardware table"
    )
    return f"{what} at {rate:.3g}\u00a0GB/s{carries}.{f' {PAGEABLE}' if 'pageable' in name.lower() else ''}"


def most_to_gain_ms(works_for: pd.DataFrame) -> float | None:
    """Return the ms per step that the kernel would save at the GPU's peaks or the link's bandwidth.

    The result is None if this limit is not known for any of its work.
    """
    if works_for["least_ms"].isna().all():
        return None
    of_kernel = works_for["kernel_ms"]
    above = works_for["ms"].fillna(of_kernel) - works_for["least_ms"].fillna(0.0)
    return float(np.minimum(of_kernel, above.clip(lower=0.0)).sum())


def verdict_on(gain_ms: float | None, kernel_ms: float, step_ms: float | None) -> str:
    """Return a sentence about the possible gain per profiled step of a kernel without a finding."""
    most_ms = kernel_ms if gain_ms is None else gain_ms
    share = f", {fmt.share(most_ms / step_ms)} of a profiled step" if step_ms else ""
    if step_ms and most_ms < MIN_NAMED_SHARE * step_ms:
        return f"Nothing to gain here: {'it takes' if gain_ms is None else 'as fast as possible, it would save'} {fmt.duration_ms(most_ms)}{share}."
    if gain_ms is None:
        return f"There is no finding about it. It takes {fmt.duration_ms(most_ms)}{share}; how fast it could be is not known."
    return f"There is no finding about it. The fastest possible kernel would save at most {fmt.duration_ms(most_ms)}{share}, and less if other work runs at the same time."


def _what_to_gain(works_for: pd.DataFrame, row: pd.Series, rank: RankResult, result: RunResult) -> None:
    """Say what could be gained at most, and where to look."""
    cards.text(verdict_on(most_to_gain_ms(works_for), float(row["ms"]), rank.metrics["step_time_ms"].value))
    if row["category"] in ("communication", "memcpy", "memset"):
        frame.link("idle", "When the GPU waits for it", run=result.manifest.id, icon=":material/hourglass_empty:")
    else:
        frame.link("efficiency", "How near its operators come to the peak", run=result.manifest.id, icon=":material/speed:")


def _works_for(works_for: pd.DataFrame, rank: RankResult, *, copies: bool) -> None:
    """Show the operators that the kernel works for, in a table whose cells wrap on a narrow page."""
    if works_for.empty:
        return
    headings = {c: h for c, h in _headings(works_for, rank, copies=copies).items() if c != "shapes"}
    operators = works_for["operator"].unique()
    of_one = len(operators) == 1 and bool(works_for["shapes"].str.len().all())  # then its name is needed only once
    if of_one:
        headings["operator"] = f"Works for {fmt.clean(str(operators[0]), 60)} of"
    cells = [
        tuple(
            (fmt.duration_ms(row[c]) if pd.notna(row[c]) else fmt.MISSING)
            if c.endswith("ms")
            else fmt.clean(row["shapes"] if of_one else f"{row[c]} {row['shapes']}".strip(), 100)
            for c in headings
        )
        for row in works_for.head(WORKS_FOR_SHOWN).to_dict("records")
    ]
    cards.table(list(headings.values()), cells, "What the kernel works for")
    if len(works_for) > WORKS_FOR_SHOWN:
        cards.small(f"The {WORKS_FOR_SHOWN} longest of {len(works_for)}; the CSV has all.")


def _columns_shown(works_for: pd.DataFrame) -> pd.DataFrame:
    return works_for.drop(columns=[c for c in works_for if works_for[c].isna().all()])


def _headings(works_for: pd.DataFrame, rank: RankResult, *, copies: bool) -> dict[str, str]:
    unit = words.unit_of(rank)
    shown = _columns_shown(works_for)
    return {
        c: f"{h}, {unit.removeprefix('ms ')}" if c == "kernel_ms" else h
        for c, h in (OF_A_COPY if copies else COLUMNS).items()
        if c in shown
    }


def _timeline_link(rank: RankResult, longest: TimelineSpan) -> None:
    extent = views.extent(rank.recording_id)
    low, high = longest.zoomed(TIMELINE_SPAN_RATIO, extent).relative_ms(extent.start_ns)
    frame.link(
        "timeline",
        "Show its longest launch on the timeline",
        icon=":material/view_timeline:",
        t0=f"{low:.6f}",
        t1=f"{high:.6f}",
    )

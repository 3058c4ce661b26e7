"""The Work screen: GPU time by kernel, operator, module, phase or category."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings import gpu_work as tables
from sawtooth.analysis.findings.gpu_work import GpuWork, Grouping
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables import memory
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings, treemap
from sawtooth.app.charts.base import Chart
from sawtooth.app.page import cards, controls, current_result, frame, panel
from sawtooth.app.page.parts import breakdown, first_change, work_details, work_map
from sawtooth.app.words import advice, categories
from sawtooth.app.words import run as words
from sawtooth.app.words.answer.step import answer_of

GROUPS: dict[Grouping, str] = {
    "kernel": "Kernel",
    "operator": "Operator",
    "module": "Module",
    "phase": "Phase",
    "category": "Category",
}
FINER_GROUPING: dict[Grouping, tuple[Grouping, str]] = {"operator": ("shape", "By shape"), "module": ("class", "By class")}
HEADINGS: dict[Grouping, str] = {**GROUPS, "shape": "Operator", "class": "Class of modules"}
ORDERS = {"ms": "GPU time", "host_ms": "host time"}
MOVES_FROM = 0.003  # Share of GPU time. Less transfer time does not change a shown digit and is not mentioned.
MIN_HEADLINE_SHARE = 0.3  # Share of GPU time. If the largest kernel has a smaller share, the headline names a category instead.
METHOD = (
    "GPU time between the first and the last counted step, divided by the counted steps. If operations run at the same time, each nanosecond "
    "counts once: for a tensor-core kernel first, then for another kernel, communication or a copy. The rest of an operation's duration "
    "is in the column Overlapped. In every grouping, all rows sum to the time in which the GPU is not idle. "
    "Backward work belongs to the module and the phase that autograd launched it for."
)
STATES: dict[Grouping, tuple[str, str, str, str]] = {
    "operator": (
        "The trace has no operators.",
        "CPU activity was not recorded, so it is not known which operator launched a kernel.",
        "with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:",
        "python",
    ),
    "module": (
        "Which module the GPU works for is not recorded.",
        "If Python calls are recorded, this table divides the step among the layers of the model, forward and backward. "
        "Recording them slows the host, so also make a recording without them. In your own profiler, use with_stack=True.",
        "sawtooth run --stacks train.py",
        "bash",
    ),
    "phase": (
        "The trace marks no phases.",
        "Autograd's nodes and the optimizer's annotation show which work is forward, backward or optimizer. PyTorch records them with CPU activity.",
        "with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:",
        "python",
    ),
}


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("This run has no recorded kernels.")
        current_result.what_is_missing(result)
        return
    if current_result.untrusted(result, rank):
        return
    _page(result, rank)


@st.fragment
def _page(result: RunResult, rank: RankResult) -> None:
    head = st.container(gap="small", key="work_head")
    head.empty()  # A container without any element has no height.
    with st.container(horizontal=True, vertical_alignment="bottom", key="work_controls"):
        chosen = controls.choice("Group by", GROUPS, "by")
        by = _finer_grouping(chosen)
        order = controls.choice("Largest by", ORDERS, "order") if chosen == "operator" else "ms"
        search = controls.search("name", "part of a name", 200)
        everything = breakdown.all_columns()
    numbered = advice.numbered(result) if rank is result.lead else []
    work = (current_result.lead_work(result) if rank is result.lead else None) or _work_of_other_rank(rank)
    if work.rows.empty:
        with head:
            cards.headline("There is no GPU operation in the steady window.")
            cards.empty_state(
                "There is nothing to add up.",
                "The device ran nothing between the first and the last counted step, or the trace has none of the launches.",
            )
            cards.ready()
        return
    rows = tables.grouped(work, by)
    with head:
        _head(rows, work, result, rank, by)
        about = [numbered[place] for place in rows.iloc[0]["changes"]]
        first_change.show_with(about[:1], result)
        cards.ready()
    if not work.knows(chosen):
        cards.empty_state(*STATES[chosen])
        return
    if by == "shape" and not rows["shapes"].str.len().any():
        cards.empty_state(
            "The trace has no shapes.",
            "Operators are grouped by name only, and FLOPs and MFU cannot be computed.",
            "with torch.profiler.profile(record_shapes=True) as profiler:",
            "python",
        )
    if chosen == "operator":
        rows = _with_host(rows, rank, by, order)
        rows = rows.merge(_memory_at_peak(rank), on="operator", how="left") if everything and by == "operator" else rows
    shown = breakdown.matching(rows, search, ("name", "shapes"))
    if shown.empty:
        cards.small("No name matches.")
        return
    addresses = first_change.addresses([[numbered[place] for place in about] for about in shown["changes"]], result)
    chart = _map(rank, by, work, shown, order=order, search=search or "", dark=frame.is_dark())
    cards.legend(chart.legend)
    breakdown.show_for_phone(shown, by, result.manifest.id, f"GPU time by {HEADINGS[by].lower()}, largest first.")
    row = _chosen_row(_table_and_map(chart, shown.assign(change=addresses), rank, by, everything=everything), shown, by)
    work_details.show(row, work, by, rank, result, [numbered[place] for place in row["changes"]])


def _finer_grouping(chosen: Grouping) -> Grouping:
    """Return the grouping ``chosen``, or its finer form (by shape, by class) if the viewer switches it on."""
    if chosen not in FINER_GROUPING:
        return chosen
    other, label = FINER_GROUPING[chosen]
    return other if st.toggle(label, key=f"by_{other}", bind="query-params") else chosen


@st.cache_resource(max_entries=16, show_spinner="Adding up GPU time …", hash_funcs={RankResult: current_result.key_of})
def _work_of_other_rank(rank: RankResult) -> GpuWork:
    """Return the GPU work of a rank about which no finding is. Viewers share it."""
    with current_result.opened(rank, sums=True) as view:
        return tables.gpu_work(view)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _host_times(rank: RankResult, by: Grouping) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        return tables.host_times(view, by)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _memory_at_peak(rank: RankResult) -> pd.DataFrame:
    with current_result.opened(rank) as view:
        use = memory.memory_use(view)
        operators = memory.operators_at_peak(view, use) if use is not None else pd.DataFrame(columns=["operator", "bytes"])
    return pd.DataFrame({"operator": operators["operator"], "held_mib": operators["bytes"].astype(float) / 2**20})


def _with_host(rows: pd.DataFrame, rank: RankResult, by: Grouping, order: str) -> pd.DataFrame:
    """Return the operators with the host's time.

    If ``order`` is that time, operators that launch nothing are included.
    """
    host = _host_times(rank, by)
    merged = rows.merge(host, on=tables.key_columns(by), how="outer" if order == "host_ms" else "left")
    missing = merged["ms"].isna()
    merged["name"] = merged["operator"]
    merged["changes"] = [() if absent else changes for absent, changes in zip(missing, merged["changes"], strict=True)]
    merged = merged.fillna({"ms": 0.0, "share": 0.0, "launches_per_step": 0.0, "owner": "other_compute"})
    return merged.sort_values([order, "name"], ascending=[False, True], ignore_index=True)


def _head(rows: pd.DataFrame, work: GpuWork, result: RunResult, rank: RankResult, by: Grouping) -> None:
    count = f"{fmt.many(len(rows), NOUNS[by])}. " if work.knows(by) else ""
    answer = answer_of(result, rank)
    breakdown.head(
        finding(rows, work, by),
        f"{count}{answer.works if answer is not None else ''}{_transfers_sentence(rows)}",
        ("tensor_core_time_share", "kernel_launches_per_step", "achieved_occupancy", "flops_per_step"),
        METHOD,
        "work",
    )


def _transfers_sentence(rows: pd.DataFrame) -> str:
    """Return a sentence about transfers, which the Verdict counts as waiting; "" if they hardly take time."""
    total, moved = float(rows["ms"].sum()), float(rows.loc[rows["owner"].isin(LOST_OWNERS), "ms"].sum())
    return f" Transfers take {fmt.part_ms(total, moved)} in addition." if moved > MOVES_FROM * total else ""


NOUNS: dict[Grouping, str] = {
    "kernel": "kernel", "operator": "operator", "shape": "row", "module": "module", "class": "class", "phase": "phase", "category": "row",
}  # fmt: skip


def finding(rows: pd.DataFrame, work: GpuWork, by: Grouping) -> str:
    """Return the headline about the row with the largest share of GPU time.

    If no kernel is large, the headline names a category, because the largest of many small kernels matters little.
    """
    first = rows.iloc[0]
    share, name = fmt.share(float(first["share"])), rankings.short_name(str(first["name"]).rsplit(" / ", 1)[-1], 70)
    if by == "kernel" and first["share"] < MIN_HEADLINE_SHARE:
        largest = tables.grouped(work, "category").iloc[0]
        kernels = fmt.many(int((rows["category"] == largest["name"]).sum()), "kernel")
        return f"{fmt.share(float(largest['share']))} of GPU time is {categories.in_words(str(largest['name']))}, in {kernels}"
    if by == "category":
        return f"{share} of GPU time is {categories.in_words(name)}"
    if by != "kernel" and work.knows(by):
        return f"{share} of GPU time is {name}"
    kernel = tables.grouped(work, "kernel").iloc[0]
    return f"{fmt.share(float(kernel['share']))} of GPU time is one kernel: {rankings.short_name(str(kernel['name']), 70)}"


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _map(rank: RankResult, by: Grouping, _work: GpuWork, _rows: pd.DataFrame, *, order: str, search: str, dark: bool) -> Chart:
    """Return the treemap of ``_rows``, which the other arguments determine; drawing it takes 30 ms."""
    title = f"GPU time by {HEADINGS[by].lower()}"
    return treemap.treemap(work_map.tiles(_work, by, _rows), title, words.per_step_or_window(rank), dark=dark)


def _table_and_map(chart: Chart, rows: pd.DataFrame, rank: RankResult, by: Grouping, *, everything: bool) -> str | None:
    """Show table and treemap side by side; return the key of the row that was clicked last."""
    with st.container(horizontal=True, key="work_both"):
        with st.container(key="work_table"):
            place = _table(rows, rank, by, everything=everything)
        with st.container(key="work_map"):
            tile = work_map.show(chart, by)
    row = work_map.key_of(by, rows.iloc[place].to_dict()) if place is not None else None
    before = st.session_state.get("work_clicked", (None, None))
    st.session_state["work_clicked"] = (row, tile)
    clicked = row if row != before[0] else tile if tile != before[1] else st.query_params.get(breakdown.ROW)
    return clicked or row or tile


def _chosen_row(key: str | None, rows: pd.DataFrame, by: Grouping) -> pd.Series:
    """Return the row with ``key`` and write the key into the address; by default the first row."""
    keys = [work_map.key_of(by, row) for row in rows.to_dict("records")]
    if key not in keys:
        st.query_params.pop(breakdown.ROW, None)
        return rows.iloc[0]
    if st.query_params.get(breakdown.ROW) != key:
        st.query_params[breakdown.ROW] = key
    return rows.iloc[keys.index(key)]


ALWAYS = ("short", "shapes", "bar", "ms", "share", "class_of", "change")  # Fit beside the map at 1440 pixels.


def _table(rows: pd.DataFrame, rank: RankResult, by: Grouping, *, everything: bool) -> int | None:
    number, text = panel.number_column, st.column_config.TextColumn
    per = " per step" if len(rank.counted) else ""
    columns = {
        "short": text(HEADINGS[by], width=breakdown.NAME_WIDTH),
        "shapes": text("Input shapes", width="medium"),
        "bar": st.column_config.ImageColumn(
            "GPU time", width=breakdown.BAR_WIDTH, help="In the colour of the category that takes most of its time, as above"
        ),
        "ms": number(words.unit_of(rank), rows["ms"]),
        "share": st.column_config.NumberColumn("Share", format=panel.PERCENT, width=62),
        "class_of": text("Category" if by == "kernel" else "Mostly", width=114),
        "change": first_change.column(),
        "tensor_core_share": panel.share_bar("On tensor cores"),
        "beside_ms": number(
            "Overlapped, ms", rows["beside_ms"], help_="Time that is counted for other work which runs at the same time"
        ),
        "roof_share": st.column_config.NumberColumn(
            "Roofline share", format=panel.PERCENT, help="Least time of its FLOPs and bytes at the GPU's peaks ÷ its time"
        ),
        "above_ms": number("Above the roof, ms", rows["above_ms"]),
        "launches_per_step": number(f"Launches{per}", rows["launches_per_step"]),
        "mean_us": number("Mean launch, µs", rows["mean_us"]),
        "tflops": number("TFLOP/s", rows["tflops"]),
        "gb_per_s": number("Copied, GB/s", rows["gb_per_s"]),
        "host_ms": number("Host, ms", rows.get("host_ms"), help_="Without the operators inside it, as profiled"),
        "held_mib": number("At the memory peak, MiB", rows.get("held_mib")),
        "calls_per_step": number(f"Calls{per}", rows.get("calls_per_step")),
        "name": text("Full name", width="large"),
    }
    drawn = rows.assign(
        short=breakdown.short_names(rows, by),
        class_of=[categories.in_words(name) if isinstance(name, str) else None for name in rows["category"]],
        bar=breakdown.bars(rows),
    )
    hidden = {"class_of"} if by == "category" else {"shapes"} if by == "operator" else set()
    host = {"host_ms"} if "host_ms" in rows and rows["host_ms"].is_monotonic_decreasing else set()
    order = [c for c in columns if c not in hidden and c in drawn and (everything or c in ALWAYS or c in host)]
    return breakdown.table(drawn, columns, order, f"work-by-{by}", f"GPU time by {HEADINGS[by].lower()}, largest first.")


main()

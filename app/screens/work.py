"""The first view of Work, Kernels: busy time by kernel, category, operator and shape."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import kernels as tables
from sawtooth.app import format as fmt
from sawtooth.app.charts import rankings
from sawtooth.app.page import cards, controls, current_result, frame, panel
from sawtooth.app.page.parts import breakdown, category_bar, first_change, kernel_drawer
from sawtooth.app.words import categories
from sawtooth.app.words import run as words

GROUPS: dict[tables.KernelGroup, str] = {
    "name": "Kernel",
    "category": "Category",
    "tensor_cores": "Tensor cores",
    "operator": "Operator",
    "shape": "Operator and shape",
}
WHAT: dict[tables.KernelGroup, str] = {
    "name": "kernel",
    "category": "category",
    "tensor_cores": "class",
    "operator": "operator",
    "shape": "operator and shape",
}
STANDS_OUT = 0.3  # share of GPU work: if the largest kernel has a smaller share, the headline names a category
METHOD = (
    "Durations of single operations inside the steady window are added up and divided by the counted steps. Operations that run at the "
    "same time on two streams count twice here; the ledger on the Verdict counts each nanosecond once."
)


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("This run has no recorded kernels.")
        current_result.what_is_missing(result)
        return
    head = st.container(gap="small")
    category_bar.show(table(rank, "category"), dark=frame.dark())
    with st.container(horizontal=True, vertical_alignment="bottom"):
        group = controls.choice("Group by", GROUPS, "kernels_by")
        search = controls.search("kernel", "part of a name")
        everything = breakdown.all_columns()
    rows = table(rank, group)
    with head:
        if rows.empty:
            cards.headline("There is no GPU operation in the steady window.")
            cards.empty_state(
                "There is nothing to add up.",
                "The device ran nothing between the first and the last counted step, or none of it has its launch in the trace.",
            )
            return
        _head(rows, rank, group)
        about = kernel_drawer.changes(str(rows.iloc[0]["name"]), rank, result)[:1] if group == "name" else []
        first_change.show_with(about, result)
    shown = breakdown.matching(rows, search, ("name", "shapes"))
    if shown.empty:
        cards.small("No name matches.")
        return
    chosen = _table(shown, rank, group, everything=everything)
    if group == "name":
        kernel_drawer.show(shown.iloc[chosen or 0], rank, result)
    else:
        frame.link("efficiency", "How near operators come to the peak", run=result.manifest.id, icon=":material/speed:")


@st.cache_data(max_entries=64, show_spinner="Adding up kernels …", hash_funcs={RankResult: current_result.key_of})
def table(rank: RankResult, group: tables.KernelGroup) -> pd.DataFrame:
    """Return the rows of the table; see ``sawtooth.analysis.tables.kernels.kernels``."""
    with current_result.opened(rank, sums=True) as view:
        return tables.kernels(view, group)


def _head(rows: pd.DataFrame, rank: RankResult, group: tables.KernelGroup) -> None:
    breakdown.head(
        _finding(rows, group),
        f"{fmt.many(len(rows), 'kernel' if group == 'name' else 'row')}, largest first; times are {words.unit_of(rank)}, as profiled.",
        ("tensor_core_time_share", "kernel_launches_per_step", "achieved_occupancy"),
        METHOD,
        "kernels",
    )


def _finding(rows: pd.DataFrame, group: tables.KernelGroup) -> str:
    """Return the row with the largest share.

    For kernels, it is a category if no kernel is large, because the largest of many small kernels says little.
    """
    first = rows.iloc[0]
    name = rankings.short(str(first["name"]), 70)
    if group == "name" and first["share"] < STANDS_OUT:
        of_category = rows.groupby("category", sort=False)["share"].agg(["sum", "size"]).nlargest(1, "sum")
        category, (share, kernels) = str(of_category.index[0]), of_category.iloc[0]
        return f"{fmt.share(share)} of GPU work is {categories.named(category)}, in {fmt.many(int(kernels), 'kernel')}; the longest kernel takes {fmt.share(first['share'])}"
    if group == "category":
        return f"{fmt.share(first['share'])} of GPU work is {categories.named(name)}"
    return f"{fmt.share(first['share'])} of GPU work is one {WHAT[group]}: {name}"


ALWAYS = ("short", "shapes", "ms", "share", "tensor_cores", "category", "launches_per_step", "median_us")


def _table(rows: pd.DataFrame, rank: RankResult, group: tables.KernelGroup, *, everything: bool) -> int | None:
    number, text = panel.number_column, st.column_config.TextColumn
    columns = {  # ranking columns come first: a narrow page then shows complete numbers and the start of the name
        "ms": number(words.unit_of(rank), rows.get("ms")),
        "share": panel.share_bar("GPU share"),
        "short": text(GROUPS[group], width=breakdown.NAME_WIDTH),
        "shapes": text("Input shapes", width="medium"),
        "tensor_cores": text(
            "Tensor cores", help="yes: the name encodes the instruction; likely: the library uses it for this dtype"
        ),
        "category": text("Category"),
        "launches_per_step": number("Launches per step" if len(rank.counted) else "Launches", rows.get("launches_per_step")),
        "median_us": number("Median, µs", rows.get("median_us")),
        "mean_us": number("Mean, µs", rows.get("mean_us")),
        "max_us": number("Longest, µs", rows.get("max_us")),
        "blocks_per_sm": number("Blocks per SM", rows.get("blocks_per_sm")),
        "occupancy": st.column_config.NumberColumn("Est. occupancy", format="percent"),
        "names": st.column_config.NumberColumn("Kernels", format="%d"),
        "name": text("Full name", width="large"),
    }
    names = rows["name"].astype(str).tolist()
    short = (
        [categories.named(name) for name in names]
        if group == "category"
        else rankings.distinct_names(names, breakdown.NAME_SHOWN)
    )
    rows = rows.assign(short=short, **({"category": rows["category"].map(categories.named)} if "category" in rows else {}))
    hidden = {group} - {"name"} | ({"shapes"} if group != "shape" else set()) | ({"name"} if group != "name" else set())
    order = [c for c in columns if c not in hidden and (everything or c in ALWAYS)]
    alt = f"GPU work by {GROUPS[group].lower()}, largest first."
    return breakdown.table(rows, columns, order, f"kernels-by-{group}", alt)


main()

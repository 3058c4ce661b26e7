"""The Operators screen: operators by time on the GPU and on the host, by name and by shape."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables import kernels as tables
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, controls, current_result, panel
from sawtooth.app.page.parts import breakdown, first_change, operator_parts
from sawtooth.app.words import run as words

GROUPS: dict[tables.OperatorGroup, str] = {"name": "Operator", "shape": "Operator and shape"}
ORDERS = {"gpu_self_ms": "GPU time", "host_self_ms": "host time"}
METHOD = (
    "Operators of the counted steps. GPU time of an operator's own is the sum of what it launched itself; with children, of what the operators "
    "inside it launched too. Host time of its own leaves the operators inside it out. Times of the host are as profiled, and the profiler "
    "slows the host."
)


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("No operator of this run launched GPU work.")
        current_result.what_is_missing(result)
        return
    head = st.container(gap="small")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        group = controls.choice("Group by", GROUPS, "operators_by")
        order = controls.choice("Largest by", ORDERS, "order")
        search = controls.search("operator", "part of a name or shape")
        everything = breakdown.all_columns()
    rows = table(rank, group)
    with head:
        if rows.empty:
            cards.headline("The trace has no operators.")
            cards.empty_state(
                "Only GPU operations are recorded.",
                "CPU activity was not recorded, so it is not known which operator launched a kernel.",
                "with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:",
                "python",
            )
            return
        rows = rows.sort_values(order, ascending=False, ignore_index=True)
        rows["host_self_share"] = rows["host_self_ms"] / (rows["host_self_ms"].sum() or 1.0)
        _head(rows, rank, order)
        first_change.show(result)
    if group == "shape" and not rows["shapes"].str.len().any():
        cards.empty_state(
            "The trace has no shapes.",
            "Operators are grouped by name only, and FLOPs and MFU cannot be computed.",
            "with torch.profiler.profile(record_shapes=True) as profiler:",
            "python",
        )
    shown = breakdown.matching(rows, search, ("name", "shapes"))
    if shown.empty:
        cards.small("No name or shape matches.")
        return
    lines = operator_parts.lines(rank)
    shown = shown.assign(line=[operator_parts.first_line(lines, str(name)) for name in shown["name"]])
    chosen = _table(shown, rank, group, order, everything=everything)
    row = shown.iloc[chosen or 0]
    operator_parts.next_step(row, rank, result)
    operator_parts.where_called(lines, str(row["name"]), words.unit_of(rank))
    _kernels_of(str(row["name"]), rank)


@st.cache_data(max_entries=64, show_spinner="Adding up operators …", hash_funcs={RankResult: current_result.key_of})
def table(rank: RankResult, group: tables.OperatorGroup) -> pd.DataFrame:
    """Return the rows of the table; see ``sawtooth.analysis.tables.kernels.operators``."""
    with current_result.opened(rank) as view:
        return tables.operators(view, group)


def _head(rows: pd.DataFrame, rank: RankResult, order: str) -> None:
    first = rows.iloc[0]
    where = "on the GPU" if order == "gpu_self_ms" else "on the host"
    breakdown.head(
        f"{fmt.clean(str(first['name']), 80)} takes most time {where}: {fmt.number(first[order])} {words.unit_of(rank)}",
        f"{fmt.count(len(rows))} rows; times are {words.unit_of(rank)}, of the operator itself unless the heading says otherwise.",
        ("flops_per_step", "tensor_core_time_share"),
        METHOD,
        "operators",
    )


ALWAYS = (
    "name", "shapes", "dtypes", "line", "gpu_self_ms", "gpu_self_share", "tensor_core_share", "host_self_ms", "host_self_share",
    "calls_per_step", "tflops",
)  # fmt: skip


def _table(rows: pd.DataFrame, rank: RankResult, group: tables.OperatorGroup, by: str, *, everything: bool) -> int | None:
    text, number = st.column_config.TextColumn, panel.number_column
    per = " per step" if len(rank.counted) else ""
    columns = {
        "name": text("Operator", width=breakdown.NAME_WIDTH),
        "shapes": text("Input shapes", width="medium"),
        "dtypes": text("Types", width="small"),
        "gpu_self_ms": number("GPU, ms", rows.get("gpu_self_ms"), help_="Launched by the operator itself"),
        "gpu_self_share": panel.share_bar("GPU share"),
        "line": text(
            "Called from",
            width=250,
            help="Your own line, where Python calls are recorded; of backward, the line of its forward",
        ),
        "tensor_core_share": panel.share_bar("On tensor cores"),
        "host_self_ms": number("Host, ms", rows.get("host_self_ms"), help_="Without the operators inside it"),
        "host_self_share": panel.share_bar("Host share"),
        "calls_per_step": number(f"Calls{per}", rows.get("calls_per_step")),
        "tflops": number("TFLOP/s", rows.get("tflops")),
        "gflop_per_step": number(f"GFLOP{per}", rows.get("gflop_per_step")),
        "kernels_per_step": number(f"Kernels{per}", rows.get("kernels_per_step")),
        "gpu_total_ms": number("GPU with children, ms", rows.get("gpu_total_ms")),
        "host_total_ms": number("Host with children, ms", rows.get("host_total_ms")),
    }
    shapes = ("shapes", "dtypes")
    order = [
        c for c in columns if c not in (*shapes, "line") or ((group == "shape" or c == "line") and rows[c].str.len().any())
    ]
    other = "host_self_share" if by == "gpu_self_ms" else "gpu_self_share"
    order = [c for c in order if everything or (c in ALWAYS and c != other)]
    return breakdown.table(rows, columns, order, f"operators-by-{group}", f"{GROUPS[group]} by time.")


def _kernels_of(name: str, rank: RankResult) -> None:
    with current_result.opened(rank) as view:
        kernels = tables.operator_kernels(view, name)
    if kernels.empty:
        cards.small(f"{fmt.clean(name, 60)} launched no GPU work itself.")
        return
    breakdown.kernels(kernels, rank, "operators", name)


main()

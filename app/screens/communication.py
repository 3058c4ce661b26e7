"""The Communication view of Work: collectives, their bandwidth, and their exposed time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.ranks.communication import collective_table, collectives_of
from sawtooth.analysis.run.job import Communication, GroupUse
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.units import significant
from sawtooth.app import format as fmt
from sawtooth.app.charts.cause_bars import LostBar
from sawtooth.app.page import cards, current_result, frame, panel
from sawtooth.app.page.parts import first_change, rank_panels
from sawtooth.app.theme import colour_of
from sawtooth.app.words import run as words

MAX_BARS = 8  # Kinds of collectives with a bar; the table has all of them.
COLUMNS = {
    "name": "Collective", "dtype": "Type", "group": "Group", "group_size": "Ranks", "size": "Size", "calls_per_step": "Calls per step",
    "transfer_ms": "Transfer, ms (median call)", "ms_per_step": "ms per step", "exposed_ms_per_step": "Exposed, ms per step",
    "bus_gb_s": "Bus bandwidth, GB/s", "algorithm_gb_s": "Algorithm bandwidth, GB/s",
}  # fmt: skip
METHOD = (
    "Exposed time is the time of a collective in which the GPU computes nothing. Times are means over the ranks and include the waits for the last "
    "rank. The bus bandwidth is the rate at which one GPU's link transfers data. It is computed from the shortest duration over the ranks, so it excludes waits. "
    "If several collectives run at the same time, that time counts for each of them."
)
MIN_MENTIONED_SHARE = 0.01  # Share of the communication time. A smaller exposed time or wait is not mentioned.
ONE_RANK_NOTE = "Only one rank's trace is known. Durations include the waits for other ranks, so bandwidths are lower bounds."
PARALLEL = {
    "dp": "data parallel",
    "tp": "tensor parallel",
    "pp": "pipeline",
    "ep": "expert parallel",
    "cp": "context parallel",
}
# the CSV has the other fields of the row
GROUPS = {
    "parallelism": "Group",
    "kinds": "Collectives per step",
    "transfer_ms": "Transfers per step",
    "exposed_ms": "Not overlapped",
    "bus_gb_s": "Bus bandwidth",
}
_HOSTS_SUFFIX = {None: "", True: ", one host", False: ", several hosts"}
LARGE_BYTES = 10_000_000  # Latency, not the link, determines the time of smaller messages.
SLOW_LINK = 0.5  # Share of the link's bandwidth. Large messages of a well-tuned ring reach more.


def main() -> None:
    """Show the page."""
    result = current_result.run_result()
    rank = current_result.chosen_rank(result)
    if rank is None:
        cards.headline("How the GPUs communicate is not known.")
        current_result.what_is_missing(result)
        return
    several = result.communication
    traffic = several if several is not None and (len(several.rows) or several.groups) else _collectives_of_one_rank(rank)
    rows = collective_table(traffic, len(rank.counted)).sort_values("exposed_ms_per_step", ascending=False, ignore_index=True)
    if rows.empty and not traffic.groups:
        if (world := rank.trace.world_size or 1) == 1:
            rank_panels.one_gpu("This run trains on one GPU, so it has no collectives.", "communication", result, rank)
        else:
            cards.headline(
                "No collective ran in the counted steps.",
                f"This is one of {world} ranks, but its trace has no communication kernels in these steps.",
            )
            first_change.show(result)
        return
    if len(rows):
        cards.headline(*finding(rows, rank))
        first_change.show(result)
        _kinds(rows, rank)
        if several is not traffic:
            cards.small(ONE_RANK_NOTE)
    _groups(traffic)
    if traffic.unmatched:
        cards.small(
            f"Not included, because they have no counterpart on another rank: {fmt.many(traffic.unmatched, 'communication kernel')}."
        )
    if several is not None:
        frame.link("ranks", "Which rank the others wait for", icon=":material/group:")


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def _collectives_of_one_rank(rank: RankResult) -> Communication:
    return collectives_of(frame.library(), rank)


def finding(rows: pd.DataFrame, rank: RankResult) -> tuple[str, str]:
    """Return the headline about exposed communication, and a line about the time of all collectives."""
    exposed, total_ms = float(rows["exposed_ms_per_step"].sum()), float(rows["ms_per_step"].sum())
    of_step = f" of a step of {fmt.duration_ms(rank.best.mean_ms)}, as profiled" if rank.best.mean_ms else ""
    waits = float(rows["wait_ms_per_step"].sum())
    for_others = (
        f"; {fmt.duration_ms(waits)} of it are waits for the last rank" if waits >= MIN_MENTIONED_SHARE * total_ms else ""
    )
    under = f"Collectives take {fmt.duration_ms(total_ms)}{of_step}{for_others}."
    if total_ms <= 0 or exposed < MIN_MENTIONED_SHARE * total_ms:
        return "Computation hides nearly all communication.", under
    first = rows.iloc[0]
    share = fmt.share(float(first["exposed_ms_per_step"]) / exposed)
    largest_part = "" if len(rows) == 1 else f", {share} of it in {_name_and_size(first)}"
    return f"{fmt.duration_ms(exposed)} {words.per_step_or_window(rank)} of communication is exposed{largest_part}.", under


def _name_and_size(row: pd.Series) -> str:
    size = f" of {fmt.bytes_(row['bytes'])}" if pd.notna(row["bytes"]) else ""
    return f"{fmt.clean(str(row['name']), 40)}{size}"


def _kinds(rows: pd.DataFrame, rank: RankResult) -> None:
    """Show the collectives sorted by exposed time, and a table with all their numbers."""
    colour = colour_of("exposed_comm", "comm_transfer")
    shown = rows.head(MAX_BARS)
    longest = max(float(shown["exposed_ms_per_step"].max()), 1e-9)
    bars = [
        LostBar(f"{float(ms) / longest:.2%}" if ms > 0 else "", colour.on(frame.is_dark()), colour.texture)
        for ms in shown["exposed_ms_per_step"]
    ]
    cells = [
        (
            _name_and_size(row),
            fmt.duration_ms(float(row["exposed_ms_per_step"])),
            fmt.duration_ms(float(row["ms_per_step"])),
            f"{row['calls_per_step']:.3g}",
            f"{row['bus_gb_s']:.0f}\u00a0GB/s on the bus" if pd.notna(row["bus_gb_s"]) else "not known",
        )
        for _, row in shown.iterrows()
    ]
    unit = words.per_step_or_window(rank)
    cards.show_ranked_table(
        ("Collective", f"Exposed {unit}", f"In all {unit}", f"Calls {unit}", "Bus bandwidth"),
        cells,
        bars,
        "Collectives",
        ends_in_number=True,
    )
    table = rows.assign(size=[None if pd.isna(size) else fmt.bytes_(size) for size in rows["bytes"]])
    with st.container(horizontal=True, gap="small"):
        panel.explain((), METHOD, "collectives")
        with st.popover("Table", type="tertiary", icon=":material/table_rows:", key="collectives-rows"):
            panel.table(table, {c: h for c, h in COLUMNS.items() if table[c].notna().any()}, "collectives")


def _groups(communication: Communication) -> None:
    """Show what the job's process groups do, and how fast."""
    if not communication.groups:
        return
    cards.title(_finding(communication.groups[0]))
    table = pd.DataFrame([_group_row(use) for use in communication.groups])
    known_columns = [column for column in GROUPS if table[column].notna().any()]
    cells = [
        tuple(_cell(column, row[column]) + _link_suffix(column, row) for column in known_columns)
        for row in table.to_dict("records")
    ]
    cards.table([GROUPS[column] for column in known_columns], cells, "Process groups")
    with st.container(horizontal=True, gap="small"):
        panel.csv_button(table, "groups")
        panel.explain((), METHOD_OF_GROUPS, "groups")


METHOD_OF_GROUPS = (
    "Times and bandwidths are of the transfers alone, after the last rank has joined, so they exclude waiting. The bus bandwidth is the rate at which one "
    "GPU's link transfers data. Compare it with the link's bandwidth; reductions inside a switch may exceed that. Traces do not name the link. The one "
    "shown here is usual in servers with this GPU."
)


def _cell(column: str, value: object) -> str:
    if value is None or pd.isna(value):
        return ""
    if column.endswith("_ms"):
        return fmt.duration_ms(float(str(value)))
    return f"{float(str(value)):.0f}\u00a0GB/s" if column == "bus_gb_s" else str(value)


def _link_suffix(column: str, row: Mapping[Hashable, Any]) -> str:
    """Return the link's bandwidth as a suffix to the measured bandwidth."""
    return f" of {row['link']}" if column == "bus_gb_s" and row["link"] else ""


def _finding(use: GroupUse) -> str:
    what = PARALLEL[use.parallelism].capitalize() if use.parallelism is not None else f"In a group of {use.group_size} ranks,"
    sentence = f"{what} transfers take {fmt.duration_ms(use.transfer_ms)} of a step without the waits, {fmt.duration_ms(use.exposed_ms)} of it not overlapped"
    large = (use.largest_bytes or 0) >= LARGE_BYTES
    if large and use.bus_gb_s is not None and use.link_gb_s is not None and use.bus_gb_s < SLOW_LINK * use.link_gb_s:
        sentence += f", at {fmt.share(use.bus_gb_s / use.link_gb_s)} of its link"
    return sentence


def _group_row(use: GroupUse) -> dict[str, object]:
    sizes = None
    if use.smallest_bytes is not None and use.largest_bytes is not None:
        ends = dict.fromkeys((fmt.bytes_(use.smallest_bytes), fmt.bytes_(use.largest_bytes)))
        sizes = " to ".join(ends)
    return {
        "parallelism": f"{f'{PARALLEL[use.parallelism]}: ' if use.parallelism else ''}{fmt.many(use.groups, 'group')} of {use.group_size} ranks{_HOSTS_SUFFIX[use.within_host]}",
        "within_host": use.within_host,
        "kinds": f"{significant(use.calls_per_step)} × {', '.join(use.kinds)}{f', {sizes}' if sizes else ''}",
        "calls": use.calls_per_step,
        "mb": None if use.bytes_per_step is None else use.bytes_per_step / 1e6,
        "sizes": sizes,
        "transfer_ms": use.transfer_ms,
        "exposed_ms": use.exposed_ms,
        "algorithm_gb_s": use.algorithm_gb_s,
        "bus_gb_s": use.bus_gb_s,
        "link": None if use.link is None else f"{use.link_gb_s:g} ({use.link})",
    }


main()

"""Several ranks: who computes, who waits, and which rank the others wait for."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from analysis.rank_waits import collective_table, side_by_side
from analysis.run_result import Communication, RunResult
from app import cards, cause_words, current, frame, panel
from app import format as fmt
from app.charts import ranks as charts

WAITS = {
    "label": "Rank",
    "wait_ms": "Waiting in collectives, ms per step",
    "late_ms": "Others wait for it, ms per step",
    "last_share": "Collectives it comes last to",
    "overlap_share": "Communication beside compute",
}
COLLECTIVES = {
    "name": "Collective",
    "group": "Group",
    "group_size": "Ranks",
    "bytes": "Bytes",
    "calls_per_step": "Calls per step",
    "transfer_ms": "Transfer, ms (median call)",
    "mean_wait_ms": "Mean wait, ms",
    "longest_wait_ms": "Longest wait, ms",
    "wait_ms_per_step": "Waiting, ms per step",
    "bus_gb_s": "Bus bandwidth, GB/s",
    "algorithm_gb_s": "Algorithm bandwidth, GB/s",
}


def main() -> None:
    """Show the page."""
    result = current.run_result()
    if result.lead is None:
        cards.headline("How the ranks worked together is not known.")
        current.what_is_missing(result)
        return
    found = result.communication
    if found is None:
        cards.headline("This run holds one rank: nothing says how it waited for others.")
        cards.empty_state(
            "The traces of the other ranks are missing.",
            "Each process of a distributed job writes its own trace. Ingest them together, and they become one run.",
            "sawtooth ingest rank*.trace.json.gz",
        )
        return
    cards.headline(_finding(result, found))
    share = result.metrics["exposed_comm_share"]
    if share.value is not None:
        cards.small(f"{fmt.share(share.value)} of the slowest rank's step is communication that no compute overlaps.")
    for note in found.notes:
        cards.small(note)
    rows = side_by_side(result.ranks)
    panel.show(charts.side_by_side(rows, charts.title(rows), dark=frame.dark()), "ranks")
    if len(found.rows):
        _waits(rows, found)
        _collectives(found, len(result.lead.counted))


def _finding(result: RunResult, found: Communication) -> str:
    late = found.straggler
    if late is None:
        if len(found.rows):
            return "No rank stands out: they come to their collectives together."
        return f"{len(result.ranks)} devices side by side; their collectives cannot be matched."
    name = charts.labels_of(side_by_side(result.ranks))[late.position]
    loses = ""
    if late.owner is not None and late.excess_ms is not None:
        loses = (
            f" It loses {fmt.duration_ms(late.excess_ms)} more than they do to {cause_words.loses_to(late.owner, late.cause)}."
        )
    return f"The others wait {fmt.duration_ms(late.late_ms)} of each step for {name}.{loses}"


def _waits(rows: pd.DataFrame, found: Communication) -> None:
    table = pd.DataFrame([asdict(rank) for rank in found.ranks]).assign(label=charts.labels_of(rows))
    most = table.loc[table["wait_ms"].idxmax()]
    cards.title(f"{most['label']} waits most: {fmt.duration_ms(float(most['wait_ms']))} of each step in collectives")
    panel.table(table, WAITS, "waits")
    cards.small(
        "A collective ends on all ranks when the last one has come: its shortest duration over the ranks is the transfer, what a rank spends "
        "beyond it is waiting, whether compute overlaps it or not."
    )


def _collectives(found: Communication, steps: int) -> None:
    table = collective_table(found, steps)
    first = table.iloc[0]
    cards.title(
        f"{fmt.clean(str(first['name']), 40)} waits most: {fmt.duration_ms(float(first['wait_ms_per_step']))} a step, mean of the ranks"
    )
    panel.table(table, {c: h for c, h in COLLECTIVES.items() if table[c].notna().any()}, "collectives")
    if found.unmatched:
        cards.small(f"{fmt.count(found.unmatched)} communication kernels have no counterpart on another rank and are left out.")


main()

"""The lines of the user's code that call an operator."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.recorded.source_lines import without_stale_lines
from sawtooth.analysis.knowledge.frames import readable_frame
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.tables.called_from import called_from
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, current_result

LINES_SHOWN = 8  # Lines per operator. It is called from many places, but most time is in a few.


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def lines(rank: RankResult) -> pd.DataFrame:
    """Return the rows of ``sawtooth.analysis.tables.called_from.called_from`` with readable lines.

    Rows with the same operator and the same readable line are added up.
    """
    with current_result.opened(rank) as view:
        rows = called_from(view)
        rows["line"] = list(map(readable_frame, without_stale_lines(view.recording, rows["line"].tolist())))
    return rows.groupby(["operator", "line"], as_index=False, sort=False).sum()


def show(rank: RankResult, name: str, unit: str) -> None:
    """Show the user's lines that call an operator, the line with most GPU time first.

    If no lines are recorded, say how to record them. ``unit`` is the unit of the times.
    """
    all_lines = lines(rank)
    lines_of_operator = all_lines[all_lines["operator"] == name]
    if all_lines.empty:
        cards.small("The line of your code that calls it is not recorded. To record it: sawtooth run --stacks")
        return
    if lines_of_operator.empty:
        return
    cards.title(
        f"Called from {fmt.clean(str(lines_of_operator['line'].iloc[0]), 80)}" + (" most" if len(lines_of_operator) > 1 else "")
    )
    if len(lines_of_operator) == 1:
        return
    total_ms = float(lines_of_operator["gpu_ms"].sum())
    cells = [
        (
            fmt.clean(row["line"], 80),
            fmt.number(row["gpu_ms"]),
            fmt.share(row["gpu_ms"] / total_ms) if total_ms else "",
            fmt.count(row["calls"]),
        )
        for row in lines_of_operator.head(LINES_SHOWN).to_dict("records")
    ]
    headers = ("Your line", f"GPU, {unit}", "Share", "Calls in the trace")
    cards.table(headers, cells, "Lines that call the operator", figures=True)
    if len(lines_of_operator) > LINES_SHOWN:
        cards.small(f"{len(lines_of_operator) - LINES_SHOWN} more lines call it.")

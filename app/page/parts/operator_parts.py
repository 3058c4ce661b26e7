"""The lines of the user's code that call an operator, and what to do about the operator."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.findings_by_kernel import about_operator
from sawtooth.analysis.findings.recorded.source_lines import as_known, spoken
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.tables.called_from import called_from
from sawtooth.app import format as fmt
from sawtooth.app.page import cards, current_result, frame
from sawtooth.app.page.parts import first_change, kernel_drawer

LINES_SHOWN = 8  # lines per operator: it is called from many places, but most time is in a few


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={RankResult: current_result.key_of})
def lines(rank: RankResult) -> pd.DataFrame:
    """Return ``sawtooth.analysis.tables.called_from.called_from`` with readable lines.

    Rows whose lines read the same are added up.
    """
    with current_result.opened(rank) as view:
        rows = called_from(view)
        rows["line"] = list(map(spoken, as_known(view.recording, rows["line"].tolist())))
    return rows.groupby(["operator", "line"], as_index=False, sort=False).sum()


def first_line(known: pd.DataFrame, name: str) -> str:
    """Return the line that calls operator ``name`` most, and the number of other lines.

    The text is empty if no line is known. ``known`` is the result of ``lines``.
    """
    own = known.loc[known["operator"] == name, "line"]
    if own.empty:
        return ""
    others = f", {len(own) - 1} other{'s' if len(own) > 2 else ''}" if len(own) > 1 else ""
    return f"{fmt.clean(str(own.iloc[0]), 60)}{others}"


def where_called(known: pd.DataFrame, name: str, unit: str) -> None:
    """Show the user's lines that call an operator, most GPU time first.

    If no lines are recorded, say how to record them. ``unit`` is the unit of the times.
    """
    own = known[known["operator"] == name]
    if known.empty:
        cards.small("Which line of your code calls it is not recorded: sawtooth run --stacks records it.")
        return
    if own.empty:
        return
    cards.title(f"Called from {fmt.clean(str(own['line'].iloc[0]), 80)}" + (" most" if len(own) > 1 else ""))
    if len(own) == 1:
        return
    whole = float(own["gpu_ms"].sum())
    cells = [
        (
            fmt.clean(row["line"], 80),
            fmt.number(row["gpu_ms"]),
            fmt.share(row["gpu_ms"] / whole) if whole else "",
            fmt.count(row["calls"]),
        )
        for row in own.head(LINES_SHOWN).to_dict("records")
    ]
    headers = ("Your line", f"GPU, {unit}", "Share", "Calls in the trace")
    cards.table(headers, cells, "Lines that call the operator", figures=True)
    if len(own) > LINES_SHOWN:
        cards.small(f"{len(own) - LINES_SHOWN} more lines call it.")


def next_step(row: pd.Series, rank: RankResult, result: RunResult) -> None:
    """Link to the changes about the operator's kernels, else show their time and where to look."""
    name = str(row["name"])
    cards.title(f"What to do about {fmt.clean(name, 60)}")
    changes = first_change.about(about_operator, name, rank, result)
    first_change.link_changes(changes, result)
    if changes:
        return
    if not row["gpu_self_ms"]:
        cards.text("It launches nothing itself: its time is the host's, and costs where the GPU waits for the host.")
        frame.link("idle", "What the GPU waits for", run=result.manifest.id, icon=":material/hourglass_empty:")
        return
    cards.text(unnamed(float(row["gpu_self_ms"]), rank.metrics["step_time_ms"].value))
    frame.link("efficiency", "How near operators come to the peak", run=result.manifest.id, icon=":material/speed:")


def unnamed(ms: float, step_ms: float | None) -> str:
    """Return the largest possible gain of an operator whose kernels have no finding.

    The kernels take ``ms`` milliseconds per profiled step.
    """
    share = f", {fmt.share(ms / step_ms)} of a profiled step" if step_ms else ""
    if step_ms and ms < kernel_drawer.LEAST_NAMED_SHARE * step_ms:
        return f"Nothing to gain here: what it launches takes {fmt.duration_ms(ms)}{share}."
    return f"No finding is about what it launches: {fmt.duration_ms(ms)}{share}."

"""Several ranks: who computes, who waits, and which rank the others wait for."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analysis import communication
from analysis.results import RunResult
from app import cards, current, frame, panel
from app import format as fmt
from app.charts import ranks as charts


def main() -> None:
    """Show the page."""
    result = current.run_result()
    if result.lead is None:
        cards.headline("How the ranks worked together is not known.")
        current.no_gpu_work() if result.manifest.traces else current.no_trace()
        return
    if len(result.ranks) < 2:
        cards.headline("This run holds one rank: nothing says how it waited for others.")
        cards.empty_state(
            "The traces of the other ranks are missing.",
            "Each process of a distributed job writes its own trace. Ingest them together, and they become one run.",
            "sawtooth ingest rank*.trace.json.gz",
        )
        return
    rows = communication.side_by_side(result.ranks)
    waits = _waits(result)
    late = communication.straggler(waits, result.lead.best.mean_ms)
    if late is not None:
        cards.headline(f"The others wait for rank {late[0]}: it costs them up to {fmt.duration_ms(late[1])} a step.")
    elif len(waits):
        cards.headline("No rank stands out: they come to their collectives together.")
    else:
        cards.headline(f"{len(result.ranks)} devices side by side; their collectives cannot be matched.")
        cards.small("Matching takes the same collectives in the same order on every rank.")
    share = result.metrics["exposed_comm_share"]
    if share.value is not None:
        cards.small(f"{fmt.share(share.value)} of the slowest rank's step is communication that no compute overlaps.")
    panel.show(charts.side_by_side(rows, charts.title(rows), dark=frame.dark()), "ranks")
    if len(waits):
        cards.title("Time in collectives, and how much of it is waiting for the last rank")
        columns = {
            "rank": "Rank",
            "collectives": "Collectives per step",
            "communication_ms": "In collectives, ms per step",
            "wait_ms": "Waiting for others, ms per step",
        }
        panel.table(waits, columns, "collectives")
        cards.small("The rank that waits least comes last. Durations are of the kernels, overlapped by compute or not.")


def _waits(result: RunResult) -> pd.DataFrame:
    key = (*((r.recording_id, r.device) for r in result.ranks),)
    return _read(key, result)


@st.cache_data(max_entries=32, show_spinner="Matching collectives …")
def _read(key: tuple[tuple[str, int], ...], _result: RunResult) -> pd.DataFrame:
    return communication.waits(_result.ranks, frame.library())


main()

"""Parts of the Ranks screen below its verdict: the map of ranks and steps, waits, groups, pipeline."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from sawtooth.analysis.ranks.heatmap import Level, pooled, rank_steps, waits_between
from sawtooth.analysis.run.job import Communication, GroupUse, Pipeline
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.units import significant
from sawtooth.app import format as fmt
from sawtooth.app.charts import ranks as charts
from sawtooth.app.page import cards, controls, current_result, frame, panel

LEVELS: dict[Level, str] = {"rank": "by rank", "host": "by host", "stage": "by pipeline stage"}
PARALLEL = {
    "dp": "data parallel",
    "tp": "tensor parallel",
    "pp": "pipeline",
    "ep": "expert parallel",
    "cp": "context parallel",
    None: "unknown",
}
GROUPS = {
    "parallelism": "Group",
    "kinds": "Collectives per step",
    "transfer_ms": "Transfers a step",
    "exposed_ms": "Not overlapped",
    "bus_gb_s": "Bus bandwidth",
}  # the CSV has the other fields of the row
_WITHIN = {None: "", True: ", one host", False: ", several hosts"}
LARGE_BYTES = 10_000_000  # latency, not the link, determines the time of smaller messages
SLOW_LINK = 0.5  # share of the link's bandwidth: large messages of a well-tuned ring reach more


def heat(result: RunResult, communication: Communication) -> None:
    """Show each rank's own time and waiting time in each step; a click opens the rank on the timeline."""
    table = rank_steps(result.ranks, communication, _stages(result, communication.schedule))
    levels = {level: label for level, label in LEVELS.items() if level == "rank" or table[level].nunique() > 1}
    with st.container(horizontal=True, gap="small"):
        measure = controls.choice("Measure", charts.MEASURES, "heat", label_shown=False)
        level = controls.choice("Rows", levels, "rows", label_shown=False) if len(levels) > 1 else "rank"
    rows = pooled(table, level)
    picked = panel.show(charts.heat(rows, measure, dark=frame.dark()), "heat-map", select="points", name="ranks-and-steps")
    cards.small("Click a square to open its rank on the timeline.")
    if picked and picked.points:
        rank = int(picked.points[0]["customdata"][0])
        position = position_of(rank, result, communication)
        if position is None:
            cards.small(f"The trace of rank {rank} is not open here. Reduce the job again with --open {rank}.")
            return
        current_result.choose_rank(position)
        frame.switch("timeline", run=result.manifest.id)


def position_of(rank: int, result: RunResult, communication: Communication) -> int | None:
    """Return the position of a rank of the map among the run's ranks; None if this rank has no file here."""
    numbers = [each.rank for each in result.ranks]
    if None not in numbers:
        return numbers.index(rank) if rank in numbers else None
    return rank if communication.job_ranks is None else None  # no trace has a rank number, so the map's numbers are positions


def _stages(result: RunResult, pipeline: Pipeline | None) -> list[int | None]:
    if pipeline is None or (result.communication is not None and result.communication.job_ranks is not None):
        return []
    of_rank = {position: number for number, stage in enumerate(pipeline.stages) for position in stage}
    return [of_rank.get(position) for position in range(len(result.ranks))]


def who_waits(result: RunResult, communication: Communication) -> None:
    """Show which host or rank waits for which.

    Shows nothing for two ranks, because the map of ranks and steps shows it already. Also shows nothing if only representatives
    of the job have traces here, because they do not tell it.
    """
    if communication.job_ranks is not None:
        return
    level, rows = waits_between(result.ranks, communication)
    if rows.empty:
        return
    if level == "host" or len({*rows["waiter"], *rows["late"]}) > 2:
        panel.show(charts.who_waits(rows, level, dark=frame.dark()), "who-waits", name="who-waits-for-whom")


def groups(communication: Communication) -> None:
    """Show what the job's process groups do, and how fast."""
    if not communication.groups:
        return
    cards.title(_groups_finding(communication.groups[0]))
    table = pd.DataFrame([_group_row(use) for use in communication.groups])
    known = [column for column in GROUPS if table[column].notna().any()]
    cells = [tuple(_cell(column, row[column]) + _of_link(column, row) for column in known) for row in table.to_dict("records")]
    cards.table([GROUPS[column] for column in known], cells, "Process groups")
    panel.csv_button(table, "groups")
    cards.small(
        "Times and bandwidths are of the transfers alone, once the last rank has joined: waiting is not part of them. The bus bandwidth is what one GPU's "
        "link carries, to be compared with the link's; reductions inside a switch may exceed it. Which link was used is not in the traces: it is the one "
        "that servers with this GPU have."
    )


def _cell(column: str, value: object) -> str:
    if value is None or pd.isna(value):
        return ""
    if column.endswith("_ms"):
        return fmt.duration_ms(float(str(value)))
    return f"{float(str(value)):.0f}\u00a0GB/s" if column == "bus_gb_s" else str(value)


def _of_link(column: str, row: Mapping[Hashable, Any]) -> str:
    """Return the link's bandwidth as a suffix to the measured bandwidth."""
    return f" of {row['link']}" if column == "bus_gb_s" and row["link"] else ""


def _groups_finding(use: GroupUse) -> str:
    what = PARALLEL[use.parallelism] if use.parallelism is not None else "Other"
    sentence = f"{what.capitalize()} transfers take {fmt.duration_ms(use.transfer_ms)} of a step, {fmt.duration_ms(use.exposed_ms)} of it not overlapped"
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
        "parallelism": f"{PARALLEL[use.parallelism]}: {fmt.many(use.groups, 'group')} of {use.group_size} ranks{_WITHIN[use.within_host]}",
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


def pipeline(result: RunResult, communication: Communication) -> None:
    """Show how long the stages of a pipeline work and wait, and why."""
    schedule = communication.schedule
    if schedule is None:
        return
    here = result.ranks if communication.job_ranks is None else ()
    labels = [_stage_label(here, number, stage) for number, stage in enumerate(schedule.stages)]
    panel.show_bars(charts.schedule(schedule, labels, dark=frame.dark()), "pipeline")
    chunks = f", {schedule.chunks} chunks of the model on each stage" if schedule.chunks > 1 else ""
    order = f" ({schedule.schedule}{chunks})" if schedule.schedule else ""
    cards.small(
        f"Of a step of {fmt.duration_ms(schedule.step_ms)} with {schedule.microbatches} microbatches{order}, {fmt.duration_ms(schedule.fill_ms)} go to filling "
        f"and draining the pipeline, {fmt.duration_ms(schedule.imbalance_ms)} to stages of unequal work, and "
        f"{fmt.duration_ms(schedule.rest_ms)} to launches, transfers and late ranks."
    )


def _stage_label(ranks: Sequence[RankResult], number: int, stage: tuple[int, ...]) -> str:
    """Return the name of a stage.

    ``ranks`` is empty if most ranks of the job have no file here, because positions then do not match ranks.
    """
    if len(stage) > 1:
        return f"stage {number}, {len(stage)} ranks"
    rank = ranks[stage[0]].rank if ranks else None
    return f"stage {number}, rank {rank}" if rank is not None else f"stage {number}"

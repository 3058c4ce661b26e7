"""Parts of the Ranks screen below its verdict: the map of ranks and steps, waits, groups, pipeline."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from sawtooth.analysis.ranks.heatmap import Level, pooled_heat, rank_steps, waits_between
from sawtooth.analysis.ranks.stragglers.sentences import straggler_name
from sawtooth.analysis.run.job import Communication, Pipeline
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.charts import ranks as charts
from sawtooth.app.page import cards, controls, current_result, frame, panel
from sawtooth.app.page.parts import first_change
from sawtooth.app.runs.distinct_names import distinct_names
from sawtooth.app.runs.listing import listed
from sawtooth.app.words.answer.step import answer_of

RECORD_JOB = "sawtooth run torchrun --nproc-per-node 2 train.py"
PROFILER_STEP = "ProfilerStep#"  # Before the number of each step that torch.profiler marks.
MAX_LABELS = 24  # Ranks or steps: the labels of more would overlap.
JOBS_LINKED = 3  # Runs with several ranks that a page without ranks links to.
SKEW_SHARE = 0.03  # Share of a profiled step. A smaller lead in lateness is not mentioned.
LEVELS: dict[Level, str] = {"rank": "by rank", "host": "by host", "stage": "by pipeline stage"}


def heat(result: RunResult, communication: Communication) -> None:
    """Show each rank's own time and waiting time in each step; a click opens the rank on the timeline."""
    table = rank_steps(result.ranks, communication, _stages(result, communication.schedule))
    levels = {level: label for level, label in LEVELS.items() if level == "rank" or table[level].nunique() > 1}
    with st.container(horizontal=True, gap="small"):
        measure = controls.choice("Measure", charts.MEASURES, "heat", label_shown=False)
        level = controls.choice("Rows", levels, "rows", label_shown=False) if len(levels) > 1 else "rank"
    rows = pooled_heat(table, level)
    chart = charts.heat(rows, measure, dark=frame.is_dark())
    late = {f"rank {rank}" for straggler in communication.stragglers for rank in straggler.ranks}
    _label(chart.figure, rows, late if level == "rank" and late_in_the_profile(result, communication) is None else set())
    picked = panel.show(chart, "heat-map", select="points", name="ranks-and-steps")
    cards.small("Click a square to open its rank on the timeline.")
    if picked and picked.points:
        rank = int(picked.points[0]["customdata"][0])
        position = position_of(rank, result, communication)
        if position is None:
            cards.small(f"The trace of rank {rank} is not open here. Reduce the job again with --open {rank}.")
            return
        current_result.choose_rank(position)
        frame.switch("timeline", run=result.manifest.id)


def _label(figure: go.Figure, rows: pd.DataFrame, late: Collection[str]) -> None:
    """Mark the late ranks at the left of a map, and write what all names of steps begin with only once."""
    labels, steps = (list(dict.fromkeys(rows[column])) for column in ("label", "step"))
    if late and len(labels) <= MAX_LABELS:
        marked = [f"<b>late: {label}</b>" if label in late else label for label in labels]
        figure.update_yaxes(tickvals=labels, ticktext=marked)
    names = [step.rpartition("#" if step.startswith(PROFILER_STEP) else " ") for step in steps]
    if len(steps) <= MAX_LABELS and len(common := {name for name, _, _ in names}) == 1 and (name := common.pop()):
        title = "step" if name == PROFILER_STEP.rstrip("#") else fmt.plain(name)
        figure.update_xaxes(tickvals=steps, ticktext=[number for _, _, number in names], title={"text": title})


def one_gpu(sentence: str, view: str, result: RunResult, rank: RankResult) -> None:
    """Say why ``view`` is empty, what this run's GPU waits for, and how to record a job."""
    cards.headline(sentence)
    first_change.show(result)
    of_run, of_jobs = panel.two_columns()
    answer = answer_of(result, rank)
    with of_run:
        cards.title("What this GPU waits for")
        if answer is not None:
            cards.text(" ".join(filter(None, (answer.works, answer.waits))))
        frame.link("idle", "Every wait, and what causes it", run=result.manifest.id, icon=":material/hourglass_empty:")
    with of_jobs:
        _how_to_record_a_job(view)


def _how_to_record_a_job(view: str) -> None:
    cards.title("How to record several ranks")
    cards.text("Start the job under sawtooth run. The traces of all ranks become one run.")
    st.code(RECORD_JOB, language=None, wrap_lines=True)
    manifests = frame.data_folder().manifests()
    jobs = [manifest for manifest in listed(manifests) if len(manifest.traces) > 1][:JOBS_LINKED]
    names = distinct_names(manifests, 40)
    if jobs:
        cards.small("Runs with several ranks:")
        with st.container(horizontal=True, gap="medium"):
            for manifest in jobs:
                frame.link(view, fmt.markdown(names[manifest.id], None), run=manifest.id, icon=":material/group:")


def late_in_the_profile(result: RunResult, communication: Communication) -> str | None:
    """Return that the profile delays another rank than the run does; None if both delay the same rank."""
    if communication.job_ranks is not None or not communication.stragglers:
        return None
    late = communication.stragglers[0]
    first = max(communication.ranks, key=lambda waits: waits.late_ms)
    late_ms = max((waits.late_ms for waits in communication.ranks if waits.position in late.positions), default=0.0)
    if not first.late_ms - late_ms >= SKEW_SHARE * (result.ranks[first.position].best.mean_ms or 0.0) > 0:
        return None
    name = f"rank {first.rank}" if first.rank is not None else f"device {first.device}"
    return (
        f"In the profiled steps the others wait for {name}, because the profiler slows its host most. "
        f"Without the profiler they wait for {straggler_name(late, result.ranks)}."
    )


def on_basis(finding: str, *, unprofiled: bool) -> str:
    """Return a sentence about ranks with its basis, for a job whose profile differs from the run."""
    return f"{'Without the profiler' if unprofiled else 'In the profiled steps'} {finding[0].lower()}{finding[1:]}"


def position_of(rank: int, result: RunResult, communication: Communication) -> int | None:
    """Return the position of a rank of the map among the run's ranks; None if this rank has no file here."""
    numbers = [rank_result.rank for rank_result in result.ranks]
    if None not in numbers:
        return numbers.index(rank) if rank in numbers else None
    return rank if communication.job_ranks is None else None  # A trace has no rank number, so the map's numbers are positions.


def _stages(result: RunResult, pipeline: Pipeline | None) -> list[int | None]:
    if pipeline is None or (result.communication is not None and result.communication.job_ranks is not None):
        return []
    of_rank = {position: number for number, stage in enumerate(pipeline.stages) for position in stage}
    return [of_rank.get(position) for position in range(len(result.ranks))]


def who_waits(result: RunResult, communication: Communication) -> None:
    """Show which host or rank waits for which other one.

    Shows nothing for two ranks, because the map of ranks and steps already shows which one waits. Also shows nothing if only
    some representative ranks of the job have traces here, because the others' waits are then unknown.
    """
    if communication.job_ranks is not None:
        return
    level, rows = waits_between(result.ranks, communication)
    if rows.empty:
        return
    if level == "host" or len({*rows["waiter"], *rows["late"]}) > 2:
        panel.show(charts.who_waits(rows, level, dark=frame.is_dark()), "who-waits", name="who-waits-for-whom")


def pipeline(result: RunResult, communication: Communication) -> None:
    """Show how long the stages of a pipeline work and wait, and why."""
    schedule = communication.schedule
    if schedule is None:
        return
    ranks = result.ranks if communication.job_ranks is None else ()
    labels = [_stage_label(ranks, number, stage) for number, stage in enumerate(schedule.stages)]
    panel.show_bars(charts.schedule(schedule, labels, dark=frame.is_dark()), "pipeline")
    chunks = f", {schedule.chunks} chunks of the model on each stage" if schedule.chunks > 1 else ""
    order = f" ({schedule.schedule}{chunks})" if schedule.schedule else ""
    cards.small(
        f"A step of {fmt.duration_ms(schedule.step_ms)} has {schedule.microbatches} microbatches{order}. Filling and draining the pipeline takes "
        f"{fmt.duration_ms(schedule.fill_ms)} of it, unequal work of the stages {fmt.duration_ms(schedule.imbalance_ms)}, and "
        f"launches, transfers and late ranks {fmt.duration_ms(schedule.rest_ms)}."
    )


def _stage_label(ranks: Sequence[RankResult], number: int, stage: tuple[int, ...]) -> str:
    """Return the name of a stage.

    ``ranks`` is empty if most ranks of the job have no file here, because the positions in ``stage`` then do not index ranks.
    """
    if len(stage) > 1:
        return f"stage {number}, {len(stage)} ranks"
    rank = ranks[stage[0]].rank if ranks else None
    return f"stage {number}, rank {rank}" if rank is not None else f"stage {number}"

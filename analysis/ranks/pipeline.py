"""A pipeline's schedule from its sends and receives: stages, microbatches and waits.

A step has m microbatches, and each stage works ``w`` ms for all of them. No schedule ends before one microbatch has passed all
stages and the slowest stage has computed the other m - 1 microbatches. So the shortest step is the sum of w / m over the stages,
plus (m - 1) / m of the largest w. With p equal stages, each stage waits (p - 1) / (m + p - 1) of the shortest step.

In an interleaved pipeline each stage has c chunks of the model, and the last stage sends to the first. Each microbatch arrives at
each stage c times, and each time the stage does 1/c of its work. A middle stage then sends 2 c times per microbatch (c times
forward and c times back). The first and the last stage send 2 c - 1 times. With only two stages, the sends do not show c. Then c
comes from the annotations of PyTorch's schedules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sawtooth.analysis.run.job import SEND_RECEIVE, Pipeline, passes_on

INTERLEAVED = "interleaved"
# Largest distance of the computed number of chunks from an integer. It is not exact, because a few sends, such as those of a loss,
# do not belong to microbatches.
MAX_CHUNK_ERROR = 0.2
# Number of microbatches beyond the number of stages. With fewer, all schedules begin in the same way, so none is recognised.
MIN_EXTRA_MICROBATCHES = 2


def pipeline_of(
    rows: pd.DataFrame,
    offsets_ns: Sequence[int],
    step_ms: float | None,
    peers: Sequence[Sequence[int]],
    work_ms: Sequence[float],
) -> Pipeline | None:
    """Return the schedule of the job's pipeline; None without a pipeline or without its sends.

    ``rows`` are the matched communication kernels. ``step_ms`` is the job's step. The lists have one entry per rank position:
    ``offsets_ns`` is the rank's clock minus the job's, ``peers`` the ranks of its stage, ``work_ms`` its GPU work per step.
    """
    passed = rows[rows["counted"] & (rows["name"] == SEND_RECEIVE)]
    stages = stages_of(rows, offsets_ns, peers) if passes_on(passed) else []
    if not stages or step_ms is None:
        return None
    named = passed[["chunks", "microbatches"]].dropna().astype(int).max() if "chunks" in passed else pd.Series(dtype=float)
    chunks = chunks_of(passed, stages) if named.isna().all() else int(named["chunks"])
    of_first = passed[passed["position"].isin(stages[0])]
    if chunks is None:
        return None
    microbatches = round(_sends(of_first) / (2 * chunks - 1)) if named.isna().all() else int(named["microbatches"])
    if microbatches < 1:
        return None
    stage_ms = tuple(float(np.median([work_ms[p] for p in stage])) for stage in stages)
    count, turns = len(stages), microbatches * chunks
    equal_ms = float(np.mean(stage_ms)) * (turns + count - 1) / turns
    least_ms = shortest_ms(stage_ms, turns)
    return Pipeline(
        stages=tuple(stages),
        microbatches=microbatches,
        schedule=INTERLEAVED if chunks > 1 else _schedule(of_first, count, microbatches),
        chunks=chunks,
        stage_ms=stage_ms,
        step_ms=step_ms,
        bubble_share=max(1 - float(np.mean(stage_ms)) / step_ms, 0.0),
        ideal_share=(count - 1) / (turns + count - 1),
        fill_ms=equal_ms - float(np.mean(stage_ms)),
        imbalance_ms=least_ms - equal_ms,
        rest_ms=max(step_ms - least_ms, 0.0),
    )


def stages_of(rows: pd.DataFrame, offsets_ns: Sequence[int], peers: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the positions of each stage's ranks; stages are ordered by their first send.

    The result is empty if fewer than two stages send. ``offsets_ns`` has each rank's clock minus the job's, and ``peers`` each rank's
    stage, both by position.
    """
    sent = rows[rows["counted"] & (rows["name"] == SEND_RECEIVE) & (rows["sends"] > 0)]
    if sent.empty:
        return []
    offsets = np.array(offsets_ns, np.int64)
    sent = sent.assign(step=sent["step"].astype(object), at_ns=sent["start_ns"] - offsets[sent["position"].to_numpy(np.int64)])
    first = sent.groupby(["position", "step"])["at_ns"].min()
    began = (first - first.groupby("step").transform("min")).groupby("position").median()
    stages = {tuple(peers[int(position)]) for position in began.index}
    return sorted(stages, key=lambda stage: min(began.get(p, np.inf) for p in stage)) if len(stages) > 1 else []


def chunks_of(passed: pd.DataFrame, stages: Sequence[Sequence[int]]) -> int | None:
    """Return the number of model chunks per stage; None if the sends do not show it.

    If the last of two stages sends before its backward pass, it has several chunks, but their number is unknown.
    """
    if len(stages) == 2:
        last = passed[passed["position"].isin(stages[-1]) & (passed["sends"] > 0)]
        return None if last["forward"].eq(True).any() else 1
    ends, between = [*stages[0], *stages[-1]], [position for stage in stages[1:-1] for position in stage]
    ratio = _sends(passed[passed["position"].isin(between)]) / max(_sends(passed[passed["position"].isin(ends)]), 1)
    chunks = ratio / (2 * (ratio - 1)) if ratio > 1 else np.inf
    return round(chunks) if chunks < np.inf and abs(chunks - max(round(chunks), 1)) <= MAX_CHUNK_ERROR else None


def _sends(rows: pd.DataFrame) -> float:
    """Return how often a rank sends per step; the median over ranks and steps."""
    return float(rows.groupby(["position", "step"])["sends"].sum().median()) if len(rows) else 0.0


def shortest_ms(stage_ms: Sequence[float], microbatches: int) -> float:
    """Return the shortest possible step in ms for stages that work ``stage_ms`` each.

    A microbatch counts once per chunk of a stage.
    """
    return (sum(stage_ms) + (microbatches - 1) * max(stage_ms)) / microbatches


def _schedule(rows: pd.DataFrame, stages: int, microbatches: int) -> str | None:
    """Return the schedule of the first stage.

    GPipe sends all microbatches before it receives a gradient; 1F1B sends as many as there are stages.
    """
    if microbatches < stages + MIN_EXTRA_MICROBATCHES:
        return None
    ahead = []
    for _, rows_of_step in rows.sort_values("start_ns").groupby(["position", "step"]):
        received = np.flatnonzero(rows_of_step["receives"].to_numpy() > 0)
        ahead.append(int(rows_of_step["sends"].to_numpy()[: received[0]].sum()) if len(received) else microbatches)
    median_ahead = float(np.median(ahead))
    return "GPipe" if median_ahead >= microbatches else "1F1B" if median_ahead <= stages else None

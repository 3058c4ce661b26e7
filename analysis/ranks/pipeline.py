"""A pipeline's schedule, from its sends and receives: its stages in order, its microbatches, and what its stages wait by design and beyond.

With stages that take ``w`` ms for the microbatches of a step, no schedule of m microbatches ends before each stage has had one and the slowest all
of its own: the sum of w / m, and (m - 1) / m of the largest w. Equal stages wait (p - 1) / (m + p - 1) of that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sawtooth.analysis.run.model import SEND_RECEIVE, RankResult, RankWaits
from sawtooth.analysis.run.parallel import Pipeline

AHEAD = 2  # microbatches more than stages: of fewer, all schedules begin alike


def pipeline_of(
    rows: pd.DataFrame,
    waits: Sequence[RankWaits],
    ranks: Sequence[RankResult],
    peers: Sequence[Sequence[int]],
    work_ms: Sequence[float],
) -> Pipeline | None:
    """Return the schedule of the job's pipeline, None where no ranks send to each other or the traces do not say what is sent.

    ``rows`` are the matched communication kernels, ``peers`` by position the ranks of its stage, ``work_ms`` what each rank's GPU works in a step.
    """
    sent = rows[rows["counted"] & (rows["name"] == SEND_RECEIVE) & (rows["sends"] > 0)]
    steps_ms = [rank.best.ms for rank in ranks if rank.best.ms is not None]
    if sent.empty or not steps_ms:
        return None
    offsets = np.array([each.clock_offset_ns or 0 for each in waits], np.int64)
    sent = sent.assign(at_ns=sent["start_ns"] - offsets[sent["position"].to_numpy(np.int64)])
    first = sent.groupby(["position", "step"])["at_ns"].min()
    began = (first - first.groupby("step").transform("min")).groupby("position").median()
    stages = sorted(
        {tuple(peers[int(position)]) for position in began.index}, key=lambda stage: min(began.get(p, np.inf) for p in stage)
    )
    if len(stages) < 2:
        return None
    of_first = rows[rows["counted"] & (rows["name"] == SEND_RECEIVE) & rows["position"].isin(stages[0])]
    micro = int(of_first.groupby(["position", "step"])["sends"].sum().median())
    if micro < 1:
        return None
    stage_ms = tuple(float(np.median([work_ms[p] for p in stage])) for stage in stages)
    count, step_ms = len(stages), max(steps_ms)
    equal_ms = float(np.mean(stage_ms)) * (micro + count - 1) / micro
    least_ms = shortest_ms(stage_ms, micro)
    return Pipeline(
        stages=tuple(stages),
        microbatches=micro,
        schedule=_schedule(of_first, count, micro),
        stage_ms=stage_ms,
        step_ms=step_ms,
        bubble_share=max(1 - float(np.mean(stage_ms)) / step_ms, 0.0),
        ideal_share=(count - 1) / (micro + count - 1),
        fill_ms=equal_ms - float(np.mean(stage_ms)),
        imbalance_ms=least_ms - equal_ms,
        rest_ms=max(step_ms - least_ms, 0.0),
    )


def shortest_ms(stage_ms: Sequence[float], microbatches: int) -> float:
    """Return the shortest step, ms, in which stages that work ``stage_ms`` each can pass ``microbatches`` to one another."""
    return (sum(stage_ms) + (microbatches - 1) * max(stage_ms)) / microbatches


def _schedule(rows: pd.DataFrame, stages: int, micro: int) -> str | None:
    """Return how the first stage orders its microbatches: GPipe sends all before it receives a gradient, 1F1B as many as there are stages."""
    if micro < stages + AHEAD:
        return None
    ahead = []
    for _, mine in rows.sort_values("start_ns").groupby(["position", "step"]):
        received = np.flatnonzero(mine["receives"].to_numpy() > 0)
        ahead.append(int(mine["sends"].to_numpy()[: received[0]].sum()) if len(received) else micro)
    usual = float(np.median(ahead))
    return "GPipe" if usual >= micro else "1F1B" if usual <= stages else None

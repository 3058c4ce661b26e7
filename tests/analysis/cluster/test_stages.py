"""Tests of pipeline stages: which stage or rank makes a step longer than equal work would.

The steps of these jobs are computed by hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.cluster.reduction import reduce_job
from sawtooth.analysis.cluster.stages import UnequalWorkCost, unequal_work_cost
from sawtooth.analysis.cluster.storage import list_sources, storage_at
from sawtooth.analysis.cluster.summary_file import gather
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.analysis.ranks.matching import with_own_times
from sawtooth.analysis.ranks.peers import peers
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.run.job import SEND_RECEIVE
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.ingest.schema import DataFolder
from tests.support.pipelined import pipelined

STAGES, WIDE, MICRO, STEPS, MS = 3, 4, 4, 6, 1_000_000


def matched(work_ms: Callable[[int, int, int, int], float]) -> pd.DataFrame:
    """Return the matched calls of a forward-only job with STAGES stages of WIDE ranks each.

    A rank's position is WIDE · stage + place. ``work_ms`` is a function of stage, place, step and microbatch. Ranks
    receive, work and send. Then each stage reduces its gradients, the first and last ranks of a pipeline reduce the
    gradients of their shared weights, and all ranks reduce the norm. Transfers take no time.
    """
    now: dict[int, float] = defaultdict(float)
    rows = []

    def join(name: str, step: int, members: list[int]) -> None:
        start = {position: now[position] for position in members}
        collective = rows[-1]["collective"] + 1 if rows else 0
        for position in members:
            now[position] = max(start.values())
            rows.append(
                {
                    "collective": collective,
                    "position": position,
                    "name": name,
                    "step": str(step),
                    "start_ns": int(start[position]),
                }
                | {"dur_ns": int(now[position] - start[position])}
            )

    for step in range(STEPS):
        for micro in range(MICRO):
            for stage in range(STAGES):
                for place in range(WIDE):
                    position = WIDE * stage + place
                    if stage:
                        join(SEND_RECEIVE, step, [position - WIDE, position])
                    now[position] += MS * work_ms(stage, place, step, micro)
        for stage in range(STAGES):
            join("reducescatter", step, [WIDE * stage + place for place in range(WIDE)])
        for place in range(WIDE):
            join("allreduce", step, [place, WIDE * (STAGES - 1) + place])
        join("allreduce", step, list(range(WIDE * STAGES)))
    calls = with_own_times(pd.DataFrame(rows).assign(counted=True))
    shortest = calls.groupby("collective")["dur_ns"].transform("min")
    return calls.assign(shortest_ns=shortest, wait_ns=calls["dur_ns"] - shortest)


def judged(work_ms: Callable[[int, int, int, int], float]) -> UnequalWorkCost:
    rows = matched(work_ms)
    ranks = WIDE * STAGES
    result = unequal_work_cost(RecordedJob.from_rows(rows, ranks), peers(rows, ranks), list(range(ranks)), [None] * ranks)
    assert result is not None
    return result


def test_ranks_of_a_stage_are_peers_for_every_link_between_stages() -> None:
    peers_of = peers(matched(lambda *_: 1.0), WIDE * STAGES)
    assert [sorted(item) for item in peers_of] == [
        list(range(WIDE * stage, WIDE * stage + WIDE)) for stage in range(STAGES) for _ in range(WIDE)
    ]


def test_equal_work_costs_nothing() -> None:
    result = judged(lambda *_: 1.0)
    assert (result.slowdown, result.stragglers) == (pytest.approx(1.0), ())


def test_a_last_stage_with_more_work_is_named_with_the_gain_of_even_stages() -> None:
    # There are four microbatches. Stages of 1, 1 and 4 ms per microbatch take 1 + 1 + 4 · 4 = 18 ms. Three stages of 2 ms take
    # 2 + 2 + 4 · 2 = 12 ms.
    result = judged(lambda stage, *_: 4.0 if stage == 2 else 1.0)
    assert result.slowdown == pytest.approx(18 / 12)
    (late,) = result.stragglers
    assert (late.kind, late.ranks, late.reason) == ("stage", (8, 9, 10, 11), None)
    assert late.own_ms == pytest.approx(4 * 3.0)
    assert late.gain_ms == pytest.approx(6.0)


def test_one_slow_rank_is_not_reported_as_a_slow_stage() -> None:
    """Rank 5 takes 3 ms instead of 1 ms.

    A step takes 1 + 4 · 3 + 1 = 14 ms, and 6 ms without the slow rank.
    With equal work each microbatch takes (11 + 3) / 12 ms on each stage.
    """
    result = judged(lambda stage, place, *_: 3.0 if (stage, place) == (1, 1) else 1.0)
    assert result.slowdown == pytest.approx(14 / (6 * 14 / 12))
    (late,) = result.stragglers
    assert (late.kind, late.ranks) == ("rank", (5,))
    assert late.own_ms == pytest.approx(4 * 2.0)
    assert late.gain_ms == pytest.approx(8.0)


@pytest.mark.parametrize("seed", range(5))
def test_work_that_differs_by_chance_blames_no_rank(seed: int) -> None:
    lengths = np.random.default_rng(seed).gamma(2.0, 0.5, (STAGES, WIDE, STEPS, MICRO))
    result = judged(lambda *at: float(lengths[0][at[1:]]))  # A microbatch takes equally long on every stage.
    assert result.slowdown > 1.2
    assert result.stragglers == ()


def test_a_pipeline_without_common_collectives_is_not_judged(tmp_path: Path) -> None:
    # Summaries contain the partner of each send, but the wait for the next step is not recorded.
    for rank, trace in enumerate(pipelined([300, 300, 900], 5)):
        (source,) = list_sources([str(trace.write(tmp_path / f"{rank}.json"))])
        assert summarise(source, str(tmp_path / "summaries")).ranks == 1
    data = DataFolder(tmp_path / "data").create()
    tables = JobTables(data.summaries_file(gather(storage_at(str(tmp_path / "summaries")), data)))
    calls = tables.calls()
    assert set(zip(calls["position"], calls["peer"], strict=True)) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    overview = reduce_job(tables)
    assert overview.unmatched == 0
    assert (overview.slowdown, overview.stragglers) == (None, ())
    assert overview.heat.groupby("rank")["stage"].unique().map(list).to_dict() == {0: [0], 1: [1], 2: [2]}

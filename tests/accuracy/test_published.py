"""Tests of the published jobs' format, on a small job of the same form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.accuracy.published import reduced

WIDE, MICRO, STEPS = 2, 4, 5
GAP_S = 0.001  # Between two operations that follow each other.


def written(path: Path, forward_s: Callable[[int, int], float]) -> Path:
    """Write the operations of two forward-only stages of WIDE ranks.

    ``forward_s`` is a function of stage and rank. The rank numbers are even: 0, 2, 4, …
    """
    rows = []

    def add(stage: int, dp: int, step: int, kind: str, start: float, end: float, number: int = 0) -> None:
        names = {"dp_rank": dp, "stage": stage, "rank": 2 * (WIDE * stage + dp), "step": 10 * step, "optype": kind}
        rows.append(names | {"start_ts": start, "duration": end - start, "seq_id": number})

    for step in range(STEPS):
        ends = {}
        for dp in range(WIDE):
            now = [0.0, 0.0]
            for micro in range(MICRO):
                first_s, second_s = forward_s(0, dp), forward_s(1, dp)
                sent = max(now[0] + first_s, now[1])
                add(0, dp, step, "forward-compute", now[0], now[0] + first_s, micro)
                add(0, dp, step, "forward-send", now[0] + first_s, sent, micro)
                add(1, dp, step, "forward-recv", now[1], sent, micro)
                add(1, dp, step, "backward-compute", sent, sent + second_s, micro)
                now = [sent, sent + second_s]
            add(0, dp, step, "backward-compute", now[0], now[0])
            ends |= {(stage, dp): now[stage] for stage in range(2)}
        slowest = [max(ends[stage, dp] for dp in range(WIDE)) for stage in range(2)]
        for (stage, dp), end in ends.items():
            ready = GAP_S + (slowest[1] if stage else end)
            add(stage, dp, step, "layernorm-grads-all-reduce", ready, ready)
            add(stage, dp, step, "grads-reduce-scatter", ready + GAP_S, slowest[stage] + 3 * GAP_S)
            add(stage, dp, step, "optimizer-clip-main-grad", slowest[stage] + 4 * GAP_S, max(slowest) + 5 * GAP_S)
    pd.DataFrame(rows).to_parquet(path)
    return path


def test_the_stage_with_more_work_is_named(tmp_path: Path) -> None:
    """Stages of 0.1 and 0.3 s take 0.1 + 4 · 0.3 = 1.3 s per step. With 0.2 s each, they take 1.0 s."""
    overview = reduced(written(tmp_path / "job.parquet", lambda stage, _: 0.3 if stage else 0.1), tmp_path)
    assert overview.slowdown == pytest.approx(1.3 / 1.0, rel=0.01)
    assert [(late.kind, late.ranks) for late in overview.stragglers] == [("stage", (2, 3))]
    assert overview.notes[0] == "A step takes 1.30 times as long as with equal work on all ranks of this pipeline."


def test_the_slow_rank_is_named(tmp_path: Path) -> None:
    """Rank 1 takes 0.3 s instead of 0.1: 4 · 0.3 + 0.1 = 1.3 s per step, and 0.5 s without."""
    overview = reduced(written(tmp_path / "job.parquet", lambda stage, dp: 0.3 if (stage, dp) == (0, 1) else 0.1), tmp_path)
    assert [(late.kind, late.ranks) for late in overview.stragglers] == [("rank", (1,))]
    assert overview.stragglers[0].gain_ms == pytest.approx(800, rel=0.01)


def test_no_rank_is_blamed_if_all_are_equal(tmp_path: Path) -> None:
    overview = reduced(written(tmp_path / "job.parquet", lambda *_: 0.1), tmp_path)
    assert overview.slowdown == pytest.approx(1.0, abs=0.005)
    assert (overview.stragglers, overview.notes) == ((), ())

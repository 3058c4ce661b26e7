"""Lost time of a hand-made trace by cause, with the evidence for each part."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.derive.lost.evidence import describe
from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import segments
from sawtooth.analysis.derive.lost.schedule import LostIntervals, Pieces, lost_time, schedule_of, totals
from sawtooth.analysis.derive.unprofiled.problem import build_problem, host_view
from sawtooth.analysis.intervals import union
from tests.support.replay_traces import codes_of
from tests.support.tiny_trace import TinyTrace


def analyse(
    trace: TinyTrace, window: tuple[float, float] | None = None, transfer_ns: dict[int, int] | None = None
) -> tuple[LostIntervals, Pieces, pd.DataFrame]:
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    schedule = schedule_of(events, view, problem, None)
    codes = codes_of(trace)
    bounds = window or (events.gpu.start.min() / 1000, events.gpu.end.max() / 1000)
    inside = union([round(bounds[0] * 1000)], [round(bounds[1] * 1000)])
    on_device = events.gpu.device == 0
    lost = lost_time(segments(events.gpu.start[on_device], events.gpu.end[on_device], codes[on_device], inside), inside)
    found = explain(events, schedule, 0, lost, codes, transfer_ns)
    steps = trace.step_table()
    described = describe(
        events=events, facts=facts, view=view, schedule=schedule, lost=lost, pieces=found,
        step_starts=steps.host_start, step_ends=steps.host_end,
    )  # fmt: skip
    return lost, found, described


def causes(trace: TinyTrace, window: tuple[float, float] | None = None) -> dict[str, int]:
    lost, found, table = analyse(trace, window)
    sums = {cause: ns // 1000 for (owner, cause), ns in totals(found, lost).items() if owner == "idle"}
    assert sum((found.end - found.start).tolist()) == sum((lost.end - lost.start).tolist())
    assert table["evidence"].notna().all()
    return sums

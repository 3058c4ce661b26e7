"""Lost time of a hand-made trace by cause, with the evidence for each part."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.derive.lost.evidence import describe
from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import segments
from sawtooth.analysis.derive.lost.schedule import Lost, Pieces, lost_time, schedule_of
from sawtooth.analysis.derive.unprofiled.problem import build_problem, host_view
from sawtooth.analysis.intervals import union
from tests.support.replay_traces import codes_of
from tests.support.tiny_trace import TinyTrace


def analyse(
    trace: TinyTrace, window: tuple[float, float] | None = None, transfer_ns: dict[int, int] | None = None
) -> tuple[Lost, Pieces, pd.DataFrame]:
    events, facts = trace.events(), trace.facts()
    view = host_view(events, facts)
    problem = build_problem(events, trace.step_table(), facts, view)
    schedule = schedule_of(events, view, problem, None)
    codes = codes_of(trace)
    bounds = window or (events.gpu.start.min() / 1000, events.gpu.end.max() / 1000)
    inside = union([round(bounds[0] * 1000)], [round(bounds[1] * 1000)])
    mine = events.gpu.device == 0
    lost = lost_time(segments(events.gpu.start[mine], events.gpu.end[mine], codes[mine], inside), inside)
    found = explain(events, schedule, 0, lost, codes, transfer_ns)
    steps = trace.step_table()
    described = describe(
        events=events, facts=facts, view=view, schedule=schedule, lost=lost, pieces=found,
        step_starts=steps.host_start, step_ends=steps.host_end,
    )  # fmt: skip
    return lost, found, described

"""Tests of phases: host time, device time and idle time of each, per counted step."""

from __future__ import annotations

import pytest

from sawtooth.analysis.derive.lost.idle import explain
from sawtooth.analysis.derive.lost.ledger import segments
from sawtooth.analysis.derive.lost.phases import BACKWARD, phase_sums, phases
from sawtooth.analysis.derive.lost.schedule import lost_time, schedule_of
from sawtooth.analysis.derive.steps.device import device_steps
from sawtooth.analysis.derive.steps.host import find_host_steps
from sawtooth.analysis.derive.unprofiled.problem import StepTable, build_problem, host_view
from sawtooth.analysis.intervals import union
from tests.support.replay_traces import codes_of
from tests.support.tiny_trace import TinyTrace


def training_loop(steps: int = 3) -> TinyTrace:
    """Add steps of 1000 µs: 100 forward, 200 backward on autograd's thread and 50 optimizer.

    Each phase has one kernel of 40 µs.
    """
    trace = TinyTrace()
    for t in trace.each_step(steps, 1000.0):
        trace.op("my forward", t + 0, t + 100, annotation=True)
        trace.op("aten::mm", t + 50, t + 90)
        trace.launch((t + 60, t + 65), (t + 67, t + 107))
        trace.op("autograd::engine::evaluate_function: MmBackward0", t + 200, t + 300, thread=1)
        trace.launch((t + 240, t + 245), (t + 247, t + 287), thread=1)
        trace.op("autograd::engine::evaluate_function: AddBackward0", t + 310, t + 400, thread=1)
        trace.op("Optimizer.step#Adam.step", t + 500, t + 550, annotation=True)
        trace.launch((t + 520, t + 525), (t + 527, t + 567))
    return trace


def phases_of(trace: TinyTrace) -> dict[str, dict[str, float]]:
    events, facts = trace.events(), trace.facts()
    device = device_steps(events, find_host_steps(events), 0)
    view = host_view(events, facts)
    schedule = schedule_of(events, view, build_problem(events, StepTable.of(device), facts, view), None)
    codes = codes_of(trace)
    lost = lost_time(segments(events.gpu.start, events.gpu.end, codes, device.window), device.window)
    sums = phase_sums(events, view, device, explain(events, schedule, 0, lost, codes), lost)
    rows = phases(sums, int(device.table["counted"].sum()))
    return {row["name"]: row for row in rows}


def test_each_phase_has_its_host_device_and_idle_time() -> None:
    table = phases_of(training_loop())
    assert set(table) == {"my forward", BACKWARD, "Optimizer.step#Adam.step"}
    assert table["my forward"]["host_ms_per_step"] == pytest.approx(0.1)
    # [200, 400): the 10 µs between two operators belong to the pass
    assert table[BACKWARD]["host_ms_per_step"] == pytest.approx(0.2)
    assert table["Optimizer.step#Adam.step"]["host_ms_per_step"] == pytest.approx(0.05)
    assert [table[n]["device_ms_per_step"] for n in table] == pytest.approx([0.04] * 3)
    # Idle before the forward kernel: [567 of the step before, 1067), the host's [565, 1065); it was in the forward mark from 1000 on,
    # A piece belongs to the place of its middle: Python until 1050 is outside, aten::mm from 1050 on is inside: 15 µs.
    assert table["my forward"]["idle_ms_per_step"] == pytest.approx(0.015)


def test_numbered_names_are_one_phase() -> None:
    trace = training_loop()
    for k in range(3):
        trace.op(f"micro batch {k}", 1000.0 * k + 100, 1000.0 * k + 150, annotation=True)
    assert "micro batch" in phases_of(trace)


def test_without_counted_steps_there_are_no_phases() -> None:
    trace = TinyTrace()
    trace.launch((0, 5), (7, 20))
    assert phases_of(trace) == {}


def test_union_keeps_nested_repeats_from_counting_twice() -> None:
    trace = training_loop()
    for k in range(3):
        trace.op("my forward", 1000.0 * k + 20, 1000.0 * k + 60, annotation=True)
    assert phases_of(trace)["my forward"]["host_ms_per_step"] == pytest.approx(0.1)
    assert union([0, 20], [100, 60]).total == 100

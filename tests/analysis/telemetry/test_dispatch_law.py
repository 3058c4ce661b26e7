"""Tests of the step time from utilization, on loops made by hand.

They contain kernels, their dispatch, and the values that NVML would read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.knowledge.hardware import UNMEASURED_DISPATCH, Dispatch, identify
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.telemetry.dispatch_law import by_telemetry
from sawtooth.analysis.telemetry.signal.means import Mean
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.signal.steady import SteadyPart
from sawtooth.analysis.telemetry.summary import DeviceTelemetry

H200 = Dispatch(1200.0, 1100.0, 1300.0, "measured")
MLP = StepWork(kernel_ns=1.5e6, dispatched=918, dispatch=H200)  # 1.5 ms of kernels, 1.1 ms of dispatch


def mean(value: float, spread: float = 0.0, samples: int = 60) -> Mean:
    return Mean(value, value - spread, value + spread, samples, samples / 10)


def sampled(*, capped: bool = False, period_s: float = 0.1, **at_work: Mean) -> DeviceTelemetry:
    """Return telemetry whose training part shows these means."""
    return DeviceTelemetry(
        "t", 0, "NVIDIA H200", None, 0, 10**10, dict.fromkeys(at_work, period_s), 1.0, SteadyPart(0, 10**10), {}, None, None, None, None, None,
        Sawtooth(None, "steady", None), (), (), at_work=at_work, capped=capped,
    )  # fmt: skip


def evidence_of(work: StepWork, telemetry: DeviceTelemetry) -> StepTimeEvidence:
    found = by_telemetry(work, telemetry)
    assert isinstance(found, StepTimeEvidence), found
    return found


def test_dispatch_counts_as_busy_time() -> None:
    """A step of 11.34 ms with 1.5 ms of kernels and 918 dispatches shows 22.9 %, not 13.2."""
    found = evidence_of(MLP, sampled(util_pct=mean((1.5 + 918 * 1.2e-3) / 11.34 * 100)))
    assert found.ms == pytest.approx(11.34)
    assert found.low_ms < 11.34 * 0.93 and found.high_ms is not None and 11.34 * 1.07 < found.high_ms < 11.34 * 1.15


def test_kernels_of_a_graph_are_dispatched_once() -> None:
    assert evidence_of(replace(MLP, dispatched=0), sampled(util_pct=mean(100.0))).ms == pytest.approx(1.5)


def test_kernels_inside_a_graph_are_dispatched_sooner() -> None:
    # 409 kernels of 1.176 ms in one graph a step: by the stopwatch it took 1.351 ms, at 100 % utilization.
    found = evidence_of(StepWork(kernel_ns=1.176e6, dispatched=0, in_graphs=409, dispatch=H200), sampled(util_pct=mean(100.0)))
    assert found.contains(1.351) and found.ms == pytest.approx(1.351, rel=0.06)
    assert found.low_ms == pytest.approx(found.ms * 0.9, rel=0.02), "down to kernels that follow each other at once"


def test_fills_and_copies_within_the_gpu_keep_it_busy() -> None:
    # A Fourier operator: 18.9 ms of kernels, 1.66 ms of copies within the GPU and fills between them, and 20.49 ms by the stopwatch at 99.95 %.
    work = StepWork(kernel_ns=18.9e6, dispatched=250, moves_ns=1.66e6, dispatch=H200)
    assert evidence_of(work, sampled(util_pct=mean(99.95))).ms == pytest.approx(20.49, rel=0.02)
    assert not evidence_of(replace(work, moves_ns=0.0), sampled(util_pct=mean(99.95))).contains(20.49)


def test_kernels_of_several_streams_may_meet_more_often_in_the_run() -> None:
    # A recurrent layer on eight streams: 9.7 ms of kernels in 7.9; the run needed 7.98 ms at 95.1 %, less than the profiled kernels' union and dispatch.
    several = StepWork(kernel_ns=7.9e6, dispatched=415, beside_ns=1.8e6, dispatch=H200)
    assert evidence_of(several, sampled(util_pct=mean(95.1))).contains(7.98)
    assert not evidence_of(replace(several, beside_ns=0.0), sampled(util_pct=mean(95.1))).contains(7.98)


def test_interval_is_narrow_without_waits_or_with_long_sampling() -> None:
    """The variation of the samples is measured.

    A change of the host's speed affects only the time in which the GPU waits. It matters less if sampling lasts longer.
    """
    full, half = (evidence_of(replace(MLP, dispatched=50), sampled(util_pct=mean(value))).width for value in (100.0, 50.0))
    assert full is not None and half is not None and full < 1.115 < half < 1.2
    brief = evidence_of(replace(MLP, dispatched=50), sampled(util_pct=mean(50.0, samples=15))).width
    assert brief is not None and brief > half * 1.01


def test_gpu_with_unmeasured_dispatch_has_a_wider_interval() -> None:
    known, unknown = (evidence_of(replace(MLP, dispatch=d), sampled(util_pct=mean(25.0))) for d in (H200, UNMEASURED_DISPATCH))
    assert known.width is not None and unknown.width is not None and unknown.width > known.width + 0.3
    gpu = identify("NVIDIA H200", 9, 0, 132, 150754820096, "nvidia")
    assert gpu is not None and (gpu.dispatch.low_ns, gpu.dispatch.high_ns) == (1100.0, 1300.0) and gpu.dispatch.source


def test_gpm_is_used_with_copies_or_if_it_is_much_steadier() -> None:
    copies = replace(MLP, kernel_ns=20e6, copies_ns=10e6)
    both = sampled(util_pct=mean(90.0), gr_active_pct=mean(60.0))
    assert evidence_of(copies, both).ms == pytest.approx(copies.occupied_ns / 0.6 / 1e6)
    assert evidence_of(replace(copies, copies_ns=0), both).ms == pytest.approx(copies.occupied_ns / 0.9 / 1e6)
    shaky = sampled(util_pct=mean(50.0, 20.0), gr_active_pct=mean(60.0, 1.0))
    assert evidence_of(replace(copies, copies_ns=0), shaky).ms == pytest.approx(copies.occupied_ns / 0.6 / 1e6)


def test_new_memory_keeps_the_gpu_busy_for_nvml_and_not_for_gpm() -> None:
    # 20 ms of kernels and 10 of the driver's calls for memory in a step of 50: NVML counts a part of the 10.
    work = replace(MLP, kernel_ns=20e6, dispatched=0, allocating_ns=10e6)
    assert evidence_of(work, sampled(util_pct=mean(56.0), gr_active_pct=mean(40.0))).ms == pytest.approx(50)
    for counted in (0.0, 0.5, 1.0):
        assert evidence_of(work, sampled(util_pct=mean(40 + 20 * counted))).contains(50), counted


def test_interval_includes_both_signals_if_they_differ() -> None:
    found = evidence_of(replace(MLP, kernel_ns=20e6), sampled(util_pct=mean(93.0), gr_active_pct=mean(70.0)))
    assert found.contains((20e6 + 918 * 1200) / 0.70 / 1e6)
    assert any("contains both" in note for note in found.notes)


def test_pageable_copies_by_utilization_alone_leave_both_ends_open() -> None:
    """NVML counts a part of them. The interval contains the step for every possible part."""
    work = StepWork(kernel_ns=20e6, dispatched=300, copies_ns=15e6, pageable_ns=15e6, dispatch=H200)
    for counted in (0.0, 0.5, 1.0):
        step = 54.6
        found = evidence_of(work, sampled(util_pct=mean((work.occupied_ns + counted * 15e6) / 1e6 / step * 100)))
        assert found.contains(step), counted


@pytest.mark.parametrize("widens", ["scatter", "slow", "short", "capped"])
def test_uncertainty_widens_the_interval(widens: str) -> None:
    typical = evidence_of(MLP, sampled(util_pct=mean(25.0)))
    doubtful = {
        "scatter": sampled(util_pct=mean(25.0, 4.0)),
        "slow": sampled(util_pct=mean(25.0), period_s=1.0),
        "short": sampled(util_pct=mean(25.0, samples=12)),
        "capped": sampled(util_pct=mean(25.0), capped=True),
    }[widens]
    found = evidence_of(MLP, doubtful)
    assert found.width is not None and typical.width is not None and found.width > typical.width * 1.02


def test_waiting_in_collectives_gives_only_a_lower_bound() -> None:
    # NCCL kernels spin while other ranks are late, so 99 % busy does not show how long the rank's own work takes.
    work = StepWork(kernel_ns=50e6, dispatched=500, communication_ns=30e6, dispatch=H200)
    found = evidence_of(work, sampled(util_pct=mean(99.0)))
    assert found.ms is None and found.high_ms is None
    assert found.low_ms == pytest.approx((20 + 0.6) / 0.99 * 0.92)


@pytest.mark.parametrize(
    ("telemetry", "work"),
    [(sampled(util_pct=mean(0.4)), MLP), (sampled(util_pct=mean(50.0, samples=8)), MLP), (sampled(), MLP), (sampled(util_pct=mean(50.0)), StepWork(0.0, 0))],
)  # fmt: skip
def test_missing_evidence_has_a_reason(telemetry: DeviceTelemetry, work: StepWork) -> None:
    assert isinstance(by_telemetry(work, telemetry), str)

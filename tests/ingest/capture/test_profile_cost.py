"""Tests of the early end of an expensive profile, and of the steps that a profile slows."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch

from sawtooth.analysis.telemetry.marked_loops import Mark
from sawtooth.analysis.telemetry.step_marks import by_marks
from sawtooth.ingest.capture.in_process import profile_cost
from sawtooth.ingest.capture.in_process.event_limit import EVENT_BYTES, MAX_EVENTS, EventLimit
from sawtooth.ingest.capture.in_process.profile_cost import ProfileCost
from sawtooth.ingest.capture.profiler import StepProfiler


class Process:
    """Memory and clock of a process that records ``events`` in each step of one second."""

    def __init__(self, events: float) -> None:
        self.memory, self.now, self.events = 10**9, 0.0, events

    def limit(self, *, uses_gpu: bool = False) -> EventLimit:
        return EventLimit(uses_gpu=uses_gpu, memory=lambda: self.memory, clock=lambda: self.now)

    def steps_until_full(self, limit: EventLimit, max_steps: int = 50) -> int:
        for step in range(1, max_steps):
            self.memory += int(self.events * EVENT_BYTES)
            self.now += 1.0
            if limit.end_step():
                return step
        return max_steps


@pytest.mark.parametrize(("share", "steps"), [(2.0, 2), (0.3, 3), (0.11, 9), (0.001, 50)])
def test_a_profile_ends_before_it_has_too_many_events(share: float, steps: int) -> None:
    process = Process(share * MAX_EVENTS)
    assert process.steps_until_full(process.limit()) == steps


def test_memory_of_the_first_step_may_be_that_of_cupti() -> None:
    process = Process(0.3 * MAX_EVENTS)
    limit = process.limit(uses_gpu=True)
    process.memory += 10**9
    assert process.steps_until_full(limit) == 3


def test_memory_that_grows_faster_than_operators_can_run_is_the_trainings_own() -> None:
    process = Process(0.0)
    limit = process.limit()
    for _ in range(5):
        process.memory, process.now = process.memory + 10**9, process.now + 0.02
        assert not limit.end_step()


@pytest.mark.parametrize("grown_step", [1, 2, 4])
def test_memory_that_grows_in_one_step_only_is_the_trainings_own(grown_step: int) -> None:
    process = Process(0.01 * MAX_EVENTS)
    limit = process.limit()
    for step in range(1, 6):
        process.memory += int(process.events * EVENT_BYTES) + (int(0.8 * MAX_EVENTS * EVENT_BYTES) if step == grown_step else 0)
        process.now += 1.0
        assert not limit.end_step()
    assert limit.events() <= 0.15 * MAX_EVENTS


def test_freed_memory_is_not_taken_for_operators() -> None:
    limit = EventLimit()
    for count in (8, 24, 40):  # The memory of a batch is freed at the end of the step.
        blocks = [bytearray(2_000_000) for _ in range(count)]
        del blocks
        limit.end_step()
    assert limit.events() * EVENT_BYTES < 2_000_000
    profile_memory = [bytearray(4_000) for _ in range(20_000)]
    limit.end_step()
    assert limit._memory() - limit._first_memory > 70_000_000 and profile_memory


def test_ranks_end_at_the_step_that_the_first_rank_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [ProfileCost(tmp_path, 2) for _ in range(3)]
    full = [False, True, True]
    for rank, wish in zip(ranks, full, strict=True):
        monkeypatch.setattr(rank, "_limit", type("Limit", (), {"end_step": lambda _, wish=wish: wish})())
    assert [rank.must_end(step) for rank, step in zip(ranks, (7, 7, 8), strict=True)] == [False, False, True]
    assert ranks[0].must_end(8) and not ranks[1].must_end(7)


def test_a_long_end_of_a_profile_is_noted_in_the_next_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.4, 20.0, 27.0])
    monkeypatch.setattr(profile_cost.time, "monotonic", lambda: next(times))
    cost = ProfileCost(tmp_path, 1)
    cost.note_begin(uses_gpu=False)
    monkeypatch.setattr(EventLimit, "events", lambda _: 184_321.0)
    for _ in range(6):
        cost._limit.end_step()
    with cost.ending([0, 1], 5):
        pass
    assert profile_cost.cost_messages(tmp_path) == [], "a short pause for a whole profile is not reported"
    assert [cost.slows(0) for _ in range(3)] == [True, True, False] and cost.slows(1) and not cost.slows(2)
    cost._limit.steps = 3
    with cost.ending([0], 5):
        pass
    (sentence,) = profile_cost.cost_messages(tmp_path)
    assert "ended after 2 of 5 steps" in sentence and "184,000 operators" in sentence
    assert "paused the training for 7.4 s to write its 2 profiles" in sentence


@pytest.mark.parametrize("cpu_only", [False, True])
def test_steps_that_the_recorder_slows_never_count(cpu_only: bool) -> None:
    phases = ["train"] * 40 + ["profile"] * 6 + ["recorder"] * 6 + ["train"] * 40
    gaps_ms = [20.0] * 40 + [50.0] * 6 + [5000.0, 900.0, 800.0, 700.0, 600.0, 500.0] + [20.0] * 40
    now_ns, marks = 0, []
    for step, (phase, ms) in enumerate(zip(phases, gaps_ms, strict=True)):
        marks.append(Mark(step, now_ns := now_ns + int(ms * 1e6), phase))
    evidence = by_marks(marks, cpu_only=cpu_only)
    assert evidence is not None
    assert (evidence.ms, evidence.typical_ms, evidence.pauses) == (pytest.approx(20.0), pytest.approx(20.0), ())


def test_the_results_of_a_profile_are_freed_at_its_end(tmp_path: Path) -> None:
    profiler = StepProfiler(torch, tmp_path / "trace.json")
    torch.ones(4) + torch.ones(4)
    results = weakref.ref(profiler._profiler.profiler)
    profiler.stop()
    assert results() is None, "otherwise a garbage collection would free the results during a later step"

"""Tests of rare long steps in the marks of a loop."""

from __future__ import annotations

from itertools import accumulate

from sawtooth.analysis.metrics.step_time_evidence import LongSteps
from sawtooth.analysis.telemetry.signal.long_steps import rare_long_steps
from sawtooth.ingest.loop.step_parts import StepSpan

MS = 1_000_000


def found_in(steps_ms: list[float], waits_ms: list[float] | None = None) -> LongSteps | None:
    spans = [StepSpan(step, int(ms * MS), "train") for step, ms in enumerate(steps_ms, start=1)]
    if waits_ms is not None:
        spans = [span._replace(wait_ns=int(ms * MS)) for span, ms in zip(spans, waits_ms, strict=True)]
    ends = accumulate(span.ns for span in spans)
    return rare_long_steps(spans, dict(zip(range(1, len(spans) + 1), ends, strict=True)))


def test_each_40th_step_is_long() -> None:
    # A usual step takes 45 ms. Each 40th takes 445 ms, so 400 ms are apart from usual steps.
    steps_ms = ([45.0] * 39 + [445.0]) * 3
    found = found_in(steps_ms)
    assert found is not None
    assert (found.steps, found.ms, found.step_count) == ((40, 80, 120), (400.0,) * 3, 120)
    assert found.spans_ns[0] == (39 * 45 * MS, (39 * 45 + 445) * MS)


def test_two_long_steps_may_be_chance() -> None:
    assert found_in(([45.0] * 39 + [445.0]) * 2) is None


def test_a_profile_is_likely_to_contain_frequent_long_steps() -> None:
    assert found_in(([45.0] * 4 + [445.0]) * 20) is None


def test_a_host_that_waits_for_launched_work_is_not_late() -> None:
    """Each 40th step, the host waits for 10 steps of 45 ms. Then it launches 10 in 4 ms each."""
    assert found_in(([4.0] * 10 + [45.0] * 29 + [445.0]) * 3) is None


def test_waits_for_batches_are_left_to_the_rules_on_loaders() -> None:
    assert found_in(([45.0] * 39 + [445.0]) * 3, ([1.0] * 39 + [400.0]) * 3) is None

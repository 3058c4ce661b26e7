"""Tests whether the profiled steps represent the run, by telemetry's step time."""

from __future__ import annotations

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.telemetry.representativeness import judge_profile

SEEN = ("Kernels take 15 ms of a step: a step takes 125 ms.",)


def test_profile_of_a_starved_run_is_not_representative() -> None:
    verdict = judge_profile(StepTimeEvidence("telemetry", 125.0, 115.0, 135.0, SEEN), 25e6)
    assert (verdict.represents, verdict.step_ns) == (False, 125e6)
    assert "5 times the 25 ms" in verdict.sentence and "not representative" in verdict.sentence


def test_longer_step_with_the_estimate_in_its_interval_is_representative() -> None:
    assert judge_profile(StepTimeEvidence("telemetry", 33.0, 24.0, 45.0, SEEN), 25e6).represents is True


def test_longer_step_within_the_profiled_step_is_representative() -> None:
    seen = StepTimeEvidence("telemetry", 40.0, 37.0, 43.0, SEEN)
    assert judge_profile(seen, 25e6, profiled_ms=36.0).represents is False
    assert judge_profile(seen, 25e6, profiled_ms=38.0).represents is True


def test_full_prefetch_queue_in_the_profile_is_not_representative() -> None:
    # The step takes at least 45 ms. The replay gives 24.7 ms. The profiled step takes 45.4 ms, because recording slows it.
    seen = StepTimeEvidence("telemetry", 49.2, 45.1, 53.4, SEEN)
    assert judge_profile(seen, 24.7e6, profiled_ms=45.4).represents is True
    assert judge_profile(seen, 24.7e6, profiled_ms=45.4, bounded=False).represents is False
    assert judge_profile(seen, 28.5e6, profiled_ms=45.4, bounded=False).represents is True  # 1.58 times


def test_agreeing_telemetry_confirms_the_profile() -> None:
    verdict = judge_profile(StepTimeEvidence("telemetry", 26.0, 24.0, 28.0, SEEN), 25.5e6)
    assert verdict.represents is True and "in line with" in verdict.sentence


def test_unknown_step_is_not_judged() -> None:
    for telemetry, estimate in (
        ("Too few samples.", 25e6),
        (StepTimeEvidence("telemetry", None, 20.0, None, SEEN), 25e6),
        (StepTimeEvidence("telemetry", 30.0, 28.0, 32.0, SEEN), None),
    ):
        verdict = judge_profile(telemetry, estimate)
        assert verdict.represents is None and verdict.sentence

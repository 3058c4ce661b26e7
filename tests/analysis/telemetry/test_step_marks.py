"""Tests of the step time from the step marks of a loop."""

import numpy as np
import pytest

from sawtooth.analysis.metrics.step_time_evidence import StepWork, limited_by_host, with_host_drift
from sawtooth.analysis.telemetry.step_marks import by_marks
from tests.support.step_marks import marks


def test_step_time_is_the_mean_between_marks() -> None:
    evidence = by_marks(marks(*[26.0, 28.0] * 50))
    assert evidence is not None and evidence.ms == pytest.approx(27.0)
    assert evidence.low_ms < 27.0 < evidence.high_ms and evidence.width < 1.05


def test_warm_up_and_queue_filling_are_left_out() -> None:
    slow_start = by_marks(marks(900.0, 120.0, *[30.0] * 60))
    assert slow_start is not None and slow_start.ms == pytest.approx(30.0)
    slower_host = by_marks(marks(*[26.0] * 12, *[30.0] * 60))
    assert slower_host is not None and slower_host.ms == pytest.approx((12 * 26 + 60 * 30) / 72), "a change of the host's speed"
    assert slower_host.high_ms == pytest.approx(30.0 * 1.01), "or a queue that fills: then a step takes 30 ms"
    assert "the mean without them, 30 ms" in slower_host.notes[1]
    quick_start = by_marks(marks(*[4.0] * 12, *[30.0] * 60))
    assert quick_start is not None and quick_start.ms == pytest.approx(30.0)


@pytest.mark.parametrize("shorter", [True, False])
def test_a_queue_that_fills_slowly_is_in_the_interval(shorter: bool) -> None:
    # As recorded on an H200: the host launches a step in 32 ms and the GPU runs it in 34.9 ms, so that the queue is full after 12 steps.
    typical = [34.4, 34.9, 35.4, 34.9] * 10
    evidence = by_marks(marks(*[32.0 if shorter else 34.9] * 12, *typical))
    assert evidence is not None and evidence.high_ms == pytest.approx(34.9 * 1.01, rel=2e-3)
    assert evidence.ms == pytest.approx((12 * 32 + 40 * 34.9) / 52 if shorter else 34.9, rel=2e-3)
    assert (len(evidence.notes) == 2) == shorter


def test_loop_that_waits_periodically_counts_whole_bursts() -> None:
    # A step takes 47 ms and the loss is read every tenth step: nine launches of 2 ms and a wait of 455 ms, around a
    # profile. As recorded on an H200. Counting from the end of the profile, in the middle of a burst, gave 46.5 ms ± 6
    # %.
    burst = [2.0] * 9 + [455.0]
    before, after = [*burst * 11, *[2.0] * 4], [*[2.0] * 6, 140.0, *burst * 27, *[2.0] * 8]
    evidence = by_marks(marks(*before, *[50.0] * 6, *after, profiled=range(len(before) + 1, len(before) + 7)))
    assert evidence is not None and evidence.ms == pytest.approx(47.3, rel=1e-3)
    assert evidence.width is not None and evidence.width < 1.03
    # The note does not give the median of 2 ms, which would be misleading.
    assert "half of them took at most 2 ms; a few long ones take most of the remaining time" in evidence.notes[0]
    unfinished = by_marks(marks(*[2.0] * 30, *burst * 12, *[2.0] * 60))
    assert unfinished is not None and unfinished.ms == pytest.approx(47.3, rel=1e-3)


def test_queue_filling_after_the_profile_is_left_out() -> None:
    gaps = [*[22.9] * 100, *[20.0] * 6, *[9.0] * 12, *[22.9] * 50]
    evidence = by_marks(marks(*gaps, profiled=range(101, 107)))
    assert evidence is not None and evidence.ms == pytest.approx(22.9)


def test_interval_of_a_host_limited_step_includes_host_drift() -> None:
    """Steps of 36 to 32 ms within 3.4 s take 34 ms on average.

    The first second gives 35.4 ms, the last 32.6 ms.
    """
    evidence = by_marks(marks(*np.linspace(36.0, 32.0, 100)))
    assert evidence is not None and evidence.ms == pytest.approx(34.0) and evidence.timed_s == pytest.approx(3.4)
    assert not evidence.contains(35.4) and not evidence.contains(32.6)
    drift = with_host_drift(evidence)
    assert (
        drift.ms == evidence.ms
        and drift.contains(35.4)
        and drift.contains(32.6)
        and drift.marked_ms == (evidence.low_ms, evidence.high_ms)
    )
    assert limited_by_host(evidence, StepWork(5e6, 10.0, copies_ns=27e6, pageable_ns=27e6))  # The host fills the copied memory.
    assert not limited_by_host(evidence, StepWork(5e6, 10.0, copies_ns=27e6))
    steady = by_marks(marks(*[20.0] * 165))
    assert steady is not None and (steady.low_ms, steady.high_ms) == (pytest.approx(19.8), pytest.approx(20.2))
    wide = with_host_drift(steady)  # √(14 %² + (20 ÷ 19.8 − 1)²) = 14.036 %
    assert (wide.low_ms, wide.high_ms) == (pytest.approx(17.538, abs=1e-3), pytest.approx(22.807, abs=1e-3))


def test_profiled_steps_do_not_count_and_earlier_steps_are_preferred() -> None:
    gaps = [20.0] * 40 + [90.0] * 6 + [25.0] * 40
    evidence = by_marks(marks(*gaps, profiled=range(41, 47)))
    assert evidence is not None and evidence.ms == pytest.approx(20.0)
    few_before = by_marks(marks(*[20.0] * 5, *[90.0] * 6, *[25.0] * 40, profiled=range(6, 12)))
    assert few_before is not None and few_before.ms == pytest.approx(25.0, rel=0.05)


def test_steps_after_the_profile_count_unless_they_are_slower() -> None:
    """A loop with a cold cache settles only after the profile.

    A profiler that stays attached makes steps 25 % longer.
    """
    warmed = by_marks(marks(*[73.0] * 50, *[90.0] * 6, *[7.0] * 400, profiled=range(51, 57)))
    assert warmed is not None and warmed.ms == pytest.approx(7.0) and "mean of 397 steps" in warmed.notes[0]
    alike = by_marks(marks(*[20.0, 21.0] * 20, *[90.0] * 6, *[20.0, 21.0] * 100, profiled=range(41, 47)))
    assert alike is not None and alike.ms == pytest.approx(20.5, rel=0.01) and "mean of 237 steps" in alike.notes[0]
    attached = by_marks(marks(*[20.0] * 40, *[90.0] * 6, *[25.0] * 40, profiled=range(41, 47)))
    assert attached is not None and "steps take 25 ms, 25 % longer" in attached.notes[1]
    assert "These 37 steps are left out" in attached.notes[1]
    assert attached.high_ms == pytest.approx(25.0), "a host with other load looks the same"
    assert attached.before_high_ms == pytest.approx(20.0 * 1.01), "a comparison leaves the steps after the profile out"
    slower_host = by_marks(marks(*[20.0] * 40, *[90.0] * 6, *[25.0] * 40, profiled=range(41, 47)), detached=True)
    assert slower_host is not None and slower_host.ms == pytest.approx((40 * 20 + 37 * 25) / 77)
    assert (slower_host.low_ms, slower_host.high_ms) == (pytest.approx(20.0), pytest.approx(25.0))
    assert slower_host.before_high_ms == slower_host.high_ms and "All steps count" in slower_host.notes[1]
    assert alike.before_high_ms == alike.high_ms and warmed.before_high_ms is None, "no settled step came before"


def test_slower_steps_after_a_cpu_only_profile_count() -> None:
    gaps = [*[20.0] * 40, *[90.0] * 6, *[25.0] * 40]
    both = by_marks(marks(*gaps, profiled=range(41, 47)), cpu_only=True)
    assert both is not None and both.ms == pytest.approx(22.4, rel=0.01) and len(both.notes) == 1


def test_busy_host_is_not_a_wait_for_the_gpu() -> None:
    # Other load on the host makes the steps in the middle long. Without a GPU, the quick steps around them count too.
    gaps = [*[5.0] * 200, *[5.0, 5.0, 40.0] * 100, *[5.0] * 200]
    evidence = by_marks(marks(*gaps), cpu_only=True)
    assert evidence is not None and evidence.ms == pytest.approx(10.0)
    assert "other processes use the host" in evidence.notes[0] and "runs ahead" not in evidence.notes[0]


@pytest.mark.parametrize("gaps", [[12.0] * 40 + [6.0] * 560, [12.0] * 40 + [6.0] * 200 + [12.0] * 60 + [6.0] * 300])
def test_busy_start_without_a_gpu_is_not_warm_up(gaps: list[float]) -> None:
    """A stopwatch around the loop includes other load on the host, at the start as later."""
    busy = by_marks(marks(*gaps), cpu_only=True)
    assert busy is not None and busy.ms == pytest.approx(sum(gaps) / len(gaps))
    assert "first 40 steps took 12 ms each" in busy.notes[1].replace("\xa0", " ") and "All of them count" in busy.notes[1]


def test_warm_up_is_left_out_and_its_effect_is_reported() -> None:
    """8 steps of 30 ms before 92 of 10 ms give 11.6 ms with them."""
    warm = by_marks(marks(*[30.0] * 8, *[10.0] * 92), cpu_only=True)
    assert warm is not None and warm.ms == pytest.approx(10.0)
    assert warm.notes[1].replace("\xa0", " ") == (
        "The first 8 steps, 30 ms each, are left out as warm-up; the mean would be 11.6 ms otherwise."
    )
    compiled = by_marks(marks(2000.0, *[10.0] * 99))
    assert compiled is not None and compiled.ms == pytest.approx(10.0)
    assert "The first step, 2 s, is left out as warm-up" in compiled.notes[1].replace("\xa0", " ")
    quicker = by_marks(marks(0.9, *[0.5, 0.5, 0.5, 16.0] * 25), cpu_only=True)
    assert quicker is not None and len(quicker.notes) == 1, "a first step below the mean is not warm-up"
    hardly = by_marks(marks(11.5, *[10.0] * 99))
    assert hardly is not None and len(hardly.notes) == 1


def test_slow_first_phase_with_a_gpu_is_reported() -> None:
    evidence = by_marks(marks(*[13.0] * 300, *[31.0] * 600))
    assert evidence is not None and evidence.ms == pytest.approx(31.0)
    assert "The first 300 steps, 13 ms each, are left out" in evidence.notes[1].replace("\xa0", " ")


def test_slower_loop_after_the_profiled_one_is_reported() -> None:
    """Marks cannot distinguish a second loop from a busy host, so both loops count, and a note says so."""
    gaps = [*[20.0] * 100, *[90.0] * 6, *[20.0] * 100, *[60.0] * 100]
    both = by_marks(marks(*gaps, profiled=range(101, 107)), cpu_only=True)
    assert both is not None and both.ms == pytest.approx(33.5, rel=0.05)
    assert (
        "2 × as long, perhaps because each does more work, other processes use the host, or another loop runs" in both.notes[1]
    )


def test_too_few_marks_give_no_evidence() -> None:
    assert by_marks(marks(*[20.0] * 6)) is None
    assert by_marks([]) is None


@pytest.mark.parametrize("seed", range(5))
def test_interval_of_noisy_steps_contains_the_true_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    contained = 0
    for _ in range(40):
        evidence = by_marks(marks(*rng.lognormal(np.log(20), 0.2, 100)))
        assert evidence is not None
        contained += evidence.contains(20 * np.exp(0.02))
    assert (
        contained >= 30
    )  # At 90 %, 36 of 40 intervals are expected to contain the step. 30 are three standard deviations fewer.

"""Tests of MFU and its factors on small numbers."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from sawtooth.analysis.knowledge.flops import FP32_UNCERTAIN
from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.metrics import mfu, mfu_factors
from sawtooth.analysis.metrics.device_facts import DeviceFacts, FlopTotals, StepEstimate
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.step_time import choose_step_time
from sawtooth.ingest.manifest import UserFacts

H200 = identify("NVIDIA H200", 9, 0, 132, 150109880320, "nvidia")


def steps(*durations_ms):
    edges = [0.0]
    for value in durations_ms:
        edges.append(edges[-1] + value)
    return pd.DataFrame({"start_ns": [e * 1e6 for e in edges[:-1]], "end_ns": [e * 1e6 for e in edges[1:]], "counted": True})


def flops(total, **changes):
    base = FlopTotals(total, operators=1, by_dtype={"bf16": total}, kernel_ns=100, covered_ns=100, union_ns=60_000_000)
    return replace(base, **changes)


def readings(counts, best, busy_ns=1, counted=1, *, user=None, clock=None, works_ms=None):
    """Return the MFU's metrics; ``clock`` is (MHz, where that was measured)."""
    sampled = SimpleNamespace(means={"clock_sm_mhz": clock[0]}, clock_note=clock[1]) if clock else None
    measured = DeviceMeasurements(
        best,
        counted,
        busy_ns,
        facts=DeviceFacts(flops=counts),
        gpu=H200,
        user=user or UserFacts(),
        works_ms=works_ms,
        sampled=sampled,
    )
    return {metric.key: metric.compute(measured) for metric in (*mfu.METRICS, *mfu_factors.METRICS)}


def test_factors_multiply_to_mfu_exactly():
    # 4 steps of 20 ms; 9.894 TFLOP a step ÷ 20 ms = 494.7 TFLOP/s = half of 989.4.
    # Busy 64 of 80 ms = 0.8; FLOP kernels 60 of 64 ms = 0.9375; clock 1647 of 1830 MHz = 0.9.
    best = choose_step_time(steps(20, 20, 20, 20), StepEstimate(20e6), None)
    got = readings(flops(4 * 9.894e12), best, 64_000_000, 4, clock=(1647.0, "the profile"))
    assert got["achieved_tflops"].value == pytest.approx(494.7)
    assert got["mfu"].value == pytest.approx(0.5)
    assert got["mfu_factor_busy"].value == pytest.approx(0.8)
    assert got["mfu_factor_flop_kernels"].value == pytest.approx(0.9375)
    assert got["mfu_factor_clock"].value == pytest.approx(0.9, rel=1e-3)
    product = 1.0
    for key in ("busy", "flop_kernels", "clock", "efficiency"):
        product *= got[f"mfu_factor_{key}"].value
    assert product == pytest.approx(got["mfu"].value, rel=1e-12)
    assert got["mfu"].trust == "ok"


def factors_of(best, *, clock=None, busy_ms=None, by_dtype=None):
    """Return the MFU factors of a profile of 2 steps of 20 ms with 18 ms of work each.

    15 ms of the work are in FLOP kernels.
    """
    counts = flops(2 * 9.894e12, union_ns=30_000_000, by_dtype=by_dtype or {"bf16": 2 * 9.894e12})
    return readings(counts, best, 36_000_000, 2, clock=clock, works_ms=busy_ms)


def test_the_busy_share_of_an_estimated_step_is_the_replays():
    # Without the profiler streams overlap more, so the GPU works 12 of 16 ms. The profiled 18 ms would be 112 %.
    best = choose_step_time(steps(20, 20), StepEstimate(16e6), None)
    busy = factors_of(best, busy_ms=12.0)["mfu_factor_busy"]
    assert (best.source, busy.value) == ("estimate", pytest.approx(0.75))
    assert any("estimated without the profiler" in note for note in busy.notes)


def test_a_profiled_wait_for_another_rank_does_not_raise_kernel_efficiency():
    # Two profiled steps of 40 ms have 15 ms of products at half of the peak and 23 ms in a waiting collective. The
    # run's step takes 20, of which 18 are busy.
    counts = flops(2 * 0.5 * 989.4e12 * 0.015, union_ns=30_000_000)
    best = choose_step_time(steps(40, 40), StepEstimate(20e6), None)
    got = readings(counts, best, 76_000_000, 2, works_ms=18.0)
    assert got["mfu"].value == pytest.approx(0.375)  # Half of the peak for 15 of 20 ms.
    assert got["mfu_factor_busy"].value == pytest.approx(0.9)
    # Relative to the profiled 38 ms it would be 39 %, and the next factor would be 106 %.
    assert got["mfu_factor_flop_kernels"].value == pytest.approx(15 / 18)
    assert (got["mfu_factor_efficiency"].value, got["mfu_factor_efficiency"].trust) == (pytest.approx(0.5), "caution")


def test_products_that_overlap_only_without_the_profiler_fill_the_busy_time():
    best = choose_step_time(steps(20, 20), StepEstimate(16e6), None)
    got = factors_of(best, busy_ms=12.0)  # The profile has 15 ms of them, in parallel on two streams within 12 ms.
    assert got["mfu_factor_flop_kernels"].value == 1.0
    product = math.prod(got[f"mfu_factor_{key}"].value for key in ("busy", "flop_kernels", "clock", "efficiency"))
    assert product == pytest.approx(got["mfu"].value, rel=1e-12)


def test_a_factor_above_one_has_a_reason():
    # The stopwatch says 15 ms, the profiled GPU works 18: 120 %.
    best = choose_step_time(steps(20, 20), StepEstimate(20e6), 15.0)
    busy = factors_of(best, busy_ms=18.0)["mfu_factor_busy"]
    assert (busy.value, busy.trust) == (pytest.approx(1.2), "caution")
    assert busy.notes[0].startswith("Above 100 %: the GPU's work in a profiled step") and "estimated without" in busy.notes[1]
    fast = factors_of(best, clock=(1980.0, "the profile"))["mfu_factor_clock"]
    assert (fast.value > 1, fast.trust) == (True, "ok") and "at a lower clock" in fast.notes[0]
    assert fast.notes[1] == "The mean SM clock is 1,980 MHz over the profile. The peak is quoted at 1,830 MHz."
    slow = factors_of(best, clock=(1700.0, "the profile"))["mfu_factor_clock"]
    assert slow.notes == ("The mean SM clock is 1,700 MHz over the profile. The peak is quoted at 1,830 MHz.",)
    # 9.894 TFLOP in 15 ms of FLOP kernels: two thirds of the peak; at half of the clock four thirds.
    held = factors_of(best, clock=(915.0, "the profile"), busy_ms=18.0)["mfu_factor_efficiency"]
    assert (held.value, held.trust) == (
        pytest.approx(4 / 3, rel=1e-3),
        "caution",
    ) and "FLOPs of masked attention" in held.notes[0]
    fp8 = factors_of(best, clock=(915.0, ""), busy_ms=18.0, by_dtype={"fp8": 2 * 9.894e12})["mfu_factor_efficiency"]
    # FP8's peak is twice as high, so the same FLOPs are half of that: two thirds, at half of the clock.
    assert fp8.value == pytest.approx(2 / 3, rel=1e-3)


def test_half_the_step_time_doubles_mfu():
    slow = readings(flops(1e12), choose_step_time(steps(20, 20), StepEstimate(20e6), None), counted=2)
    fast = readings(flops(1e12), choose_step_time(steps(20, 20), StepEstimate(20e6), 10.0), counted=2)
    assert fast["mfu"].value == pytest.approx(2 * slow["mfu"].value)


def test_hidden_shapes_give_a_marked_lower_bound():
    got = readings(flops(1e12, covered_ns=40), choose_step_time(steps(20), StepEstimate(20e6), None))
    assert got["flop_coverage"].value == pytest.approx(0.4)
    assert got["mfu"].trust == "caution"
    assert any("lower bound" in note for note in got["mfu"].notes)


def test_mfu_above_one_is_an_error_unless_narrow_dtypes_explain_it():
    best = choose_step_time(steps(1), StepEstimate(1e6), None)
    wrong = readings(flops(2e12), best)["mfu"]
    assert (wrong.trust, wrong.value > 1) == ("unusable", True)
    fp8 = readings(flops(2e12, by_dtype={"fp8": 2e12}), best)["mfu"]
    assert fp8.trust != "unusable"


@pytest.mark.parametrize(("unsure", "bound"), [(0.6, "most"), (0.0001, None)])
def test_products_on_unknown_units_may_bound_mfu_at_dtype(unsure, bound):
    best = choose_step_time(steps(20), StepEstimate(20e6), None)
    got = readings(flops(1e10, by_dtype={"fp32": (1 - unsure) * 1e10, FP32_UNCERTAIN: unsure * 1e10}), best)["mfu_at_dtype"]
    assert got.bound == bound and (got.trust == "unusable") == (bound is not None)
    assert any("60 % of the FLOPs" in note for note in got.notes) == (bound is not None)


@pytest.mark.parametrize(("covered", "known"), [(6, True), (4, False)])
def test_shapes_of_few_products_give_no_bound(covered, known):
    got = readings(flops(1e10, covered_ns=covered), choose_step_time(steps(20), None, None))
    assert {got[key].value is not None for key in ("flops_per_step", "mfu", "hfu")} == {known}


def test_without_shapes_the_user_may_give_the_flops():
    best = choose_step_time(steps(20), None, None)
    none = readings(None, best)
    assert none["mfu"].value is None and "record_shapes" in none["mfu"].why_missing
    given = readings(None, best, user=UserFacts(parameters=1e8, tokens_per_step=1e4))
    assert given["flops_per_step"].value == 6e12  # 6 × 1e8 × 1e4
    assert given["mfu_at_dtype"].value is None
    assert (given["hfu"].value, given["hfu"].bound) == (given["mfu"].value, "least")  # Recomputation is not visible.


def test_flops_come_from_the_user_then_shapes_then_the_rule_of_thumb():
    best = choose_step_time(steps(20), StepEstimate(20e6), None)
    user = UserFacts(parameters=1e8, tokens_per_step=1e4)
    known = readings(flops(7e12), best, user=user)
    assert (known["flops_per_step"].value, known["mfu_at_dtype"].value) == (7e12, pytest.approx(known["mfu"].value))
    hidden = readings(flops(7e12, covered_ns=40), best, user=user)
    assert (hidden["flops_per_step"].value, hidden["flops_per_step"].trust) == (6e12, "caution")
    given = readings(flops(7e12), best, user=UserFacts(parameters=1e8, tokens_per_step=1e4, flops_per_step=8e12))
    assert given["flops_per_step"].value == 8e12


def test_mfu_uses_the_profile_if_the_estimate_agrees():
    agreeing = choose_step_time(steps(20, 20, 20), StepEstimate(19.5e6), None)
    assert (agreeing.source, agreeing.ms) == ("profile", pytest.approx(20))
    distorted = choose_step_time(steps(50, 52, 51), StepEstimate(26e6), None)
    assert (distorted.source, distorted.ms, distorted.reading.trust) == ("estimate", pytest.approx(26), "caution")
    measured = choose_step_time(steps(50, 52, 51), StepEstimate(26e6), 25.0)
    assert (measured.source, measured.ms) == ("user", 25.0)
    assert choose_step_time(steps(50), None, None).reading.trust == "caution"


def test_single_step_has_caution_even_if_the_estimate_agrees():
    one, two = (choose_step_time(steps(*durations), StepEstimate(20e6), None) for durations in ((20,), (20, 20)))
    assert (one.ms, one.profiled.trust, one.reading.trust) == (20, "caution", "caution")
    assert (two.ms, two.profiled.trust, two.reading.trust) == (20, "ok", "ok")

"""What MFU's numbers rest on is said once, and only metrics that say something else stand beside it."""

from __future__ import annotations

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.app.words.efficiency import factor_title, mfu_doubt, mfu_sentence, utilizations


def readings(mfu: float, hfu: float, **more: object) -> dict[str, Reading]:
    shares = {"mfu": mfu, "mfu_at_dtype": mfu, "hfu": hfu, "achieved_tflops": 100.0}
    return {key: Reading(value, **more) for key, value in shares.items()}  # type: ignore[arg-type]


def test_a_share_that_equals_mfu_is_not_shown_again() -> None:
    assert utilizations(readings(0.3, 0.3)) == ["mfu", "achieved_tflops"]
    assert utilizations(readings(0.3, 0.4)) == ["mfu", "achieved_tflops", "hfu"]  # a third was computed twice


def test_a_doubt_is_said_once_and_none_of_what_is_measured() -> None:
    assert mfu_doubt(readings(0.3, 0.3)) is None
    said = mfu_doubt(readings(0.3, 0.3, trust="caution", notes=("The replay says 40 ms.", "Peak 989 TFLOP/s.")))
    assert said == "The step time behind these numbers is inferred, not measured."  # by what, its card says on hover


def test_the_way_from_the_peak_to_mfu_is_told_in_its_title() -> None:
    factors = {"mfu_factor_busy": Reading(0.2), "mfu_factor_flop_kernels": Reading(0.25), "mfu_factor_efficiency": Reading(0.5)}
    title = factor_title(factors, list(factors)).replace("\xa0", " ")
    assert title == "What is left of the peak: 100 % → 20 % → 5.0 % → 2.5 %"  # 0.2 × 0.25 × 0.5


def test_kernels_of_a_wider_dtype_are_not_said_to_be_slow_by_their_own_peak() -> None:
    efficiency = {"mfu_factor_efficiency": Reading(0.046), "flops_per_step": Reading(1e12)}
    said = mfu_sentence({**readings(0.046, 0.046), **efficiency, "mfu_at_dtype": Reading(0.68)}, "mfu_factor_efficiency")
    assert "and 68\u00a0% of the peak of its operators' dtypes" in said and "do not compute in 16 bit" in said
    said = mfu_sentence({**readings(0.046, 0.046), **efficiency}, "mfu_factor_efficiency")
    assert said.endswith("matrix products, convolutions and attention run at 4.6\u00a0% of that peak.")

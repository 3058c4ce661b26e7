"""Tests of the text about a step's distance from the GPU's peak, and about MFU's basis."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.verdict import StepPart
from sawtooth.app.charts.efficiency import PeakPart, bars
from sawtooth.app.words import efficiency
from sawtooth.app.words.efficiency import clock_of_the_peak, mfu_doubt, mfu_headline, peak_parts, rates

NO_CLOCK = {"mfu_factor_clock": Reading(1.0, trust="caution", notes=("The clock is not known from telemetry.",))}


def readings(mfu: float, hfu: float, **more: object) -> dict[str, Reading]:
    shares = {"mfu": mfu, "mfu_at_dtype": mfu, "hfu": hfu, "achieved_tflops": 100.0}
    return {key: Reading(value, **more) for key, value in shares.items()}  # type: ignore[arg-type]


def test_a_share_that_equals_mfu_is_not_shown_again() -> None:
    same, more = (rates(readings(0.3, hfu) | NO_CLOCK) for hfu in (0.3, 0.4))
    assert "HFU" not in same and "MFU" not in same
    assert "HFU: 40" in more  # A third was computed twice.


def test_a_doubt_is_mentioned_once_and_not_for_measured_values() -> None:
    assert mfu_doubt(readings(0.3, 0.3)) is None
    said = mfu_doubt(readings(0.3, 0.3, trust="caution", notes=("The replay says 40 ms.", "Peak 989 TFLOP/s.")))
    assert said == "The step time behind these numbers is inferred, not measured."


PARTS = (  # 100 ms: 20 idle, 30 in a wait of which the GPU copies for 25, 10 of communication, 40 of compute
    StepPart("other_compute", None, 40.0, 0.4), StepPart("idle", "blocking_copy", 30.0, 0.3, 25.0),
    StepPart("idle", "data_wait", 20.0, 0.2), StepPart("exposed_comm", "comm_wait", 10.0, 0.1, 10.0),
)  # fmt: skip


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch):
    """Return the parts of PARTS' step by MFU, FLOP kernels' share of compute, clock and own MFU.

    The own MFU is the one at the operators' dtypes.
    """
    monkeypatch.setattr(efficiency, "parts_of", lambda rank, column: PARTS)

    def of(mfu: float, flop_share: float, clock: float = 1.0, own: float = 0.0) -> list[PeakPart]:
        metrics = {
            "mfu": Reading(mfu), "mfu_at_dtype": Reading(own or mfu), "mfu_factor_clock": Reading(clock),
            # Share of the busy time, which includes the copies.
            "mfu_factor_busy": Reading(0.65), "mfu_factor_flop_kernels": Reading(flop_share * 40 / 65),
        }  # fmt: skip
        return peak_parts(SimpleNamespace(), metrics, "recorded")

    return of


def times(parts: list[PeakPart]) -> dict[str, float]:
    return {part.key: pytest.approx(part.ms) for part in parts}


def test_a_step_is_divided_into_what_keeps_it_from_the_peak(parts) -> None:
    shown = parts(0.06, 0.25)
    assert times(shown) == {
        "idle": 25.0, "exposed_memcpy": 25.0, "exposed_comm": 10.0, "other_kernels": 30.0, "slow_kernels": 4.0, "peak": 6.0,
    }  # fmt: skip
    assert sum(part.share for part in shown) == pytest.approx(1.0)
    assert mfu_headline({**readings(0.06, 0.06), "flops_per_step": Reading(1e12)}, shown) == (
        "MFU is 6.0\u00a0%, because non-matrix kernels take 30\u00a0% of each step.",
        "At the GPU's dense 16-bit peak, the products of each 100\u00a0ms step would take 6.00\u00a0ms.",
    )
    last = bars(shown, {}, dark=False)[-1]
    assert (last.offset, last.width) == ("0.00%", "6.00%")


def test_a_lower_clock_and_a_wider_dtype_are_separate_parts(parts) -> None:
    assert times(parts(0.12, 1.0, clock=0.8))["clock"] == 3.0  # 12 ms at the quoted clock are 15 at four fifths of it
    at_dtype = parts(0.01, 1.0, own=0.2)
    assert times(at_dtype)["dtype"] == 19.0 and times(at_dtype)["slow_kernels"] == 20.0
    first, below = mfu_headline(
        {**readings(0.01, 0.01), "mfu_at_dtype": Reading(0.9), "flops_per_step": Reading(1e12)}, [at_dtype[3], at_dtype[-1]]
    )
    assert "matrix products not in 16 bit cost 19\u00a0% of each step" in first
    assert below is not None and below.endswith("At the peak of its operators' dtypes, MFU is 90\u00a0%.")


@pytest.mark.parametrize(
    ("ms", "hardly", "said"),
    [(0.0, True, "Every matrix product"), (0.00367, True, "all but 3.67\u00a0µs per step"), (0.612, False, "run 612\u00a0µs per step without")],
)  # fmt: skip
def test_one_percent_without_tensor_cores_is_not_mentioned(ms: float, hardly: bool, said: str) -> None:
    assert said in efficiency.without_tensor_cores(ms, hardly, "per step")


@pytest.mark.parametrize(("dtypes", "helps"), [({"tf32": 1.0}, "Compute in bf16 (autocast)."), ({"tf32": 1.0, "fp32": 1.0}, "or allow TF32.")])  # fmt: skip
def test_a_run_with_tf32_gets_no_advice_to_enable_it(dtypes: dict[str, float], helps: str) -> None:
    rank = SimpleNamespace(
        facts=SimpleNamespace(flops=SimpleNamespace(by_dtype=dtypes)), categories=pd.DataFrame({"category": [], "ns": []}), counted=[]
    )  # fmt: skip
    assert efficiency.largest_share(rank, PeakPart("dtype", 1.0, 0.1), "recorded")[1].endswith(helps)


@pytest.mark.parametrize(
    ("dtypes", "first"), [({"fp32": 3.0, "bf16": 1.0}, "Lower the precision"), ({"fp32": 1.0, "bf16": 3.0}, "Use larger")]
)
def test_precision_comes_before_shapes_if_most_flops_are_fp32(dtypes: dict[str, float], first: str) -> None:
    rank = SimpleNamespace(
        facts=SimpleNamespace(flops=SimpleNamespace(by_dtype=dtypes)), categories=pd.DataFrame({"category": [], "ns": []}), counted=[]
    )  # fmt: skip
    slow = PeakPart("slow_kernels", 1.0, 0.1)
    assert efficiency.largest_share(rank, slow, "recorded", "aten::mm")[1].startswith(first)


def test_a_clock_above_the_quoted_one_costs_nothing(parts) -> None:
    assert "clock" not in times(parts(0.1, 0.5, clock=1.08))


def test_the_clock_is_mentioned_if_telemetry_has_it() -> None:
    measured = Reading(1.08, notes=("Above 100 %.", "1,980 MHz, 8% above the 1,830 MHz that the peak is quoted at."))
    known = readings(0.3, 0.3)
    said = clock_of_the_peak(known | {"mfu_factor_clock": measured})
    assert said == "SM clock: 1,980 MHz, 8% above the 1,830 MHz that the peak is quoted at."
    assert not clock_of_the_peak(known | NO_CLOCK)

"""Tests of the metrics registry: ranges, dependencies of trust, cards and aliases."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.metric import DeviceMeasurements
from sawtooth.analysis.metrics.reading import NotFiniteError, Reading, missing
from sawtooth.analysis.metrics.registry import ALIASES, CARDS, METRICS, check_range, possible_reading, readings_of, with_aliases
from sawtooth.analysis.metrics.step_time import BestStepTime

KERNELS = pd.DataFrame(
    [("gemm", "kernel", 600, 6, 300.0, 50.0, None, None), ("elementwise", "kernel", 150, 3, 75.0, None, 50.0, None), ("copy", "memcpy", 50, 1, None, None, 50.0, None)],
    columns=["category", "kind", "ns", "launches", "sm_ns", "occupancy_pct", "undecided_ns", "occupancy_unseen_ns"],
)  # fmt: skip


def measured(kernels: pd.DataFrame = KERNELS) -> DeviceMeasurements:
    """Return a window of 1,000 ns in one step with known parts.

    They are 600 of tensor cores, 150 of other compute, 50 of a copy and 200 of idle time.
    """
    step = Reading(1e-3)
    return DeviceMeasurements(
        best=BestStepTime("profile", step, step, missing("No replay."), 1e-3),
        counted=1,
        window_ns=1000,
        owned_ns={"tensor_core_compute": 600, "other_compute": 150, "exposed_memcpy": 50, "idle": 200},
        kernels=kernels,
        facts=DeviceFacts(kernels_in_counted_steps=9),
    )


def test_shares_of_a_window_by_hand() -> None:
    values = {key: reading.value for key, reading in readings_of(measured()).items()}
    assert (values["gpu_busy_share"], values["gpu_idle_share"]) == (0.8, 0.2)
    assert values["tensor_core_time_share"] == 0.8  # 600 of 750
    assert values["tensor_core_unknown_share"] == pytest.approx(50 / 750)  # The copy is no compute.
    assert values["sm_efficiency"] == 0.375  # (300 + 75) of 1,000
    assert values["achieved_occupancy"] == 0.5  # Only the first kernel's occupancy is known.
    assert values["kernel_launches_per_step"] == 9
    assert values["mfu"] is None and values["nvml_gpu_util_mean"] is None


def test_an_impossible_value_is_missing_with_the_reason() -> None:
    reading = readings_of(measured(KERNELS.assign(occupancy_pct=1e9)))["achieved_occupancy"]
    assert reading.value is None and reading.why_missing is not None
    assert "1e+07. A value above 1 is impossible" in reading.why_missing


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("gpu_busy_share", 1.0 + 1e-9, True),  # Floats lose this much.
        ("gpu_busy_share", 1.01, False),
        ("nvml_gpu_util_mean", -0.2, False),
        ("mfu", 1.4, True),  # 8-bit operators
        ("mfu", 9.0, False),
        ("mfu_factor_busy", 1.3, True),  # A stopwatch below the profile.
        ("best_step_time_ms", -1.0, False),
        ("best_step_time_ms", 1e7, True),
    ],
)
def test_the_range_of_a_metric(key: str, value: float, kept: bool) -> None:
    assert (check_range(METRICS[key], Reading(value)).value == value) is kept


def test_every_share_has_bounds_except_factors_that_may_exceed_one() -> None:
    unbounded = {m.key for m in METRICS.values() if m.unit == "share" and m.high is None}
    assert unbounded == {"mfu_factor_busy", "mfu_factor_efficiency"}


def test_lost_launches_lower_only_trust_in_launch_metrics() -> None:
    before = {key: Reading(0.5) for key in METRICS}
    after = trust.apply(
        {**before, "tensor_core_unknown_share": Reading(0.0)}, DeviceFacts(orphan_ns=6, gpu_ns=100), truncated=False
    )
    lowered = {key for key, reading in after.items() if reading.trust == "caution"}
    assert lowered == {key for key, metric in METRICS.items() if "lost_launches" in metric.doubted_by}
    assert {"step_time_ms", "mfu"} <= lowered and "gpu_busy_share" not in lowered
    assert "6 % of GPU time has no launch" in after["mfu"].notes[-1]


def test_a_truncated_file_lowers_all_trust() -> None:
    after = trust.apply({key: Reading(0.05) for key in METRICS}, DeviceFacts(), truncated=True)
    assert {reading.trust for reading in after.values()} == {"caution"}


def test_cards_have_the_order_of_their_rows() -> None:
    places = [metric.card for metric in CARDS]
    assert places == sorted(places) and len(set(places)) == len(places), "two cards want one place"
    assert CARDS[0].key == "best_step_time_ms"


def test_an_alias_is_a_key_of_the_same_value() -> None:
    assert ALIASES == {"step_time_best_ms": "best_step_time_ms"}
    both = with_aliases({"best_step_time_ms": 5.0, "mfu": 0.4})
    assert both == {"best_step_time_ms": 5.0, "mfu": 0.4, "step_time_best_ms": 5.0}
    assert not set(ALIASES) & set(METRICS)


@pytest.mark.parametrize("error", [ZeroDivisionError, OverflowError, NotFiniteError])
def test_a_metric_that_cannot_be_computed_is_missing_with_the_reason(error: type[Exception]) -> None:
    """An error in a metric does not end the report with exit code 1.

    A gate reads this code as "slower".
    """

    def computed(_: DeviceMeasurements) -> Reading:
        raise error

    broken = replace(next(iter(METRICS.values())), compute=computed)
    reading = possible_reading(broken, DeviceMeasurements())
    assert reading.value is None and "could not be computed" in (reading.why_missing or "")

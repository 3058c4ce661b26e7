"""Tests of the reasons that lower trust in a number, and of the text about a recording's limits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from sawtooth.analysis.metrics import trust
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS


@dataclass
class Ranked:
    facts: DeviceFacts
    rank: int | None = None
    device: int = 1


@pytest.mark.parametrize(
    ("facts", "key", "severity", "count", "words"),
    [
        (DeviceFacts(gpus_left_out=3), "gpus_left_out", "data_loss", 3, "3 further GPUs"),
        (DeviceFacts(carried_over=1200, carried_over_ns=2_500_000), "carried_over", "info", 1200, "1,200 GPU operations (2.5 ms) on device 1"),
        (DeviceFacts(orphan=7, orphan_ns=1_000_000), "orphans", "data_loss", 7, "7 GPU operations (1 ms) on device 1 have no launch"),
        (DeviceFacts(orphan=7, orphan_ns=9, gpu_ns=10), "orphans", "data_loss", 7, "no launch in the trace: the profiler dropped host events. They"),
        (DeviceFacts(orphan=7, orphan_ns=10, gpu_ns=10), "orphans", "data_loss", 7, "no launch in the trace. They"),  # no host was recorded
        (DeviceFacts(graph_ns=51, gpu_ns=100), "graph_launched", "info", 1, "51 % of the GPU time on device 1"),
    ],
)  # fmt: skip
def test_limit_of_the_recording_is_reported(facts: DeviceFacts, key: str, severity: str, count: int, words: str) -> None:
    (found,) = trust.diagnostics_of([Ranked(facts)])
    assert (found.key, found.severity, found.count) == (key, severity, count)
    assert words in found.sentence
    (of_rank,) = trust.diagnostics_of([Ranked(facts, rank=4)])
    assert key == "gpus_left_out" or "rank 4, device 1" in of_rank.sentence


def test_a_recording_without_limits_reports_none() -> None:
    assert trust.diagnostics_of([Ranked(DeviceFacts(graph_ns=50, gpu_ns=100))]) == []


@pytest.mark.parametrize(("unknown", "lowered"), [(0.11, True), (0.10, False)])
def test_undecided_kernels_lower_trust(unknown: float, lowered: bool) -> None:
    before = {key: Reading(0.5) for key in METRICS} | {"tensor_core_unknown_share": Reading(unknown)}
    after = trust.apply(before, DeviceFacts(), truncated=False)
    doubted = {key for key, reading in after.items() if reading.trust == "caution"}
    assert doubted == (
        {key for key, metric in METRICS.items() if "undecided_kernels" in metric.doubted_by} if lowered else set()
    )


@pytest.mark.parametrize(("orphan_ns", "doubted"), [(4, "none"), (20, "by launches"), (51, "all")])
def test_operations_without_a_launch_lower_trust_in_steps(orphan_ns: int, doubted: str) -> None:
    before = {key: Reading(0.5) for key in METRICS} | {"tensor_core_unknown_share": Reading(0.0)}
    after = trust.apply(before, DeviceFacts(orphan_ns=orphan_ns, gpu_ns=100), truncated=False)
    low = {key for key, reading in after.items() if reading.trust == "caution"}
    rests_on_launches = {key for key, metric in METRICS.items() if "lost_launches" in metric.doubted_by}
    expected = {"none": set(), "by launches": rests_on_launches, "all": set(METRICS)}
    assert low == expected[doubted]
    assert "achieved_tflops" in rests_on_launches and "gpu_busy_share" not in rests_on_launches


@pytest.mark.parametrize(
    ("ms", "idle_ms", "doubts"),
    [
        ([10, 10, 100], [1, 1, 91], {"one_step", "one_step_idle"}),  # A slow step that waits.
        ([10, 10, 100], [1, 1, 10], {"one_step"}),  # A longer step that works.
        ([10, 10, 10], [0, 0, 9], {"one_step_idle"}),
        ([10, 13], [1, 1.3], {"one_step"}),
        ([10, 12], [1, 2], set()),
        ([9, 30] * 6, [1, 20] * 6, set()),  # Slow steps that come again and again.
        ([10], [9], {"one_step_idle"}),
        ([0, 41], [0, 37], {"one_step", "one_step_idle"}),  # One step took no time on the GPU.
        ([0, 10, 10], [0, 1, 9], {"one_step", "one_step_idle"}),
    ],
)
def test_single_step_that_decides_a_mean_lowers_trust(ms: list[float], idle_ms: list[float], doubts: set[str]) -> None:
    ends = np.cumsum(ms) * 1_000_000
    steps = pd.DataFrame({"step": range(len(ms)), "start_ns": ends - np.array(ms) * 1_000_000, "end_ns": ends, "counted": True})
    notes = trust.doubts_of_outlier(steps, {step: int(idle * 1_000_000) for step, idle in enumerate(idle_ms)}, "telemetry")
    assert notes.keys() == doubts
    of_profile = trust.doubts_of_outlier(steps, {}, "profile")
    assert ("step_of_profile" in of_profile) == (
        "one_step" in of_profile
    )  # A step time from the profile is a mean of its steps.
    after = trust.apply({key: Reading(0.05) for key in METRICS}, DeviceFacts(), truncated=False, outlier_doubts=notes)
    low = {key for key, reading in after.items() if reading.trust == "caution"}
    assert low == {key for key, metric in METRICS.items() if doubts.intersection(metric.doubted_by)}


@pytest.mark.parametrize(("orphan", "lowered"), [(6, True), (5, False)])
def test_short_operations_without_a_launch_lower_only_trust_in_the_count(orphan: int, lowered: bool) -> None:
    before = {key: Reading(0.05) for key in METRICS}
    after = trust.apply(before, DeviceFacts(orphan=orphan, orphan_ns=1, gpu_ns=1000, launches=95), truncated=False)
    assert {key for key in after if after[key] != before[key]} == ({"kernel_launches_per_step"} if lowered else set())

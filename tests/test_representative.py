"""Do the profiled steps speak for the run? Utilization outside the profile against the estimate."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.representative import judge, mean_utilization

SECOND = 1_000_000_000
RECORDINGS = Path(os.environ.get("SAWTOOTH_SHARED", Path(__file__).parents[2] / "shared")) / "recordings"


def every_tenth(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64) * SECOND // 10


def test_a_starved_run_is_not_what_its_profile_shows() -> None:
    # Kernels take 15 ms a step and the GPU is 12 % busy: a step takes 15 ÷ 0.12 = 125 ms, 5 times the 25 ms of the profile.
    verdict = judge(every_tenth(101), np.full(101, 12.0), None, 15e6, 900, 25e6)
    assert verdict.represents is False
    assert verdict.step_ns == pytest.approx(125e6)
    reading = verdict.reading()
    assert reading is not None and reading.value == pytest.approx(125.0)


def test_agreement_leaves_the_profile_alone() -> None:
    verdict = judge(every_tenth(101), np.full(101, 98.0), None, 25.5e6, 800, 26e6)  # 25.5 ÷ 0.98 = 26.02
    assert verdict.represents is True
    assert verdict.reading() is None


@pytest.mark.parametrize(("util", "kernel_ns", "estimate"), [(1.0, 15e6, 25e6), (50.0, 0.0, 25e6), (50.0, 15e6, None)])
def test_what_cannot_be_told_is_not_judged(util: float, kernel_ns: float, estimate: float | None) -> None:
    verdict = judge(every_tenth(101), np.full(101, util), None, kernel_ns, 10, estimate)
    assert verdict.represents is None
    assert verdict.sentence


def test_samples_in_the_profile_are_left_out() -> None:
    util = np.full(201, 90.0)
    util[100:150] = 10.0
    assert mean_utilization(every_tenth(201), util) == pytest.approx((151 * 90 + 50 * 10 - 90) / 200 / 100)
    assert mean_utilization(every_tenth(201), util, (int(9.9 * SECOND), 15 * SECOND)) == pytest.approx(0.9)


def test_idle_time_around_the_run_is_not_the_run() -> None:
    util = np.concatenate([[26.0] * 3, [0.0] * 10, [80.0] * 60, [0.0] * 20])
    assert mean_utilization(every_tenth(len(util)), util) == pytest.approx(0.8)


def test_a_sawtooth_keeps_its_valleys() -> None:
    tooth = [70.0, 30.0, 0.0, 0.0, 0.0]
    assert mean_utilization(every_tenth(101), np.array([0.0, *tooth * 20])) == pytest.approx(0.2)


def test_holes_and_missing_values_do_not_count() -> None:
    time = np.concatenate([every_tenth(50), every_tenth(50) + 100 * SECOND])
    util = np.concatenate([np.full(50, 60.0), np.full(50, 20.0)])
    assert mean_utilization(time, util) == pytest.approx((49 * 60 + 49 * 20) / 98 / 100)
    util[3] = math.nan
    assert mean_utilization(time, util) == pytest.approx((48 * 60 + 49 * 20) / 97 / 100)


@given(st.lists(st.floats(1, 100), min_size=12, max_size=60), st.randoms())
def test_order_and_duplicates_change_nothing(values: list[float], random: object) -> None:
    rows = list(zip(every_tenth(len(values)).tolist(), values, strict=True))
    expected = mean_utilization([r[0] for r in rows], [r[1] for r in rows])
    again = rows + rows[:5]
    random.shuffle(again)  # type: ignore[attr-defined]
    assert mean_utilization([r[0] for r in rows], [r[1] for r in rows]) == expected
    assert mean_utilization([r[0] for r in sorted(again)], [r[1] for r in sorted(again)]) == pytest.approx(expected)
    assert expected is not None and min(values) / 100 - 1e-9 <= expected <= max(values) / 100 + 1e-9


# Kernel time per step and the estimate of the unprofiled step, ms, as this project derives them from the traces beside.
MEASURED = {"gpt_sync": (25.4, 30.0, True), "gpt_nosync": (25.0, 26.3, True), "resnet_2workers": (15.2, 24.0, False)}


@pytest.mark.parametrize("name", [n for n in MEASURED if (RECORDINGS / n / "nvml.jsonl").exists()])
def test_shared_recordings(name: str) -> None:
    kernel_ms, estimate_ms, expected = MEASURED[name]
    lines = [json.loads(line) for line in (RECORDINGS / name / "nvml.jsonl").read_text().splitlines()[1:]]
    verdict = judge([s["t_ns"] for s in lines], [s["gpu_util"] for s in lines], None, kernel_ms * 1e6, 900, estimate_ms * 1e6)
    assert verdict.represents is expected


def test_samples_before_the_profile_speak_for_the_run_where_there_are_enough() -> None:
    """The driver's calls stay hooked after a profile, and the host slower: 80 % before, 40 % after, 0.1 s apart."""
    time, util = np.arange(60) * 10**8, np.where(np.arange(60) < 30, 80.0, 40.0)

    def mean(begin: int, end: int) -> float | None:
        return mean_utilization(time, util, (begin * 10**8, end * 10**8))

    assert mean(25, 35) == pytest.approx(0.8)
    # Before the sample at 0.9 s lie nine: too few, so all of the 9 + 24 outside count, 9 of 80 % and 24 of 40 %.
    assert mean(9, 35) == pytest.approx((9 * 0.8 + 24 * 0.4) / 33)

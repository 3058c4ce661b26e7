"""Tests of the dispatch calibration, on a fake GPU whose utilization is a formula."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sawtooth.ingest.capture.dispatch import calibrate
from sawtooth.ingest.errors import UsageError


@dataclass
class FakeGpu:
    """A GPU that is busy for the 0.9 µs of a kernel and ``dispatch_us`` more.

    ``other_share`` is the share of time for which other work keeps the GPU busy. NVML gives whole percents.
    """

    dispatch_us: float
    other_share: float = 0.0
    name: str = "NVIDIA Fake"

    def duration_us(self) -> float:
        return 0.9

    def launch(self, interval_us: float, seconds: float) -> tuple[float, float]:
        assert seconds == 3.0
        real_interval_us = interval_us * 1.02  # The host is a little late.
        return real_interval_us, round(min((0.9 + self.dispatch_us) / real_interval_us + self.other_share, 1.0), 2)


@pytest.mark.parametrize("dispatch_us", [0.8, 1.1, 1.3, 2.4])
def test_the_dispatch_time_is_found(dispatch_us: float) -> None:
    found = calibrate(FakeGpu(dispatch_us))
    assert found.dispatch_us == pytest.approx(dispatch_us, abs=0.15)  # Half a percent of 32 µs.
    assert found.low_us <= dispatch_us <= found.high_us
    assert found.high_us - found.low_us < 1.0


@pytest.mark.parametrize("gpu", [FakeGpu(1.1, other_share=0.1), FakeGpu(-0.9), FakeGpu(40.0)])
def test_a_gpu_in_use_by_others_is_refused(gpu: FakeGpu) -> None:
    with pytest.raises(UsageError, match="Stop other programs on the GPU"):
        calibrate(gpu)

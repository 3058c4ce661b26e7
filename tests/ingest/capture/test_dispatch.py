"""Tests of the dispatch calibration, on a GPU that is a formula."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from sawtooth.ingest.capture.dispatch import calibrate
from sawtooth.ingest.errors import UsageError


@dataclass
class FakeGpu:
    """A GPU with kernels of 0.9 µs that stay resident ``dispatch_us`` longer.

    ``other`` is the share of time for which other work keeps it busy. NVML gives whole percents.
    """

    dispatch_us: float
    other: float = 0.0
    name: str = "NVIDIA Fake"

    def duration_us(self) -> float:
        return 0.9

    def launch(self, interval_us: float, seconds: float) -> tuple[float, float]:
        assert seconds == 3.0
        kept = interval_us * 1.02  # the host is a little late
        return kept, round(min((0.9 + self.dispatch_us) / kept + self.other, 1.0), 2)


@pytest.mark.parametrize("dispatch_us", [0.8, 1.1, 1.3, 2.4])
def test_the_dispatch_time_is_found(dispatch_us: float) -> None:
    found = calibrate(FakeGpu(dispatch_us))
    assert found.dispatch_us == pytest.approx(dispatch_us, abs=0.15)  # half a percent of 32 µs
    assert found.low_us <= dispatch_us <= found.high_us
    assert found.high_us - found.low_us < 1.0


@pytest.mark.parametrize("gpu", [FakeGpu(1.1, other=0.1), FakeGpu(-0.9), FakeGpu(40.0)])
def test_a_gpu_in_use_by_others_is_refused(gpu: FakeGpu) -> None:
    with pytest.raises(UsageError, match="Stop other programs on the GPU"):
        calibrate(gpu)

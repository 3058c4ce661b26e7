"""Tests of the curve at the top of the Verdict: where one step is marked."""

import pytest

from sawtooth.app.page.panorama import _with_usual_work


@pytest.mark.parametrize(
    ("start", "marked"),
    [
        (0.1, 0.1),  # The GPU is busy there.
        # The GPU is idle from 0.2 to 0.6, while the profiler starts. The mean utilization is 60 %, and a span needs
        # at least 48 %.
        (0.5, 0.6),
        (0.3, 0.1),  # The nearest span starts at 0.2, but it is idle. The next one starts at 0.1.
    ],
)
def test_one_step_is_marked_where_the_gpu_does_its_usual_work(start: float, marked: float) -> None:
    busy = [(0.0, 0.1, 100.0), (0.1, 0.2, 100.0), (0.6, 0.9, 100.0), (0.9, 1.0, 100.0)]
    spans = sorted([*busy, (0.2, 0.6, 0.0)])
    assert _with_usual_work(start, 0.02, spans) == marked

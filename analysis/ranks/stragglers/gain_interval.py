"""The interval of the step time without a delay by late ranks."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.replay.whatif import GAIN_ERROR, GPU_LIMITED_STEP_DIFFERENCE, HOST_LIMITED_STEP_DIFFERENCE, STEP_ERROR


def step_interval(step_ms: float, after_ms: float, works_ms: Sequence[float]) -> tuple[float, float]:
    """Return the interval of ``after_ms``, with the error of replayed gains and the spread of such runs.

    ``works_ms`` is the GPU work of the other ranks. If this work fills less of the step, the interval is wider, because the
    speed of hosts varies more.
    """
    off_ms = min(GAIN_ERROR * (step_ms - after_ms), STEP_ERROR * after_ms)
    waits = 1 - min(max(works_ms, default=0.0) / after_ms, 1.0)
    differ = max(GPU_LIMITED_STEP_DIFFERENCE, min(HOST_LIMITED_STEP_DIFFERENCE, waits))
    low_ms, late_ms = (after_ms - off_ms) * (1 - differ), after_ms + off_ms
    return low_ms, max(late_ms * (1 + GPU_LIMITED_STEP_DIFFERENCE), min(late_ms * (1 + differ), step_ms))

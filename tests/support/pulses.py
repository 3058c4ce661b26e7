"""Signals with a known rhythm, sampled as NVML and GPM do.

Each value is the exact mean over a window that ends at the sample's time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

START_NS = 1_800_000_000_000_000_000


def pulse_train(
    rng: np.random.Generator,
    *,
    period_s: float,
    duty: float,
    samples: int,
    spacing_s: float = 0.1,
    window_s: float | None = None,
    noise: float = 0.0,
    jitter: float = 0.0,
    high: float = 100.0,
    low: float = 0.0,
    sampling_jitter: float = 0.005,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return times and values; without ``window_s``, windows begin at the previous sample (GPM)."""
    total = samples * spacing_s * 1.2 + 10 * period_s
    lengths = period_s * np.clip(1 + jitter * rng.standard_normal(int(total / period_s) + 3), 0.3, None)
    on = np.concatenate([[0], np.cumsum(lengths)])[:-1] - rng.uniform(0, period_s) - period_s
    off = on + duty * period_s
    times = np.cumsum(np.concatenate([[0], spacing_s * (1 + sampling_jitter * rng.standard_normal(samples))]))

    begin = times[:-1] if window_s is None else times[1:] - window_s
    share = sampled_work(on, off, times[1:], begin) / 100
    values = np.clip(low + (high - low) * share + noise * rng.standard_normal(samples), 0, 100)
    return START_NS + (times[1:] * 1e9).astype(np.int64), values


def sampled_work(
    on: NDArray[np.float64], off: NDArray[np.float64], ends: NDArray[np.float64], begins: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share of work in each window, in percent; the GPU works from each ``on`` to ``off``."""

    def busy_until(at: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([np.clip(x - on, 0, off - on).sum() for x in at])

    share: NDArray[np.float64] = 100 * (busy_until(ends) - busy_until(begins)) / (ends - begins)
    return share

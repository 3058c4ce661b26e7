"""Choice of the batch sizes to try: double until memory runs out, then bisect.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sawtooth.ingest.loop.batch_rule import accumulated_gain, advised_below

# The search stops when the largest batch that fits is known to within 1/16 of its size. The recommended batch is a fifth
# smaller, so this precision is enough.
PRECISION_DIVISOR = 16


@dataclass(frozen=True)
class BatchSizeTrial:
    """A batch of ``batch`` samples: step time (median, lowest, highest), optimizer time, and peak memory.

    The times and the memory are None if the batch did not fit into memory. ``optimizer_ms`` is also None without an optimizer.
    ``memory_bytes`` is also None without a GPU.
    """

    batch: int
    step_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    optimizer_ms: float | None = None
    memory_bytes: int | None = None

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second; None if the batch did not fit."""
        return 1e3 * self.batch / self.step_ms if self.step_ms else None

    def accumulated_per_s(self, batch: float) -> float | None:
        """Return samples per second if gradients of this size are accumulated to ``batch`` samples."""
        if not self.step_ms or batch < self.batch:
            return None
        return 1e3 * self.batch / self.step_ms * accumulated_gain(self.batch, self.step_ms, self.optimizer_ms or 0.0, batch)

    def row(self) -> dict[str, Any]:
        """Return the known values as a row of the manifest."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class BatchSizes:
    """Trials by size, the largest batch that ran, and the smallest that did not fit (None if all fitted)."""

    trials: tuple[BatchSizeTrial, ...]
    largest: int | None
    too_large: int | None

    @property
    def advised(self) -> int | None:
        """The recommended batch size. If a batch was too large, it is smaller than the largest batch that ran."""
        if self.largest is None or self.too_large is None:
            return self.largest
        return advised_below(self.largest)


def search(
    start: int,
    min_size: int,
    max_size: int,
    try_size: Callable[[int], BatchSizeTrial],
    fits: Callable[[int], bool],
    has_time: Callable[[], bool] = lambda: True,
) -> BatchSizes:
    """Return trials from ``min_size`` to the largest batch that fits, at most ``max_size``.

    ``try_size`` times a size. ``fits`` only runs a size. After one size has run, ``has_time`` returns whether another size may begin.
    """
    trials: dict[int, BatchSizeTrial] = {}

    def runs(size: int) -> bool:
        trials[size] = try_size(size)
        return trials[size].step_ms is not None

    size, too_large = start, None
    while not runs(size):
        too_large = size
        if size <= min_size:
            return BatchSizes(_by_size(trials), None, too_large)
        size = max(size // 2, min_size)
    largest = size
    while too_large is None and largest < max_size and has_time():
        size = min(2 * largest, max_size)
        if runs(size):
            largest = size
        else:
            too_large = size
    size = min(trials)
    while size > min_size and has_time():
        size = max(size // 2, min_size)
        runs(size)
    while too_large is not None and too_large - largest > max(largest // PRECISION_DIVISOR, 1) and has_time():
        middle = (largest + too_large) // 2
        if fits(middle):
            largest = middle
        else:
            too_large = middle
    if too_large is not None:
        for size in (advised_below(largest), largest):
            # A size that fitted before may fail now, because free memory is fragmented differently.
            if size not in trials and has_time() and not runs(size):
                too_large, largest = size, max(size for size, trial in trials.items() if trial.step_ms)
                break
    return BatchSizes(_by_size(trials), largest, too_large)


def _by_size(trials: dict[int, BatchSizeTrial]) -> tuple[BatchSizeTrial, ...]:
    return tuple(trials[size] for size in sorted(trials))

"""Rules about batch sizes: the recommended size, and the speedup from accumulating gradients.

Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

# Share of the largest batch that fits. The rest is a margin for longer samples, fragmentation and evaluation.
LARGEST_BATCH_SHARE = 0.8
BATCH_MULTIPLE = 8  # Tensor cores work on blocks of eight rows.


def advised_below(largest: float) -> int:
    """Return LARGEST_BATCH_SHARE × ``largest``, rounded down to a multiple of BATCH_MULTIPLE if possible."""
    size = int(LARGEST_BATCH_SHARE * largest)
    return size - size % BATCH_MULTIPLE if size >= BATCH_MULTIPLE else max(size, 1)


def accumulated_gain(batch: float, step_ms: float, optimizer_ms: float, total: float) -> float:
    """Return the speedup (ratio of samples per second) from accumulating gradients.

    Gradients of batches with ``batch`` samples are accumulated to ``total`` samples. A step with one batch takes ``step_ms``, of which
    ``optimizer_ms`` is needed only once for all accumulated batches.
    """
    passes = total / batch
    return passes * step_ms / (passes * step_ms - (passes - 1) * min(optimizer_ms, step_ms))

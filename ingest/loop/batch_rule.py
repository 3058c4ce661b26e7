"""Rules about batch sizes: the recommended size, and the speedup from accumulating gradients.

Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

RULE = 0.8  # Share of the largest batch that fits. The rest is a margin for longer samples, fragmentation and evaluation.
MULTIPLE = 8  # Tensor cores work on blocks of eight rows.


def advised_below(largest: float) -> int:
    """Return RULE × ``largest``, rounded down to a multiple of MULTIPLE if it is at least MULTIPLE."""
    size = int(RULE * largest)
    return size - size % MULTIPLE if size >= MULTIPLE else max(size, 1)


def accumulated_gain(batch: float, step_ms: float, optimizer_ms: float, total: float) -> float:
    """Return the speedup (ratio of samples per second) from accumulating gradients.

    Gradients of batches with ``batch`` samples are accumulated to ``total`` samples. A step with one batch takes ``step_ms``, of which
    ``optimizer_ms`` is needed only once for all accumulated batches.
    """
    passes = total / batch
    return passes * step_ms / (passes * step_ms - (passes - 1) * min(optimizer_ms, step_ms))

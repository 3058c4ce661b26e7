"""Rules about batch sizes: the recommended size, and the speedup from accumulating gradients.

Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

RULE = 0.8  # Share of the largest batch that fits. The rest is a margin for longer samples, fragmentation and evaluation.
MULTIPLE = 8  # Tensor cores work in blocks of eight.


def advised_below(largest: float) -> int:
    """Return RULE × ``largest``, rounded down to a multiple of MULTIPLE if it is at least MULTIPLE."""
    size = int(RULE * largest)
    return size - size % MULTIPLE if size >= MULTIPLE else max(size, 1)


def accumulated_gain(batch: float, step_ms: float, optimizer_ms: float, to: float) -> float:
    """Return the speedup (ratio of samples per second) from accumulating gradients.

    Gradients of batches with ``batch`` samples are accumulated until ``to`` samples are reached. A step with one batch takes ``step_ms``. Its optimizer part, ``optimizer_ms``, runs only once for all accumulated batches.
    """
    passes = to / batch
    return passes * step_ms / (passes * step_ms - (passes - 1) * min(optimizer_ms, step_ms))

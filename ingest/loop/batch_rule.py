"""What is said of batch sizes wherever they were measured: the usual rule below the largest that fits, and what accumulating gradients gives.

Standard library only: it is part of the recorder.
"""

from __future__ import annotations

RULE = 0.8  # of the largest batch that fits, as is usual: longer samples, fragmentation and evaluation take the rest
MULTIPLE = 8  # tensor cores work in blocks of eight


def advised_below(largest: float) -> int:
    """Return RULE of ``largest``, in multiples of MULTIPLE where it has several."""
    size = int(RULE * largest)
    return size - size % MULTIPLE if size >= MULTIPLE else max(size, 1)


def accumulated_gain(batch: float, step_ms: float, optimizer_ms: float, to: float) -> float:
    """Return how many times as many samples a second batches of ``batch`` give where their gradients are accumulated to ``to`` samples.

    A step of a batch takes ``step_ms``, of which the optimizer's ``optimizer_ms`` come once for all of them.
    """
    passes = to / batch
    return passes * step_ms / (passes * step_ms - (passes - 1) * min(optimizer_ms, step_ms))

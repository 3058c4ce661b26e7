"""Reader for the step rate of a training, from a file that `sawtooth run` writes.

The file is one JSON object of numbers: ``step``, ``p50_ms``, ``p95_ms`` and ``per_s`` of the recent steps, and ``samples`` and
``flops`` per step if they are known. The writer replaces the file atomically. The sampler checks the file once a second, and writes a
record into the session after a change.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

PERIOD_NS = 10**9  # Time between checks. People cannot read text that changes more often.
MAX_BYTES = 4096  # Largest number of bytes that are read.
KEYS = ("step", "p50_ms", "p95_ms", "per_s", "samples", "flops")


class StepRateReader:
    """Reads the step rate from ``path``, at most once a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due_ns = 0
        self._changed_ns = 0

    def read(self, now_ns: int) -> dict[str, float] | None:
        """Return new values; None if no reading is due, the file has not changed, or it is unreadable."""
        if now_ns < self._due_ns:
            return None
        self._due_ns = now_ns + PERIOD_NS
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns == self._changed_ns:
                return None
            with self._path.open("rb") as file:
                content = json.loads(file.read(MAX_BYTES))
            self._changed_ns = changed_ns
            values = {key: float(content[key]) for key in KEYS if content.get(key) is not None}
        except (OSError, ValueError, TypeError, AttributeError):
            return None
        return values if values and all(map(math.isfinite, values.values())) else None

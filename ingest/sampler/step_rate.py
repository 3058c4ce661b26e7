"""Reader for the step rate of a training, from a file that `sawtooth run` writes.

The file is one JSON object of numbers: ``step``, ``p50_ms``, ``p95_ms`` and ``per_s`` of the recent steps, and ``samples`` and
``flops`` of a step if they are known. The writer replaces the file atomically. The sampler checks it once a second and writes a
record into the session when it has changed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

LOOK_NS = 10**9  # People cannot read a line of text that changes more often than once a second.
LONGEST = 4096  # bytes of the file that are read
KEYS = ("step", "p50_ms", "p95_ms", "per_s", "samples", "flops")


class StepRateReader:
    """Reads the step rate from ``path``, at most once a second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due_m = 0
        self._changed = 0

    def read(self, now_m: int) -> dict[str, float] | None:
        """Return the new values; None if no reading is due, nothing changed or the file is unreadable."""
        if now_m < self._due_m:
            return None
        self._due_m = now_m + LOOK_NS
        try:
            changed = self._path.stat().st_mtime_ns
            if changed == self._changed:
                return None
            with self._path.open("rb") as file:
                values = json.loads(file.read(LONGEST))
            self._changed = changed
            known = {key: float(values[key]) for key in KEYS if values.get(key) is not None}
        except (OSError, ValueError, TypeError, AttributeError):
            return None
        return known if known and all(map(math.isfinite, known.values())) else None

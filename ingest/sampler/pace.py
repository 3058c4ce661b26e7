"""How fast a training steps, as a process beside the sampler writes it into a file: a record of the session each time it changes.

The file is one JSON object of numbers: ``step``, ``p50_ms``, ``p95_ms`` and ``per_s`` of the recent steps, and, where they are known, ``samples`` and
``flops`` of a step. It is replaced whole, and looked at once a second.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

LOOK_NS = 10**9  # a line of text that changes faster cannot be read
LONGEST = 4096  # bytes
KEYS = ("step", "p50_ms", "p95_ms", "per_s", "samples", "flops")


class PaceReader:
    """Reads ``path`` now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due_m = 0
        self._changed = 0

    def read(self, now_m: int) -> dict[str, float] | None:
        """Return what is new, None where it is not time yet, nothing changed or nothing can be read."""
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

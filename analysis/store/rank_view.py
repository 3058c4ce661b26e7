"""One open rank of an analysed run, from which its tables and rules are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.store.library import Recording


@dataclass(frozen=True)
class RankView:
    """A device of an open recording, whose lost-time tables include the results of all ranks of the run.

    ``gpu`` has the device's peaks, None if its model is not known.
    """

    recording: Recording
    device: int
    counted_steps: int
    gpu: GpuPeaks | None = None

    @property
    def step_divisor(self) -> int:
        """The divisor that turns a sum over the window into a value per step; 1 if no steps are counted."""
        return max(self.counted_steps, 1)

    def frame(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """Run a SELECT that may use ``$device`` and the names of ``parameters``; return its rows."""
        return self.recording.frame(sql, {"device": self.device, **parameters})

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a SELECT like ``frame``; return the rows as tuples."""
        return self.recording.rows(sql, {"device": self.device, **parameters})

"""One rank of an analysed run, opened: what every table and rule of it is made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.knowledge.hardware import Gpu
from sawtooth.analysis.store.library import Recording


@dataclass(frozen=True)
class RankView:
    """A device of an open recording, whose lost time carries what all ranks of the run know together.

    ``gpu`` holds the device's peaks, None where the model is not known.
    """

    recording: Recording
    device: int
    counted_steps: int
    gpu: Gpu | None = None

    @property
    def per(self) -> int:
        """What sums over the counted steps are divided by: 1 where there are none, and the sum is of the window."""
        return max(self.counted_steps, 1)

    def frame(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """Run a SELECT that speaks of ``$device``, and of ``parameters`` by their names; return its rows."""
        return self.recording.frame(sql, {"device": self.device, **parameters})

    def rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """As ``frame``; return the rows as tuples."""
        return self.recording.rows(sql, {"device": self.device, **parameters})

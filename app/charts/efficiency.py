"""The gap between a step and the GPU's peak, as a waterfall of bars in the rows of a table.

Each bar ends where the previous one began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from sawtooth.analysis.knowledge.owners import AVOIDABLE
from sawtooth.app.charts.cause_bars import LostBar
from sawtooth.app.theme import ACCENT, OWNERS, UNKNOWN, Colour

PartKey = Literal["idle", "exposed_memcpy", "exposed_comm", "other_kernels", "dtype", "clock", "slow_kernels", "rest", "peak"]
LABELS: dict[PartKey, str] = {
    "idle": "The GPU is idle",
    "exposed_memcpy": "Exposed copies",
    "exposed_comm": "Exposed communication",
    "other_kernels": "Other kernels",
    "dtype": "Not in 16 bit",
    "clock": "A lower clock",
    "slow_kernels": "Slow products and attention",
    "rest": "Everything else",
    "peak": "At the peak (MFU)",
}
COLUMNS = {"part": "Part of a step", "ms": "ms per step", "share": "Share of the step", "left_share": "Left of the peak"}
METRICS = ("mfu", "mfu_factor_busy", "mfu_factor_flop_kernels", "mfu_factor_clock", "mfu_factor_efficiency")
METHOD = (
    "A step is divided into the time of products, convolutions and attention, the time of other kernels, and the time in which the GPU does nothing, only "
    "copies or only communicates (as on Idle). For products, convolutions and attention, 'at the peak' is their FLOPs ÷ the GPU's dense 16-bit peak; its "
    "share of the step is the MFU. The rest of their time is assigned first to the lower peak of wider dtypes, then to a clock below the rated one, and then to slow kernels."
)
# All three are time of the same kernels, so textures distinguish them.
TEXTURES = {"dtype": "x", "clock": "-", "slow_kernels": "/"}


@dataclass(frozen=True)
class PeakPart:
    """One part of a step in the comparison with the GPU's 16-bit peak: its ms and its share of the step.

    The last part, ``peak``, is the time of the step's FLOPs at that peak, so its share is the MFU.
    """

    key: PartKey
    ms: float
    share: float

    @property
    def label(self) -> str:
        """The part's name in a table."""
        return LABELS[self.key]


def bars(parts: Sequence[PeakPart], causes: Mapping[PartKey, Colour], *, dark: bool) -> list[LostBar]:
    """Return the bar of the whole step, then one bar for each part.

    Each bar ends where the previous one began, and the last one begins at 0. ``causes`` has the colours of waits with a known
    cause.
    """
    lost_bars, right = [LostBar("100%", UNKNOWN.on(dark))], 1.0
    for part in parts:
        right = max(right - part.share, 0.0)
        colour = causes.get(part.key) or _colour(part.key)
        texture = TEXTURES.get(part.key, colour.texture)
        lost_bars.append(LostBar(f"{part.share:.2%}", colour.on(dark), texture, offset=f"{right:.2%}"))
    return lost_bars


def _colour(key: PartKey) -> Colour:
    colours = {"peak": ACCENT, "rest": UNKNOWN, "other_kernels": OWNERS["other_compute"]}
    return colours.get(key) or OWNERS.get(key, OWNERS[AVOIDABLE])


def table(parts: Sequence[PeakPart]) -> pd.DataFrame:
    """Return the parts as a table with ``COLUMNS``.

    ``left_share`` is the share of the step that remains after this part and the parts above it.
    """
    rows, remaining = [], 1.0
    for part in parts:
        remaining -= part.share if part.key != "peak" else 0.0
        rows.append((part.label, part.ms, part.share, remaining))
    return pd.DataFrame(rows, columns=list(COLUMNS))

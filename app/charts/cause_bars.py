"""The cost of each cause of lost time per step, as a bar in its table row.

All bars use one basis: the run, or its profiled steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.run.verdict import StepPart, columns_of, parts_of
from sawtooth.app.theme import UNKNOWN, colour_of

COLUMNS = {
    "label": "Cause",
    "unprofiled_ms": "Without the profiler, ms per step",
    "recorded_ms": "As profiled, ms per step",
    "recoverable_ms": "Gained without it, ms per step",
}
METRICS = ("gpu_idle_share", "step_time_unprofiled_est_ms")
METHOD = (
    "Every piece of lost time has one cause. The cause follows from what the launching thread did at that time, and from whether and why the launch queue was empty. "
    "The run's times come from a replay of the trace without the profiler's own cost, scaled to the run's step. 'Gained' is the gain of a replay with the cause "
    "removed. Removing one wait often uncovers another, so the gain is less than the bar, and gains do not add up."
)


@dataclass(frozen=True)
class LostBar:
    """The bar of a cause: its length relative to the largest one (CSS), its fill, and its start.

    An empty ``width`` means that there is no bar.
    """

    width: str
    colour: str = ""
    texture: str = ""
    offset: str = "0"


def bars(lost: Sequence[tuple[str, str | None, float]], *, dark: bool) -> list[LostBar]:
    """Return one bar per cause.

    ``lost`` has owner ("" for the sum of the small ones), cause and ms, largest first.
    """
    largest = max((ms for *_, ms in lost), default=0.0)
    segments = []
    for owner, cause, ms in lost:
        colour = colour_of(owner, cause) if owner else UNKNOWN
        segments.append(LostBar(f"{ms / largest:.2%}" if largest else "", colour.on(dark), colour.texture if owner else ""))
    return segments


def table(rank: RankResult, gained_ms: pd.Series) -> pd.DataFrame:
    """Return every cause with its time on both bases and its ``gained_ms`` in the replay."""
    named = {column: {_key(part): part for part in parts_of(rank, column) if part.lost} for column in columns_of(rank)}
    keys = list(dict.fromkeys(key for parts in named.values() for key in parts))
    return pd.DataFrame(
        [
            {
                "label": colour_of(*key).label,
                "unprofiled_ms": named["unprofiled"][key].ms if key in named.get("unprofiled", {}) else None,
                "recorded_ms": named["recorded"][key].ms if key in named["recorded"] else 0.0,
                "recoverable_ms": gained_ms.get(key[1] or key[0]),
            }
            for key in keys
        ]
    ).astype({"unprofiled_ms": float, "recorded_ms": float, "recoverable_ms": float})


def _key(part: StepPart) -> tuple[str, str | None]:
    return (part.owner, part.cause)

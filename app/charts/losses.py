"""What each cause of lost time costs a step, on one basis (the run, or its profiled steps): a bar in its table's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.app.theme import UNKNOWN, colour_of

COLUMNS = {
    "label": "Cause",
    "unprofiled_ms": "Without the profiler, ms per step",
    "recorded_ms": "As profiled, ms per step",
    "recoverable_ms": "Gained without it, ms per step",
}
METRICS = ("gpu_idle_share", "step_time_unprofiled_est_ms")
METHOD = (
    "Every piece of lost time has one cause: what the launching thread did meanwhile, whether the queue had run dry, and what had drained it. "
    "The run's times come from a replay of the trace without the profiler's own cost, brought to the run's step. 'Gained' is the replay with the cause "
    "removed: removing one wait often uncovers another, so it is less than the bar, and gains do not add up."
)


@dataclass(frozen=True)
class LostBar:
    """The bar of a cause: its length against the largest one's (CSS), how it is filled, and where it begins. ``width`` "" leaves it out."""

    width: str
    colour: str = ""
    texture: str = ""
    offset: str = "0"


def bars(lost: Sequence[tuple[str, str | None, float]], *, dark: bool) -> list[LostBar]:
    """Return one bar a cause; ``lost`` has owner ("" for all the small ones), cause and ms, largest first."""
    largest = max((ms for *_, ms in lost), default=0.0)
    drawn = []
    for owner, cause, ms in lost:
        colour = colour_of(owner, cause) if owner else UNKNOWN
        drawn.append(LostBar(f"{ms / largest:.2%}" if largest else "", colour.on(dark), colour.texture if owner else ""))
    return drawn

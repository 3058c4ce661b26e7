"""Severity thresholds: the least share of a step that each kind of finding needs, with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """Least share that a rule reports, and the reason for it.

    It is a share of the step, unless ``of`` says otherwise.
    """

    share: float
    reason: str
    of: str = "step"


# A change costs the reader time and has a risk. The larger both are, the more it must bring.
LINE_TO_DELETE = Bar(0.005, "one argument to delete: nothing can go wrong")
ONE_LINE = Bar(0.01, "one line or argument to change: below 1 % it costs more to read about it than it brings")
FEW_LINES = Bar(0.02, "a few lines to rewrite: below 2 % the gain is within the noise of most step times")
CALL_TO_LOOK_AT = Bar(0.03, "a call whose inputs or lengths have to be looked at: worth it from 3 %")
OTHER_CODE = Bar(0.05, "other code for a layer or loop, a graph, or other rounding: worth it from 5 %")
RARE_EVENTS = Bar(
    0.03, "pauses between steps: a loop without a fault stands still for 1 to 2 % of its mean step", of="mean step"
)
CHOICE = Bar(0.10, "a choice with costs of its own, such as minutes of compiling: worth it from a tenth")
LARGER_BATCH = Bar(0.15, "below this share of launches the batch is not what limits")
HALF_AS_OFTEN = Bar(0.20, "what is done half as often brings half of it: a tenth of the step")
FP8 = Bar(0.40, "scaling and casting take a few percent themselves: worth trying where products are most of the step")

# Thresholds relative to something other than the step.
RECOMPUTED = Bar(0.10, "below a tenth checkpointing is selective already", of="the model's FLOPs")
THERMAL_THROTTLING = Bar(0.05, "single samples are ordinary", of="the sampled time")
POWER_THROTTLING = Bar(0.20, "below it the mean clock hardly moves", of="the sampled time")
DISTORTED = Bar(1.3, "below it the shape of the profile still holds", of="the run's step that a profiled one takes")

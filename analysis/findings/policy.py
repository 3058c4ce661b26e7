"""Severity thresholds: the smallest share of a step that each kind of finding must reach, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """Smallest share of the step, or of the quantity ``of``, that a rule reports, and the reason."""

    share: float
    reason: str
    of: str = "step"


# A change takes the user's time and has a risk. The more time and risk, the larger the gain must be.
LINE_TO_DELETE = Threshold(0.005, "one argument to delete, which is safe: every gain is reported")
ONE_LINE_TO_CHANGE = Threshold(0.01, "one line or argument to change: below 1 % the gain is too small to read about")
FEW_LINES_TO_CHANGE = Threshold(0.02, "a few lines to rewrite: below 2 % the gain is within the noise of most step times")
CALL_TO_CHECK = Threshold(0.03, "a call whose inputs or lengths must be checked by hand: reported from 3 %")
OTHER_CODE = Threshold(0.05, "other code for a layer or loop, a graph, or other rounding: reported from 5 %")
RARE_EVENTS = Threshold(
    0.03, "pauses between steps: a loop without a problem pauses for 1 to 2 % of its mean step", of="mean step"
)
CHOICE_WITH_COSTS = Threshold(0.10, "a choice that itself costs something, such as minutes of compiling: reported from 10 %")
LARGER_BATCH = Threshold(0.15, "below this share of launches, the batch size does not limit the step")
CALL_TO_HALVE = Threshold(0.20, "half as many calls save half of this share, a tenth of the step")
FP8 = Threshold(0.40, "scaling and casting take a few percent: reported if matrix products are most of the step")

# Thresholds relative to something other than the step.
RECOMPUTED = Threshold(0.10, "below a tenth, checkpointing is selective already", of="the model's FLOPs")
THERMAL_THROTTLING = Threshold(0.05, "single throttled samples are normal", of="the sampled time")
POWER_THROTTLING = Threshold(0.20, "below it, the mean clock hardly changes", of="the sampled time")
DISTORTED = Threshold(1.3, "below it, the profile still shows which parts are large", of="the run's step")

"""The limits of a comparison: what differs besides the change, and trainings that failed."""

from __future__ import annotations

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.reasons import GPU_BESIDE_CPU, STEP_TIME_SOURCE, Reason
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons import profiles_of_one_run
from sawtooth.app.words.comparisons.comparison import shown

# High confidence needs a change of at least twice the uncertainty, which is 10 % for step times from two sources.
SMALL_DIFFERENCE = "but the change is far larger than the 10 % that this can cause."


def sentences(comparison: Comparison, *, profiles: bool = True) -> list[str]:
    """Return failures of trainings, why later steps are slower, and reasons not to compare.

    ``profiles`` adds a disagreement between the profiles and the runs.
    """
    limits = [
        *_failures(comparison),
        *filter(None, [profiles_of_one_run.why_longer(comparison)]),
        *([comparison.disagreement] if comparison.disagreement and profiles else []),
        *(
            _limit(reason, comparison)
            for reason in comparison.reasons
            if reason.key != GPU_BESIDE_CPU and not _is_in_headline(reason.key, comparison)
        ),
    ]
    return [fmt.spaced(sentence) for sentence in limits]


def _limit(reason: Reason, comparison: Comparison) -> str:
    """Return the sentence of a reason not to compare.

    If the step times are from two sources and the change is certain, the sentence says that the change is far larger than
    their difference.
    """
    is_certain = shown(comparison) and comparison.leading.confidence == "high"
    if is_certain and reason.key == STEP_TIME_SOURCE:
        return f"{reason.sentence.partition(':')[0]}, {SMALL_DIFFERENCE}"
    return reason.sentence


def _failures(comparison: Comparison) -> list[str]:
    """Return the messages of `sawtooth run` about trainings that ended with an error."""
    sides = zip("AB", (comparison.a, comparison.b), strict=True)
    return [f"{name}: {fmt.clean(run.manifest.failure)}" for name, side in sides for run in side.runs if run.manifest.failure]


def _is_in_headline(key: str, comparison: Comparison) -> bool:
    """Return whether the headline already says what the reason of ``key`` says."""
    if comparison.other_program:
        return key != "gpu"
    if comparison.other_model and key == STEP_TIME_SOURCE:
        return True  # No change is measured, so a difference of a few percent does not matter.
    return key in ("work", "shapes") and (comparison.other_model or comparison.throughput is not None)

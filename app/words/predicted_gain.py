"""The gain of a change in words, for the Verdict, the Audit and shared files."""

from __future__ import annotations

from sawtooth.analysis.run.job import Straggler
from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt
from sawtooth.app.words.savings import predicted_range

MIN_EXPLAINED_DIFFERENCE = 0.05  # Share of a straggler's delay. A smaller difference to the gain needs no explanation.


def gain_text(finding: Finding) -> str:
    """Return the gain of a finding in words, such as "saves ≈ 265 ms per step (85 %)"."""
    if finding.claims == "gain" and finding.predicted_step_ms is not None:
        share = fmt.share(1 - remaining_share(finding))
        after_ms = finding.predicted_step_ms
        return f"saves ≈\u00a0{fmt.saved_time(after_ms + finding.gain_ms, after_ms)} per step ({share})"
    if finding.pays_later:
        return "helps only after another change"
    if finding.claims == "ceiling" and finding.ceiling_ms_per_step is not None:
        if "hidden" in finding.explains.topics and not finding.explains.causes:  # The advice is to record more steps.
            return f"{fmt.duration_ms(finding.ceiling_ms_per_step)} of each step is in no profiled step"
        if finding.action.records_again:
            return f"{fmt.duration_ms(finding.ceiling_ms_per_step)} of each profiled step would not be in the recording"
        return f"saves at most {fmt.duration_ms(finding.ceiling_ms_per_step)} per step"
    return more_samples(finding) or caution(finding)


def detail(finding: Finding) -> str:
    """Return the step time after a change and its confidence; "" if nothing is claimed.

    An example is "then ≈ 47.0 ms (41.2 to 55.0 ms), high confidence".
    """
    if finding.claims == "caution":
        return ""
    confidence = confidence_in_words(finding)
    if finding.claims != "gain" or finding.predicted_step_ms is None:
        return confidence
    interval = f" ({interval})" if (interval := predicted_range(finding)) else ""
    return f"then ≈\u00a0{fmt.duration_ms(finding.predicted_step_ms)}{interval}, {confidence}"


def confidence_in_words(finding: Finding) -> str:
    """Return the confidence of a change.

    It is "may gain nothing" if the predicted range includes today's step time.
    """
    if finding.may_gain_nothing and finding.confidence != "low":
        return "may gain nothing"
    return f"{finding.confidence} confidence"


def remaining_share(finding: Finding) -> float:
    """Return the share of the step that remains after a change with a predicted gain."""
    after_ms = finding.predicted_step_ms or 0.0
    return after_ms / (after_ms + finding.gain_ms)


def more_samples(finding: Finding) -> str | None:
    """Return the gain in samples per second of a change that adds work to a step; None for other changes."""
    if finding.claims != "throughput" or finding.samples_per_second_times is None:
        return None
    return f"up to {fmt.factor(finding.samples_per_second_times)} the samples per second"


def caution(finding: Finding) -> str:
    """Return the text for a finding that claims no gain."""
    if finding.predicted_step_ms is not None:
        return "no gain on its own: another bottleneck takes over"
    if finding.observed:
        return "based on telemetry alone"
    if "spare_memory" in finding.explains.topics:
        return "more samples per second, but longer steps"
    return "prevents running out of memory" if finding.ends_the_run else "gain not predicted"


def delay_and_gain(straggler: Straggler, gain_ms: float) -> str:
    """Return why the gain is smaller than the straggler's delay; "" if gain and delay are about equal."""
    if straggler.at_most or gain_ms >= (1 - MIN_EXPLAINED_DIFFERENCE) * straggler.own_ms:
        return ""
    gain = f"The job gains ≈\u00a0{fmt.duration_ms(gain_ms)} of these {fmt.duration_ms(straggler.own_ms)} per step"
    if straggler.reason == "work":
        return f"{gain}, because the other ranks get a part of the work if it is spread evenly."
    return f"{gain}. During the rest, the other ranks work and do not wait."

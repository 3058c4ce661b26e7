"""Judge a rule's evidence for the run's step, or for the step after other changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sawtooth.analysis.findings.model import Evidence, Judgement
from sawtooth.analysis.findings.policy import Threshold
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import WhatIf
from sawtooth.analysis.replay.worker_limit import Edge
from sawtooth.analysis.run.model import Confidence, Severity
from sawtooth.analysis.units import in_words

CRITICAL_SHARE = 0.15  # A gain of about a sixth of every step should come first.
# A finding is critical only if the low end of its predicted gain reaches this share of the step.
SURE_CRITICAL_SHARE = CRITICAL_SHARE / 2
# Largest ratio of the interval's ends for high confidence. A prediction with a wider interval has at most medium confidence,
# even if its cause is certain.
SURE_WITHIN = 1.5
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")  # The worst severity comes first.
WARNING_SHARE = 0.03  # Most measurements cannot show a smaller gain.

MAY_BRING_NOTHING = "No gain is predicted: the step would take between {low} and {high}, which may be as long as now."


@dataclass(frozen=True)
class Step:
    """The step for which evidence is judged: the run's own, or the replay's after the changes ``applied``."""

    best: BestStepTime
    whatif: WhatIf | None
    applied: tuple[Edit, ...] = ()

    @cached_property
    def ms(self) -> float | None:
        """The step time in ms, None if it is not known."""
        return self.predict_ms(()) if self.applied else self.best.ms

    def after(self, edits: Sequence[Edit]) -> Step:
        """Return the step with ``edits`` applied as well."""
        return Step(self.best, self.whatif, self._with(edits))

    def share(self, ms: float) -> float:
        """Return ``ms`` as a share of the step, 0 if the step time is not known."""
        return ms / self.ms if self.ms else 0.0

    def predict_ms(self, edits: Sequence[Edit]) -> float | None:
        """Return the step time in ms with ``edits`` applied; None without a replay."""
        return self.whatif.predict_ms(self.best, self._with(edits)) if self.whatif is not None else None

    def predict_range_ms(self, edits: Sequence[Edit]) -> tuple[float, float] | None:
        """Return the interval of ``predict_ms``; None without a replay."""
        return self.whatif.predict_range_ms(self.best, self._with(edits)) if self.whatif is not None else None

    def gain_ms(self, edits: Sequence[Edit]) -> float | None:
        """Return by how many ms ``edits`` shorten the step; None if they cannot be replayed or change nothing."""
        after_ms = self.predict_ms(edits) if edits else None
        return self.ms - after_ms if after_ms is not None and self.ms else None

    def fed_every_ms(self, edits: Sequence[Edit], step_ms: float | None, edge: Edge) -> float | None:
        """Return the loader's time per batch, in ms, if it limits the step of ``step_ms`` after ``edits``."""
        if self.whatif is None or not edits or step_ms is None:
            return None
        return self.whatif.fed_every_ms(self.best, self._with(edits), step_ms, edge)

    def range_of_another_run_ms(
        self, edits: Sequence[Edit], between: tuple[float, float] | None
    ) -> tuple[float, float] | tuple[None, None]:
        """Widen the interval for this run's step to that for another run with the same edits.

        (None, None) without an interval.
        """
        if between is None or self.whatif is None:
            return None, None
        return self.whatif.range_of_another_run_ms(self.best, self._with(edits), between)

    def _with(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
        return tuple(dict.fromkeys((*self.applied, *edits))) if self.applied else tuple(edits)


def judge(evidence: Evidence, step: Step, threshold: Threshold | None) -> Judgement | None:
    """Return how severe ``evidence`` is for ``step`` and what its change gains; None below ``threshold``.

    The severity depends on the gain's share of the step, unless the evidence fixes it. A finding is critical only if the low end
    of its gain is at least SURE_CRITICAL_SHARE. If the interval of the prediction includes today's step, no gain is predicted. The
    confidence is then at most medium, as it is with a wide interval or without one.
    """
    if threshold is not None and not reaches(evidence, step, threshold):
        return None
    lost_ms, severity, confidence, note = evidence.lost_ms, evidence.severity, evidence.confidence, ""
    predicted, predicted_range = _prediction_of(evidence, step)
    fed_every_ms = step.fed_every_ms(evidence.edits, predicted, "likely")
    if predicted_range is not None and step.ms and predicted_range[1] >= step.ms and evidence.predicted is None:
        note = MAY_BRING_NOTHING.format(low=in_words(predicted_range[0]), high=in_words(predicted_range[1]))
        most_ms = max(step.ms - predicted_range[0], 0.0)  # Not more than the gain at the low end of the interval.
        cut = lost_ms is not None and lost_ms > most_ms
        fed_every_ms = step.fed_every_ms(evidence.edits, predicted_range[0], "least") if cut else None
        # The interval is wide because the loader's speed is uncertain, so the likely value decides.
        counts = fed_every_ms is not None and step.share(step.ms - (predicted or 0.0)) >= WARNING_SHARE
        severity = "warning" if counts else "info"
        lost_ms = min(lost_ms, most_ms) if lost_ms is not None else None
        confidence = "medium" if confidence == "high" else confidence
        predicted, predicted_range = None, None
    gain = step.ms - predicted if predicted is not None and step.ms else lost_ms or 0.0
    if lost_ms is not None and step.ms:
        # The recorded loss may be less than the run's gain, but never more than its step.
        lost_ms = min(max(lost_ms, gain), step.ms)
    severity = severity or _by_share(evidence, step.share(max(gain, 0.0)), step)
    low, high = predicted_range or (None, None)
    if evidence.predicted is None:  # The prediction comes from the replay, whose interval is for this run.
        severity = _limited_severity(severity, predicted_range, step)
        low, high = step.range_of_another_run_ms(evidence.edits, predicted_range)
    if evidence.withholds_gain:  # The gain is known only together with another change.
        severity, predicted, low, high = evidence.severity or severity, None, None, None
    return Judgement(
        severity=severity,
        confidence=limited_confidence(confidence, predicted, low, high, estimated=step.best.source == "estimate"),
        ceiling_ms_per_step=lost_ms,
        predicted_step_ms=predicted,
        predicted_low_ms=low,
        predicted_high_ms=high,
        predicted_speedup=step.ms / predicted if predicted and step.ms else None,
        fed_every_ms=fed_every_ms,
        note=note,
        sure_gain_ms=max(step.ms - predicted_range[1], 0.0)
        if predicted_range is not None and step.ms and high is not None
        else None,
    )


def reaches(evidence: Evidence, step: Step, threshold: Threshold) -> bool:
    """Return whether the evidence reaches ``threshold``."""
    if evidence.share is not None:
        return evidence.share >= threshold.share
    cost = evidence.cost_ms
    gain = step.gain_ms(evidence.edits) if evidence.threshold_for != "cost" else None
    if cost is None and gain is None:
        return True  # Nothing to compare, because the evidence is not about time or cannot be replayed.
    reaches = [ms is not None and step.share(ms) >= threshold.share for ms in (cost, gain)]
    if evidence.threshold_for == "larger":
        return any(reaches)
    if evidence.threshold_for == "both":
        return reaches[0] and (gain is None or reaches[1])
    return reaches[1] if gain is not None else reaches[0]


def _by_share(evidence: Evidence, gain_share: float, step: Step) -> Severity:
    """Return the severity of a gain (or of the cost), within the evidence's limits."""
    severity = severity_of(step.share(evidence.cost_ms or 0.0) if evidence.severity_by_cost else gain_share)
    if evidence.is_choice:  # A choice is not a fault.
        return "warning" if severity == "critical" else "info"
    return severity if evidence.at_most is None else max(severity, evidence.at_most, key=SEVERITIES.index)


def _prediction_of(evidence: Evidence, step: Step) -> tuple[float | None, tuple[float, float] | None]:
    """Return the step time after the change and its interval (ms), from the rule or from the replay."""
    if evidence.predicted is not None:
        # After other changes, the rule's own prediction keeps its share of the step.
        times = step.ms / step.best.ms if step.applied and step.ms and step.best.ms else 1.0
        ms, predicted_range = evidence.predicted
        return ms * times, (predicted_range[0] * times, predicted_range[1] * times) if predicted_range is not None else None
    if not evidence.edits:
        return None, None
    return step.predict_ms(evidence.edits), step.predict_range_ms(evidence.edits)


def _limited_severity(severity: Severity, predicted_range: tuple[float, float] | None, step: Step) -> Severity:
    """Return the severity, lowered from critical if the prediction's interval does not support it."""
    unsure = predicted_range is not None and step.ms and step.share(step.ms - predicted_range[1]) < SURE_CRITICAL_SHARE
    return "warning" if severity == "critical" and unsure else severity


def severity_of(share: float) -> Severity:
    """Return the severity of something that costs ``share`` of a step."""
    return "critical" if share >= CRITICAL_SHARE else "warning" if share >= WARNING_SHARE else "info"


def limited_confidence(
    confidence: Confidence,
    predicted_ms: float | None,
    low_ms: float | None,
    high_ms: float | None,
    *,
    estimated: bool = False,
) -> Confidence:
    """Return the confidence in a finding, limited by the interval of its prediction.

    ``confidence`` is the confidence of the cause alone. A predicted step has high confidence only with a narrow interval and a
    measured step. ``estimated`` means that today's step is not measured, but comes from a replay without the profiler's cost.
    """
    if confidence != "high" or predicted_ms is None:
        return confidence
    narrow = low_ms is not None and high_ms is not None and high_ms <= SURE_WITHIN * low_ms
    return "high" if narrow and not estimated else "medium"

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
SURE_CRITICAL_SHARE = CRITICAL_SHARE / 2  # A critical finding needs at least this share at the low end of its predicted gain.
# Largest ratio of the interval's ends for high confidence. A prediction with a wider interval has at most medium confidence,
# even if its cause is certain.
MAX_INTERVAL_RATIO = 1.5
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")  # The worst severity comes first.
WARNING_SHARE = 0.03  # Most measurements cannot show a smaller gain.

MAY_GAIN_NOTHING = "No gain is predicted: the step would take between {low} and {high}, which may be as long as now."


@dataclass(frozen=True)
class Step:
    """The step for which evidence is judged: the run's, or the replayed one after changes ``applied``."""

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
        """Return the interval ``between`` for this run, widened for another run with the same edits.

        (None, None) without an interval.
        """
        if between is None or self.whatif is None:
            return None, None
        return self.whatif.range_of_another_run_ms(self.best, self._with(edits), between)

    def _with(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
        return tuple(dict.fromkeys((*self.applied, *edits))) if self.applied else tuple(edits)


def judge(evidence: Evidence, step: Step, threshold: Threshold | None) -> Judgement | None:
    """Return how severe ``evidence`` is for ``step`` and what its change gains; None below ``threshold``.

    The severity depends on the gain's share of the step, unless the evidence has its own severity. A finding is critical only if the
    low end of its gain is at least SURE_CRITICAL_SHARE. No gain is predicted if the prediction's interval includes today's step. The
    confidence is then at most medium. It is also at most medium with a wide interval or without an interval.
    """
    if threshold is not None and not reaches_threshold(evidence, step, threshold):
        return None
    lost_ms, severity, confidence, note = evidence.lost_ms, evidence.severity, evidence.confidence, ""
    predicted, predicted_range = _prediction_of(evidence, step)
    fed_every_ms = step.fed_every_ms(evidence.edits, predicted, "likely")
    if predicted_range is not None and step.ms and predicted_range[1] >= step.ms and evidence.predicted is None:
        note = MAY_GAIN_NOTHING.format(low=in_words(predicted_range[0]), high=in_words(predicted_range[1]))
        max_gain_ms = max(step.ms - predicted_range[0], 0.0)  # The gain at the low end of the interval.
        is_limited = lost_ms is not None and lost_ms > max_gain_ms
        fed_every_ms = step.fed_every_ms(evidence.edits, predicted_range[0], "least") if is_limited else None
        # If the loader's uncertain speed makes the interval wide, the likely value decides.
        likely_gains = fed_every_ms is not None and step.share(step.ms - (predicted or 0.0)) >= WARNING_SHARE
        severity = "warning" if likely_gains else "info"
        lost_ms = min(lost_ms, max_gain_ms) if lost_ms is not None else None
        confidence = "medium" if confidence == "high" else confidence
        predicted, predicted_range = None, None
    gain_ms = step.ms - predicted if predicted is not None and step.ms else lost_ms or 0.0
    if lost_ms is not None and step.ms:
        lost_ms = min(max(lost_ms, gain_ms), step.ms)  # The run's gain may be larger than the recorded loss.
    severity = severity or _severity_by_share(evidence, step.share(max(gain_ms, 0.0)), step)
    low, high = predicted_range or (None, None)
    if evidence.predicted is None:  # The replay's interval is for this run.
        severity = _limited_severity(severity, predicted_range, step)
        low, high = step.range_of_another_run_ms(evidence.edits, predicted_range)
    if evidence.withholds_gain:  # The gain is known only together with another change.
        severity, predicted, low, high = evidence.severity or severity, None, None, None
    sure_gain_ms = None
    if predicted_range is not None and step.ms and high is not None:
        sure_gain_ms = max(step.ms - predicted_range[1], 0.0)
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
        sure_gain_ms=sure_gain_ms,
    )


def reaches_threshold(evidence: Evidence, step: Step, threshold: Threshold) -> bool:
    """Return whether the evidence reaches ``threshold``."""
    if evidence.share is not None:
        return evidence.share >= threshold.share
    cost_ms = evidence.cost_ms
    gain_ms = step.gain_ms(evidence.edits) if evidence.threshold_for != "cost" else None
    if cost_ms is None and gain_ms is None:
        return True  # There is nothing to compare: the evidence is not about time, or it cannot be replayed.
    cost_suffices, gain_suffices = (ms is not None and step.share(ms) >= threshold.share for ms in (cost_ms, gain_ms))
    if evidence.threshold_for == "larger":
        return cost_suffices or gain_suffices
    if evidence.threshold_for == "both":
        return cost_suffices and (gain_ms is None or gain_suffices)
    return gain_suffices if gain_ms is not None else cost_suffices


def _severity_by_share(evidence: Evidence, gain_share: float, step: Step) -> Severity:
    """Return the severity of a gain (or of the cost), limited by the evidence."""
    severity = severity_of(step.share(evidence.cost_ms or 0.0) if evidence.severity_by_cost else gain_share)
    if evidence.is_choice:
        return "warning" if severity == "critical" else "info"
    return severity if evidence.at_most is None else max(severity, evidence.at_most, key=SEVERITIES.index)


def _prediction_of(evidence: Evidence, step: Step) -> tuple[float | None, tuple[float, float] | None]:
    """Return the step time after the change and its interval (ms), from the rule or from the replay."""
    if evidence.predicted is not None:
        # After other changes, the rule's own prediction is the same share of the step.
        factor = step.ms / step.best.ms if step.applied and step.ms and step.best.ms else 1.0
        ms, between_ms = evidence.predicted
        return ms * factor, (between_ms[0] * factor, between_ms[1] * factor) if between_ms is not None else None
    if not evidence.edits:
        return None, None
    return step.predict_ms(evidence.edits), step.predict_range_ms(evidence.edits)


def _limited_severity(severity: Severity, predicted_range: tuple[float, float] | None, step: Step) -> Severity:
    """Return the severity, lowered from critical if the gain at the interval's low end is too small."""
    is_unsure = predicted_range is not None and step.ms and step.share(step.ms - predicted_range[1]) < SURE_CRITICAL_SHARE
    return "warning" if severity == "critical" and is_unsure else severity


def severity_of(share: float) -> Severity:
    """Return the severity of a loss of ``share`` of the step."""
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

    ``confidence`` is the confidence in the cause. A predicted step has high confidence only if the interval is narrow and today's
    step is measured. ``estimated`` means that today's step comes from a replay without the profiler's cost.
    """
    if confidence != "high" or predicted_ms is None:
        return confidence
    is_narrow = low_ms is not None and high_ms is not None and high_ms <= MAX_INTERVAL_RATIO * low_ms
    return "high" if is_narrow and not estimated else "medium"

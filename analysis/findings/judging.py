"""Judge what a rule measured against a step: the run's own, or its replay after other changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sawtooth.analysis.findings.model import Evidence, Judgement
from sawtooth.analysis.findings.policy import Bar
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import Edit
from sawtooth.analysis.replay.whatif import Edge, WhatIf
from sawtooth.analysis.run.model import Confidence, Severity
from sawtooth.analysis.units import in_words

CRITICAL_SHARE = 0.15  # a sixth of every step: nothing else should be done first
# So much even the least gain of the interval must be: a prediction that holds must not refute what was critical.
SUREST_SHARE = CRITICAL_SHARE / 2
# Times its low end: a prediction whose interval reaches further is no surer than medium, however sure its cause.
SURE_WITHIN = 1.5
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")  # worst first
WARNING_SHARE = 0.03  # below three percent a fix is lost in the noise of most measurements

MAY_BRING_NOTHING = "No gain is predicted: a step would then take between {low} and {high}, which may be no less than now."


@dataclass(frozen=True)
class Step:
    """The step that evidence is judged against: the run's own, or the replay's after the changes ``made``."""

    best: BestStepTime
    whatif: WhatIf | None
    made: tuple[Edit, ...] = ()

    @cached_property
    def ms(self) -> float | None:
        """The step time in ms, None where it is not known."""
        return self.predict_ms(()) if self.made else self.best.ms

    def after(self, edits: Sequence[Edit]) -> Step:
        """Return the step with ``edits`` made as well."""
        return Step(self.best, self.whatif, self._with(edits))

    def share(self, ms: float) -> float:
        """Return ``ms`` as a share of the step, 0 where the step time is not known."""
        return ms / self.ms if self.ms else 0.0

    def predict_ms(self, edits: Sequence[Edit]) -> float | None:
        """Return the step time in ms with ``edits`` made; None where there is no replay."""
        return self.whatif.predict_ms(self.best, self._with(edits)) if self.whatif is not None else None

    def predict_range_ms(self, edits: Sequence[Edit]) -> tuple[float, float] | None:
        """Return the interval of ``predict_ms``; None where there is no replay."""
        return self.whatif.predict_range_ms(self.best, self._with(edits)) if self.whatif is not None else None

    def gain_ms(self, edits: Sequence[Edit]) -> float | None:
        """Return by how many ms ``edits`` shorten the step; None where they cannot be replayed or change nothing."""
        after_ms = self.predict_ms(edits) if edits else None
        return self.ms - after_ms if after_ms is not None and self.ms else None

    def fed_every_ms(self, edits: Sequence[Edit], step_ms: float | None, edge: Edge) -> float | None:
        """Return how often the loader gives a batch, in ms, where that bounds the step of ``step_ms`` after ``edits``."""
        if self.whatif is None or not edits or step_ms is None:
            return None
        return self.whatif.fed_every_ms(self.best, self._with(edits), step_ms, edge)

    def of_another_run(
        self, edits: Sequence[Edit], between: tuple[float, float] | None
    ) -> tuple[float, float] | tuple[None, None]:
        """Return the interval of the step in another run, from that in this one; Nones where there is none."""
        if between is None or self.whatif is None:
            return None, None
        return self.whatif.of_another_run(self.best, self._with(edits), between)

    def _with(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
        return tuple(dict.fromkeys((*self.made, *edits))) if self.made else tuple(edits)


def judge(evidence: Evidence, step: Step, bar: Bar | None) -> Judgement | None:
    """Return how severe ``evidence`` is for ``step`` and what its change brings; None where that is below ``bar``.

    A severity that the evidence does not fix comes from the gain's share of the step; critical is only what gains SUREST_SHARE at least. A prediction
    whose interval holds the step as it is is not made. One without an interval, or with a wide one, is no surer than medium.
    """
    if bar is not None and not is_worth_naming(evidence, step, bar):
        return None
    lost_ms, severity, note = evidence.lost_ms, evidence.severity, ""
    predicted, between = _predicted(evidence, step)
    fed_every_ms = step.fed_every_ms(evidence.edits, predicted, "likely")
    if between is not None and step.ms and between[1] >= step.ms and evidence.predicted is None:
        note = MAY_BRING_NOTHING.format(low=in_words(between[0]), high=in_words(between[1]))
        most_ms = max(step.ms - between[0], 0.0)  # no more than the note's shorter end
        cut = lost_ms is not None and lost_ms > most_ms
        fed_every_ms = step.fed_every_ms(evidence.edits, between[0], "least") if cut else None
        # By a loader whose pace is not known well enough: what is likely counts.
        counts = fed_every_ms is not None and step.share(step.ms - (predicted or 0.0)) >= WARNING_SHARE
        severity = "warning" if counts else "info"
        lost_ms = min(lost_ms, most_ms) if lost_ms is not None else None
        predicted, between = None, None
    gain = step.ms - predicted if predicted is not None and step.ms else lost_ms or 0.0
    if lost_ms is not None and step.ms:
        # What is lost as recorded may be less than what the run gains, never more than its step.
        lost_ms = min(max(lost_ms, gain), step.ms)
    severity = severity or _by_share(evidence, step.share(max(gain, 0.0)), step)
    low, high = between or (None, None)
    if evidence.predicted is None:  # by the replay, whose interval is for this run
        severity = _sure_enough(severity, between, step)
        low, high = step.of_another_run(evidence.edits, between)
    if evidence.withholds_gain:  # what it brings together with another change is known, and alone it is not
        severity, predicted, low, high = evidence.severity or severity, None, None, None
    return Judgement(
        severity=severity,
        confidence=as_sure_as_its_interval(evidence.confidence, predicted, low, high),
        ceiling_ms_per_step=lost_ms,
        predicted_step_ms=predicted,
        predicted_low_ms=low,
        predicted_high_ms=high,
        predicted_speedup=step.ms / predicted if predicted and step.ms else None,
        fed_every_ms=fed_every_ms,
        note=note,
    )


def is_worth_naming(evidence: Evidence, step: Step, bar: Bar) -> bool:
    """Tell whether what the evidence is weighed by reaches ``bar``."""
    if evidence.share is not None:
        return evidence.share >= bar.share
    cost = evidence.cost_ms
    gain = step.gain_ms(evidence.edits) if evidence.weighed_by != "cost" else None
    if cost is None and gain is None:
        return True  # nothing to weigh: what it is about is no matter of time, or cannot be replayed
    reaches = [ms is not None and step.share(ms) >= bar.share for ms in (cost, gain)]
    if evidence.weighed_by == "larger":
        return any(reaches)
    if evidence.weighed_by == "both":
        return reaches[0] and (gain is None or reaches[1])
    return reaches[1] if gain is not None else reaches[0]


def _by_share(evidence: Evidence, gain_share: float, step: Step) -> Severity:
    """Return the severity of a gain, or of a cost where the evidence is judged by that, as far as the evidence lets it rise."""
    severity = severity_of(step.share(evidence.cost_ms or 0.0) if evidence.severity_by_cost else gain_share)
    if evidence.is_choice:  # and no fault
        return "warning" if severity == "critical" else "info"
    return severity if evidence.at_most is None else max(severity, evidence.at_most, key=SEVERITIES.index)


def _predicted(evidence: Evidence, step: Step) -> tuple[float | None, tuple[float, float] | None]:
    """Return the step after the change with its interval: as the rule predicts it, else by the replay of its edits."""
    if evidence.predicted is not None:
        # After other changes the rule's own prediction is as large a part of the step as before them.
        times = step.ms / step.best.ms if step.made and step.ms and step.best.ms else 1.0
        ms, between = evidence.predicted
        return ms * times, (between[0] * times, between[1] * times) if between is not None else None
    if not evidence.edits:
        return None, None
    return step.predict_ms(evidence.edits), step.predict_range_ms(evidence.edits)


def _sure_enough(severity: Severity, between: tuple[float, float] | None, step: Step) -> Severity:
    """Return a severity that the interval of the prediction bears out."""
    unsure = between is not None and step.ms and step.share(step.ms - between[1]) < SUREST_SHARE
    return "warning" if severity == "critical" and unsure else severity


def severity_of(share: float) -> Severity:
    """Return the severity of something that costs ``share`` of a step."""
    return "critical" if share >= CRITICAL_SHARE else "warning" if share >= WARNING_SHARE else "info"


def as_sure_as_its_interval(
    confidence: Confidence, predicted_ms: float | None, low_ms: float | None, high_ms: float | None
) -> Confidence:
    """Return the confidence in a finding whose cause alone would have ``confidence``: high needs a narrow interval, where a step is predicted."""
    if confidence != "high" or predicted_ms is None:
        return confidence
    narrow = low_ms is not None and high_ms is not None and high_ms <= SURE_WITHIN * low_ms
    return "high" if narrow else "medium"

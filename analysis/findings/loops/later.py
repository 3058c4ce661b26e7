"""Changes that gain too little today, but pay after another change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import WARNING_SHARE, reaches_threshold
from sawtooth.analysis.findings.model import Evidence, Judgement, Rule, finding_from
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.units import in_words

MIN_SAVED_SHARE = 1 / 3  # Share of the step. A smaller first change hardly moves other changes above their thresholds.
MAX_JUDGED = 6  # Only the measurements with the largest cost are judged again, because each needs several replays.
GAIN_TODAY = "Today, it gains at most {now} per step."


def later_findings(
    context: RuleContext, findings: Sequence[Finding], small_gains: Sequence[tuple[Rule, Evidence]]
) -> Iterator[Finding]:
    """Yield the findings on ``small_gains`` that are relevant after the first sure change of ``findings``.

    They claim no gain, because today they gain less than their thresholds. The plan includes them.
    """
    step_ms = context.step_ms or 0.0
    sure_changes = (f for f in findings if f.edits and f.claims == "gain" and f.confidence != "low" and not f.may_gain_nothing)
    first = next(sure_changes, None)
    if first is None or first.gain_ms < MIN_SAVED_SHARE * step_ms:
        return
    step = context.step.after(first.edits)
    replayed = [(rule, evidence) for rule, evidence in small_gains if evidence.edits and evidence.predicted is None]
    for rule, evidence in sorted(replayed, key=lambda pair: -(pair[1].cost_ms or 0.0))[:MAX_JUDGED]:
        gain_ms = step.gain_ms(evidence.edits)
        if rule.threshold is None or gain_ms is None or step.ms is None:
            continue
        if not reaches_threshold(evidence, step, rule.threshold) or step.share(gain_ms) < WARNING_SHARE:
            continue
        now_ms = max(context.step.gain_ms(evidence.edits) or 0.0, 0.0)
        larger_judgement = Judgement("info", evidence.confidence, max(now_ms, gain_ms))  # The title must cover both gains.
        finding = replace(finding_from(rule.slug, evidence, larger_judgement, rule.explains), ceiling_ms_per_step=now_ms)
        condition = f"After “{first.action.short}”, this change saves ≈ {in_words(gain_ms)} per step"
        note = " ".join(filter(None, (finding.prediction_note, GAIN_TODAY.format(now=in_words(now_ms)))))
        yield replace(finding, title=f"{finding.title}. {condition}", prediction_note=note, pays_later=True)

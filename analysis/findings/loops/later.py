"""Changes that gain too little today, but pay after another change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import WARNING_SHARE, reaches
from sawtooth.analysis.findings.model import Evidence, Judgement, Rule, advise
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.units import in_words

SHORTENS = 1 / 3  # A change that saves a smaller share of the step raises few others above their thresholds.
MOST = 6  # Number of measurements that are judged again, largest cost first, because each is replayed several times.
BELOW = "Today, it gains at most {now} per step."


def later_findings(
    context: RuleContext, findings: Sequence[Finding], small: Sequence[tuple[Rule, Evidence]]
) -> Iterator[Finding]:
    """Yield the findings that ``small`` evidence makes after the first sure change of ``findings``.

    They claim no gain of their own, because alone they bring less than their thresholds. The plan includes them.
    """
    step_ms = context.step_ms or 0.0
    first = next(
        (f for f in findings if f.edits and f.claims == "gain" and f.confidence != "low" and not f.may_gain_nothing), None
    )
    if first is None or first.gain_ms < SHORTENS * step_ms:
        return
    step = context.step.after(first.edits)
    replayed = [(rule, evidence) for rule, evidence in small if evidence.edits and evidence.predicted is None]
    for rule, evidence in sorted(replayed, key=lambda pair: -(pair[1].cost_ms or 0.0))[:MOST]:
        gain_ms = step.gain_ms(evidence.edits)
        if rule.threshold is None or gain_ms is None or step.ms is None or not reaches(evidence, step, rule.threshold):
            continue
        if step.share(gain_ms) < WARNING_SHARE:
            continue
        now_ms = max(context.step.gain_ms(evidence.edits) or 0.0, 0.0)
        larger_judgement = Judgement("info", evidence.confidence, max(now_ms, gain_ms))  # The title must cover both gains.
        finding = replace(advise(rule.slug, evidence, larger_judgement, rule.explains), ceiling_ms_per_step=now_ms)
        condition = f"after “{first.action.short}” it saves ≈ {in_words(gain_ms)} of each {in_words(step.ms)} step"
        note = " ".join(filter(None, (finding.prediction_note, BELOW.format(now=in_words(now_ms)))))
        yield replace(finding, title=f"{finding.title}; {condition}", prediction_note=note, pays_later=True)

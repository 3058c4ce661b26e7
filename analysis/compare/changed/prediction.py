"""The step time that A's report predicted for the advice that B follows, and B's step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from sawtooth.analysis.compare.changed.differences import SetupDifference
from sawtooth.analysis.run.model import Finding, RunResult

# Keys of choices that a user makes directly. Other traits, such as copies to the host, are consequences of choices.
DIRECT_CHOICES = frozenset({"loader", "dtype", "gpus", "host_memory"})
# Compiling a step changes these too, so they are direct choices only if the step was not compiled.
CHANGED_BY_COMPILING = frozenset({"compile", "graph", "optimizer", "attention", "layout"})


@dataclass(frozen=True)
class Prediction:
    """The step time (ms) that A's report predicted for the fixes of ``rules``, and B's measured step time.

    ``low_ms`` and ``high_ms`` are the predicted interval, if there is one. ``also_changed`` names other differences of B. If
    there are any, the measurement cannot test the prediction. ``tried`` is B's number, for example of loader workers, if it
    differs from the advised number. Then the measurement does not test the prediction either.
    """

    rules: tuple[str, ...]
    predicted_ms: float
    measured_ms: float
    low_ms: float | None = None
    high_ms: float | None = None
    also_changed: tuple[str, ...] = ()
    tried: float | None = None

    @property
    def is_tested(self) -> bool:
        """Whether B follows the advice as given, and changes nothing else."""
        return not self.also_changed and self.tried is None


def prediction(
    a: RunResult,
    measured_ms: float | None,
    fixed: Sequence[Finding],
    changes: Sequence[SetupDifference] = (),
    otherwise: Sequence[str] = (),
) -> Prediction | None:
    """Return the prediction to compare with B's step time, or None if A has none for these fixes.

    ``also_changed`` of the result lists the choices among ``changes`` that A did not advise, then the names in ``otherwise``.
    """
    predicted = _predicted_for(a, measured_ms, fixed, changes)
    if predicted is None:
        return None
    fixes = [finding for finding in a.findings if finding.rule in predicted.rules]
    # A CUDA graph is captured by hand or by torch.compile, which also changes the optimizer's kernels and memory layouts.
    compiled = any({"compile", "compile on"} & set(f.explains.sets) for f in fixes) or (
        any("cuda_graph" in f.explains.topics for f in fixes) and any(d.key == "compile" and d.b == "on" for d in changes)
    )
    choices = DIRECT_CHOICES if compiled else DIRECT_CHOICES | CHANGED_BY_COMPILING
    other = [d.what for d in changes if d.finding is None and d.key in choices and not set(d.rules) & set(predicted.rules)]
    tried = next((d.amount for f in fixes for d in changes if f.rule in d.rules and _has_another_number(d, f)), None)
    return replace(predicted, also_changed=(*other, *otherwise), tried=tried)


def _predicted_for(
    a: RunResult, measured_ms: float | None, fixed: Sequence[Finding], changes: Sequence[SetupDifference]
) -> Prediction | None:
    """Return the prediction that A made for the advice that B follows.

    B follows a piece of advice if its set-up shows it (``changes``), or else if A's finding is ``fixed``. For one fix this is
    the finding's prediction. For several fixes, the prediction is the plan's step time after the last of its steps that B
    made. Gains of single findings do not add up, and later findings may have disappeared with the first ones. If B's set-up
    shows only one fix, this fix may also have removed the other findings.
    """
    changed_rules = {rule for difference in changes if difference.finding is None for rule in difference.rules}
    findings_by_change = [
        [f for f in a.findings if _promises(f) and f.rule in difference.rules]
        for difference in changes
        if difference.finding is None
    ]
    # Several findings may advise the same change: use the finding with the largest predicted gain.
    best_findings = [
        min(findings, key=lambda finding: finding.predicted_step_ms or 0.0) for findings in findings_by_change if findings
    ]
    promised = [*best_findings, *(f for f in fixed if _promises(f) and f.rule not in changed_rules)]
    if measured_ms is None or not promised:
        return None
    # A CUDA graph hides the other findings about the work inside it.
    graph_findings = [finding for finding in best_findings if "cuda_graph" in finding.explains.topics]
    if len(promised) == 1 or graph_findings:
        return _of_finding((graph_findings or promised)[0], measured_ms)
    rules = {finding.rule for finding in promised}
    first = tuple(takewhile(lambda step: step.rule in rules, (step for step in a.plan if not step.prepares)))
    if first and (len(best_findings) != 1 or best_findings[0].rule in {step.rule for step in first}):
        last = first[-1]
        return Prediction(
            tuple(step.rule for step in first),
            last.predicted_step_ms,
            measured_ms,
            last.predicted_low_ms,
            last.predicted_high_ms,
        )
    return _of_finding(best_findings[0], measured_ms) if len(best_findings) == 1 else None


def _has_another_number(difference: SetupDifference, finding: Finding) -> bool:
    """Return whether B's number, for example of workers, differs from the advised number."""
    advised = finding.action.amount
    return advised is not None and difference.amount is not None and difference.amount != advised


def _promises(finding: Finding) -> bool:
    return finding.claims == "gain" and finding.severity != "info" and finding.predicted_step_ms is not None


def _of_finding(finding: Finding, measured_ms: float) -> Prediction:
    return Prediction(
        (finding.rule,), finding.predicted_step_ms or 0.0, measured_ms, finding.predicted_low_ms, finding.predicted_high_ms
    )

"""Predicted against measured: what A's report said of the advice that B follows, beside what B takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from sawtooth.analysis.compare.changed.differences import Difference
from sawtooth.analysis.run.model import Finding, RunResult

NEARLY = 0.75  # of an advised number: six workers for eight are the advice, two are not
# What a run is set up with by itself: other traits, such as copies to the host, come and go with a change, as those below do with a compiled step.
SET_UP = frozenset({"loader", "dtype", "gpus", "host_memory"})
OF_THE_PROGRAM = frozenset({"compile", "graph", "optimizer", "attention", "layout"})


@dataclass(frozen=True)
class Prediction:
    """The step (ms) that A's report predicted for the fixes of ``rules``, with its interval where it has one, and what was measured of B.

    ``beside`` names what else differs in B: then what was measured does not judge the prediction.
    """

    rules: tuple[str, ...]
    predicted_ms: float
    measured_ms: float
    low_ms: float | None = None
    high_ms: float | None = None
    beside: tuple[str, ...] = ()

    @property
    def held(self) -> bool | None:
        """Whether the measured step lies in the predicted interval; None without one, or where B differs in more."""
        if self.low_ms is None or self.high_ms is None or self.beside:
            return None
        return self.low_ms <= self.measured_ms <= self.high_ms


def prediction(
    a: RunResult,
    measured_ms: float | None,
    fixed: Sequence[Finding],
    changes: Sequence[Difference] = (),
    otherwise: Sequence[str] = (),
) -> Prediction | None:
    """Return the prediction that B's step is held against, with what B has besides the fixes: other choices among ``changes``, and what differs ``otherwise``.

    None where A made none for these fixes.
    """
    made = _made(a, measured_ms, fixed, changes)
    if made is None:
        return None
    fixes = [finding for finding in a.findings if finding.rule in made.rules]
    rewritten = any(
        "cuda_graph" in f.explains.topics or "compile on" in f.explains.sets or "compile" in f.explains.sets for f in fixes
    )
    choices = SET_UP if rewritten else SET_UP | OF_THE_PROGRAM
    other = [d.what for d in changes if d.finding is None and d.key in choices and not set(d.rules) & set(made.rules)]
    return replace(made, beside=(*other, *otherwise))


def _made(
    a: RunResult, measured_ms: float | None, fixed: Sequence[Finding], changes: Sequence[Difference]
) -> Prediction | None:
    """Return the prediction that A made for what B follows of its advice.

    B follows advice where its set-up shows it (``changes``), else where A's finding is ``fixed``. One fix has its finding's prediction, several
    have the plan's as far as its first steps are among them: gains do not add up, and findings further down may have gone with those. Where only one
    of them shows in B's set-up, the others may have gone with it.
    """
    shown = {rule for difference in changes if difference.finding is None for rule in difference.rules}
    ways = [
        [f for f in a.findings if _promises(f) and f.rule in difference.rules and _as_advised(f, difference)]
        for difference in changes
        if difference.finding is None
    ]
    # several findings may advise one change: it brings what the most promising of them predicts
    seen = [min(each, key=lambda finding: finding.predicted_step_ms or 0.0) for each in ways if each]
    promised = [*seen, *(f for f in fixed if _promises(f) and f.rule not in shown)]
    if measured_ms is None or not promised:
        return None
    whole = [finding for finding in seen if "cuda_graph" in finding.explains.topics]  # what a graph holds hides other findings
    if len(promised) == 1 or whole:
        return _of_finding((whole or promised)[0], measured_ms)
    rules = {finding.rule for finding in promised}
    first = tuple(takewhile(lambda step: step.rule in rules, (step for step in a.plan if not step.prepares)))
    if first and (len(seen) != 1 or seen[0].rule in {step.rule for step in first}):
        last = first[-1]
        return Prediction(
            tuple(step.rule for step in first),
            last.predicted_step_ms,
            measured_ms,
            last.predicted_low_ms,
            last.predicted_high_ms,
        )
    return _of_finding(seen[0], measured_ms) if len(seen) == 1 else None


def _as_advised(finding: Finding, difference: Difference) -> bool:
    """Tell whether B has about as much of it as A's advice said, or more: two workers do not test what eight were to bring."""
    advised = finding.action.amount
    return advised is None or difference.amount is None or difference.amount >= NEARLY * advised


def _promises(finding: Finding) -> bool:
    return finding.claims == "gain" and finding.severity != "info" and finding.predicted_step_ms is not None


def _of_finding(finding: Finding, measured_ms: float) -> Prediction:
    return Prediction(
        (finding.rule,), finding.predicted_step_ms or 0.0, measured_ms, finding.predicted_low_ms, finding.predicted_high_ms
    )

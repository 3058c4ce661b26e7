"""Compare two runs, or several recordings per side.

The verdict and the first waterfall are about the runs' best step times. A second waterfall explains the change of the mean
device step of the profiles. The parts of each waterfall sum exactly to its change. Swapping the sides negates every change. A
run compared with itself has no change.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from sawtooth.analysis.compare.audit import AuditChange, audit_of_pair
from sawtooth.analysis.compare.better_or_worse import RowWord, of_audit, of_metric
from sawtooth.analysis.compare.changed.arguments import changed_arguments
from sawtooth.analysis.compare.changed.conditions import ConditionPair, condition_pairs
from sawtooth.analysis.compare.changed.differences import Effect, SetupDifference, differences, effects, of_batch
from sawtooth.analysis.compare.changed.finding_changes import finding_changes, followed_findings
from sawtooth.analysis.compare.changed.prediction import Prediction, prediction
from sawtooth.analysis.compare.changed.products import batch_ratio
from sawtooth.analysis.compare.comparison_side import Side, step_source, withdrawn_by
from sawtooth.analysis.compare.disagreement import disagreement
from sawtooth.analysis.compare.matching import Match, match
from sawtooth.analysis.compare.reasons import (
    GPU_BESIDE_CPU,
    MADE_ELSEWHERE,
    OTHER_STEP,
    Reason,
    counted_flops,
    reasons,
    work_ratio,
)
from sawtooth.analysis.compare.same_model import models_of
from sawtooth.analysis.compare.significance.certainty import (
    OTHER_MODEL,
    OTHER_PROGRAM,
    Answer,
    Verdict,
    of_one_command,
    of_other_work,
)
from sawtooth.analysis.compare.significance.decision import MIN_RUNS_AS_UNIT, verdict
from sawtooth.analysis.compare.significance.measured_steps import mean_of_all
from sawtooth.analysis.compare.throughput import Throughput, throughput
from sawtooth.analysis.compare.waterfall import (
    RunRow,
    WaterfallRow,
    profile_step_ns,
    profile_waterfall,
    run_waterfall,
)
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.metrics.step_sources import StepSource
from sawtooth.analysis.run.model import Finding

GPU_VARIES = 0.08  # Share of a step's work. Without any change, clocks in a long run are up to 8 % lower than in a short run.


@dataclass(frozen=True)
class MetricChange:
    """One metric on both sides."""

    key: str
    a: Reading
    b: Reading

    @property
    def change(self) -> float | None:
        """B − A."""
        return self.b.value - self.a.value if self.a.value is not None and self.b.value is not None else None


@dataclass(frozen=True)
class StepTimes:
    """A step time on both sides, ms; None if a side has none."""

    a: float | None
    b: float | None

    @property
    def change_ms(self) -> float | None:
        """B − A."""
        return self.b - self.a if self.a is not None and self.b is not None else None

    @property
    def change_share(self) -> float | None:
        """(B − A) ÷ A."""
        change = self.change_ms
        return change / self.a if change is not None and self.a else None


@dataclass(frozen=True)
class Comparison:
    """A comparison of B with A.

    ``disagreement`` is the sentence above the waterfall if the profiles and the best step times disagree. ``throughput``
    decides the headline if a step does different work on each side, else it is None. ``effects`` are the differences in
    set-up and the part of the change that each explains. ``other_model`` says that the runs train different models, so that
    their times do not show the effect of a change. ``other_program`` says that the kernels were compared for this, because
    shapes are missing. ``conditions`` are the command, machine, versions and set-up of both sides.
    """

    a: Side
    b: Side
    best: StepTimes
    sources: tuple[tuple[StepSource, ...], tuple[StepSource, ...]]  # Sources of A's and B's step times.
    verdict: Verdict
    throughput: Throughput | None
    profile_ns: tuple[Fraction | None, Fraction | None]
    median: StepTimes
    disagreement: str | None
    waterfall_run: tuple[RunRow, ...]
    waterfall: tuple[WaterfallRow, ...]
    kernels: tuple[Match, ...]
    operators: tuple[Match, ...]
    metrics: tuple[MetricChange, ...]
    findings_fixed: tuple[Finding, ...]
    findings_new: tuple[Finding, ...]
    not_comparable_findings: tuple[str, ...]
    reasons: tuple[Reason, ...]
    audit: tuple[AuditChange, ...] = ()
    prediction: Prediction | None = None
    effects: tuple[Effect, ...] = ()
    other_model: bool = False
    other_program: bool = False
    conditions: tuple[ConditionPair, ...] = ()

    @property
    def profile(self) -> StepTimes:
        """Mean device step of the profiles, ms."""
        a, b = (float(ns) / 1e6 if ns is not None else None for ns in self.profile_ns)
        return StepTimes(a, b)

    @property
    def leading(self) -> Verdict:
        """The verdict of the headline: about work per second if a step does different work on each side."""
        return self.throughput.verdict if self.throughput is not None else self.verdict

    @property
    def answer(self) -> Answer:
        """The verdict in the words that the page, the reports, the gate and the agents' tools share."""
        return self.leading.answer

    @property
    def cpu_beside_gpu(self) -> bool:
        """Whether one side's profile has GPU work and the other's has none, because that run used a CPU."""
        return any(reason.key == GPU_BESIDE_CPU for reason in self.reasons)

    @property
    def unrelated(self) -> bool:
        """Whether the runs are unrelated: they train two models, or one runs on a CPU."""
        return self.other_model or self.cpu_beside_gpu

    @property
    def partly_counted(self) -> bool:
        """Whether a side has too many uncounted operations for a comparison of the counts."""
        counted = [run for side in (self.a, self.b) for run in side.runs if run.metrics["flops_per_step"].value is not None]
        return any(counted_flops(run) is None for run in counted)

    def metric_word(self, change: MetricChange) -> RowWord:
        """Return the word for a metric's change, such as better or worse."""
        return of_metric(self, change)

    def audit_word(self, line: AuditChange) -> RowWord:
        """Return the word for the change of a line of the audit."""
        return of_audit(self, line)


def compare(a: Side, b: Side) -> Comparison:
    """Compare B with A."""
    models = models_of(a, b)
    operators = match(a.operators, b.operators)
    why_not = reasons(a.first, b.first, operators, one_shape=models.one_shape)
    unrelated = models.other or any(reason.key == GPU_BESIDE_CPU for reason in why_not)
    best = StepTimes(_best(a), _best(b))
    rate = None if models.other else throughput(a.runs, b.runs, a.measured, b.measured, one_shape=models.one_shape)
    of_run = run_waterfall(a.runs, b.runs)
    findings = finding_changes(a.runs, b.runs, of_run)
    work_a, work_b = _work_per_step(rate, best)
    followed = followed_findings(a.first, (a.traits, b.traits), findings.fixed, grown=work_b > work_a)
    appeared = followed_findings(b.first, (b.traits, a.traits), findings.new, grown=work_a > work_b)
    typed = changed_arguments(a.command, b.command)
    arguments = () if models.other else typed
    changed = () if unrelated else _differences(a, b, followed, appeared, models.resized, slower=_is_slower(best, rate))
    if rate is not None:
        ratio = batch_ratio(a.products, b.products, work_ratio(a.first, b.first))
        changed = (*of_batch(ratio, (*arguments, *changed)), *changed)
        rate = replace(rate, batch=ratio if rate.unit == "FLOP" else None)
    word = verdict(a.measured, b.measured)
    if models.other:
        word = of_other_work(word, OTHER_PROGRAM if models.by_kernels else OTHER_MODEL)
    elif unrelated and word.shown:
        word = of_other_work(word, why_not[0].sentence)  # Here the only reason is that one side has no GPU work.
    elif _one_command(a, b, changed) and not any(reason.key in OTHER_STEP for reason in why_not):
        word = of_one_command(word)
    if (withdrawn := withdrawn_by(a, b)) is not None and None in (best.a, best.b):
        word = of_other_work(word, withdrawn)
    profile, sources = (profile_step_ns(a.runs), profile_step_ns(b.runs)), (_sources(a), _sources(b))
    predicted = disagree = None
    if rate is None and not unrelated:
        fixed_conditions = [reason.what for reason in why_not if reason.key in MADE_ELSEWHERE]
        predicted = prediction(a.first, best.b, followed, changed, fixed_conditions)
    if not models.other:
        disagree = disagreement((best.a, best.b), *profile, sources, is_shown=word.shown)
    return Comparison(
        a=a,
        b=b,
        best=best,
        sources=sources,
        verdict=word,
        throughput=rate,
        profile_ns=profile,
        median=StepTimes(_median(a), _median(b)),
        disagreement=disagree,
        waterfall_run=of_run,
        waterfall=profile_waterfall(a.runs, b.runs),
        kernels=tuple(match(a.kernels, b.kernels)),
        operators=tuple(operators),
        metrics=tuple(MetricChange(key, _reading(a, key), _reading(b, key)) for key in METRICS),
        findings_fixed=findings.fixed,
        findings_new=findings.new,
        not_comparable_findings=findings.not_comparable,
        reasons=tuple(why_not),
        audit=audit_of_pair(a.runs, b.runs),
        prediction=predicted,
        effects=effects((*arguments, *changed), of_run),
        other_model=models.other,
        other_program=models.by_kernels,
        conditions=condition_pairs(a.conditions, b.conditions, typed),
    )


def _is_slower(best: StepTimes, rate: Throughput | None) -> bool:
    """Return whether B takes longer for a step, or for A's work if the steps' work differs."""
    return rate.ratio < 1 if rate is not None else bool(best.change_ms is not None and best.change_ms > 0)


def _differences(
    a: Side, b: Side, fixed: Sequence[Finding], new: Sequence[Finding], sizes: Mapping[int, int], *, slower: bool
) -> tuple[SetupDifference, ...]:
    """Return the differences in set-up, and the findings that only the slower side has.

    The slower side does not depend on the order of A and B. ``fixed`` are findings that only A has, ``new`` those that
    only B has.
    """
    if slower:
        return differences(a.traits, b.traits, b.first.findings, new, sizes, of_b=True)
    return differences(a.traits, b.traits, a.first.findings, fixed, sizes)


def _work_per_step(rate: Throughput | None, best: StepTimes) -> tuple[float, float]:
    """Return the work of a step of each side; equal numbers if a step does the same work on both sides."""
    return (0.0, 0.0) if rate is None or not best.a or not best.b else (rate.a * best.a, rate.b * best.b)


def _one_command(a: Side, b: Side, changed: Sequence[SetupDifference]) -> bool:
    """Return whether both sides ran one command, in few runs, with no known change in set-up or GPU work."""
    if not a.command or a.command != b.command or min(len(a.runs), len(b.runs)) >= MIN_RUNS_AS_UNIT:
        return False
    if a.first.manifest.settings != b.first.manifest.settings:  # For example, another step of one training.
        return False
    # Findings about the host's speed do not count, because they come and go with that speed.
    if any(difference.finding is None or "host_pace" not in difference.finding.explains.topics for difference in changed):
        return False
    work_a, work_b = _gpu_work(a), _gpu_work(b)
    return not work_a or not work_b or max(work_a, work_b) / min(work_a, work_b) - 1 <= GPU_VARIES


def _gpu_work(side: Side) -> float | None:
    """Return the time in ns for which a step occupies the GPU; None if a run does not show it."""
    leads = [run.lead for run in side.runs]
    return mean_of_all([lead.work.occupied_ns if lead is not None and lead.work is not None else None for lead in leads])


def _best(side: Side) -> float | None:
    return mean_of_all([run.metrics["best_step_time_ms"].value for run in side.runs])


def _median(side: Side) -> float | None:
    return statistics.median(side.device_step_ms) if side.device_step_ms else None


def _sources(side: Side) -> tuple[StepSource, ...]:
    return tuple(sorted({step_source(run) for run in side.runs}))


def _reading(side: Side, key: str) -> Reading:
    readings = [run.metrics[key] for run in side.runs]
    if len(readings) == 1:
        return readings[0]
    value = mean_of_all([reading.value for reading in readings])
    if value is None:
        return missing(next(reading.why_missing for reading in readings if reading.why_missing) or "Not known in every run.")
    trust = max((reading.trust for reading in readings), key=("ok", "caution", "unusable").index)
    return Reading(
        value, trust=trust, notes=(f"Mean of {len(readings)} runs.", *dict.fromkeys(n for r in readings for n in r.notes))
    )

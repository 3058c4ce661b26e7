"""Compare two runs (or several recordings a side): verdict, a waterfall that sums exactly, kernels, operators, findings, reasons.

The verdict speaks of the runs' best step times, and so does the waterfall shown first; a second one explains the change of the mean device
step of the profiles, and it is said where the two disagree. Swapping the sides negates every change; a run compared with itself differs in nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sawtooth.analysis.compare.audit import AuditChange, audit_of_pair
from sawtooth.analysis.compare.matching import Match, Piece, match
from sawtooth.analysis.compare.measured import Measured
from sawtooth.analysis.compare.prediction import Prediction, prediction
from sawtooth.analysis.compare.reasons import Reason, reasons
from sawtooth.analysis.compare.significance import Verdict, verdict
from sawtooth.analysis.compare.throughput import Throughput, throughput
from sawtooth.analysis.compare.waterfall import RunRow, WaterfallRow, profile_step_ns, profile_waterfall, run_waterfall
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.metrics.step_time import AGREES_WITHIN
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.machine import replay, step_times
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.ingest.errors import UsageError

_SQL = queries_of(__file__)
DISAGREES = 0.10  # METRICS: beyond ten points the profile's change is not the run's
SAME = 0.005  # half a percent: the replay reproduces a recorded step no better, so signs below it mean nothing


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its runs, the step series that speaks for each, and their GPU work per step."""

    runs: tuple[RunResult, ...]
    measured: tuple[Measured, ...]
    kernels: tuple[Piece, ...]
    operators: tuple[Piece, ...]

    @classmethod
    def of(cls, sides: Sequence[Side]) -> Side:
        """Join sides of one run each into one of several; times per step become means over the runs."""
        if not sides:
            raise UsageError("A side of a comparison needs at least one run.")
        runs = [run for side in sides for run in side.runs]
        part = [Fraction(len(side.runs), len(runs)) for side in sides]
        return cls(
            tuple(runs),
            tuple(measured for side in sides for measured in side.measured),
            tuple(p.scaled(share) for side, share in zip(sides, part, strict=True) for p in side.kernels),
            tuple(p.scaled(share) for side, share in zip(sides, part, strict=True) for p in side.operators),
        )

    @property
    def first(self) -> RunResult:
        """The run that stands for the side where only one can (findings, devices)."""
        return self.runs[0]

    @property
    def name(self) -> str:
        """The runs' names."""
        return " + ".join(run.manifest.name for run in self.runs)


@dataclass(frozen=True)
class MetricChange:
    """One metric on both sides. ``change`` is B − A in the metric's unit, None where either is missing."""

    key: str
    a: Reading
    b: Reading

    @property
    def change(self) -> float | None:
        """B − A."""
        return self.b.value - self.a.value if self.a.value is not None and self.b.value is not None else None


@dataclass(frozen=True)
class StepTimes:
    """A step time on both sides, ms; None where a side has none."""

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
    """B against A. ``disagreement`` is the sentence that stands above the waterfall where profiles and best step times part.

    ``throughput`` leads where a step does other work on either side, else it is None.
    """

    a: Side
    b: Side
    best: StepTimes
    sources: tuple[str, str]
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

    @property
    def profile(self) -> StepTimes:
        """Mean device step of the profiles, ms."""
        a, b = (float(ns) / 1e6 if ns is not None else None for ns in self.profile_ns)
        return StepTimes(a, b)


def side_of(runs: Sequence[RunResult], library: Library) -> Side:
    """Load what a comparison needs of one side's runs. Raises UsageError for none."""
    return Side.of([_side_of_one(run, library) for run in runs])


def _side_of_one(run: RunResult, library: Library) -> Side:
    measured, lead = _measured(run, library), run.lead
    if lead is None or not len(lead.counted):
        return Side((run,), (measured,), (), ())
    per_step = Fraction(1, len(lead.counted))
    with open_rank(library, lead) as view:
        return Side((run,), (measured,), tuple(_kernels(view, per_step)), tuple(_operators(view, per_step)))


def _kernels(view: RankView, per_step: Fraction) -> list[Piece]:
    rows = view.rows(_SQL["kernels"])
    return [
        Piece(name=name, operator=operator, shapes=shapes, category=category, ns=ns * per_step, count=count * per_step)
        for name, operator, shapes, category, ns, count in rows
    ]


def _operators(view: RankView, per_step: Fraction) -> list[Piece]:
    rows = view.rows(_SQL["operators"])
    return [
        Piece(
            name=f"{name} {shapes}".rstrip(),
            operator=name,
            shapes=shapes,
            category="",
            ns=ns * per_step,
            count=calls * per_step,
        )
        for name, shapes, ns, calls in rows
    ]


def compare(a: Side, b: Side) -> Comparison:
    """Compare B with A."""
    operators = match(a.operators, b.operators)
    best = StepTimes(_best(a), _best(b))
    profile = (profile_step_ns(a.runs), profile_step_ns(b.runs))
    fixed, new, not_comparable = _findings(a.first, b.first)
    return Comparison(
        a=a,
        b=b,
        best=best,
        sources=(_source(a), _source(b)),
        verdict=verdict(a.measured, b.measured),
        throughput=throughput(a.runs, b.runs, a.measured, b.measured),
        profile_ns=profile,
        median=StepTimes(_median(a), _median(b)),
        disagreement=_disagreement(best, *profile, (_source(a), _source(b))),
        waterfall_run=run_waterfall(a.runs, b.runs),
        waterfall=profile_waterfall(a.runs, b.runs),
        kernels=tuple(match(a.kernels, b.kernels)),
        operators=tuple(operators),
        metrics=tuple(MetricChange(key, _reading(a, key), _reading(b, key)) for key in METRICS),
        findings_fixed=fixed,
        findings_new=new,
        not_comparable_findings=not_comparable,
        reasons=tuple(reasons(a.first, b.first, operators)),
        audit=audit_of_pair(a.runs, b.runs),
        prediction=prediction(a.first, best.b, fixed),
    )


def _measured(run: RunResult, library: Library) -> Measured:
    """Return the run's step time and the steps that show its spread.

    Those are the profile's, but the replay's where the estimate without the profiler is the better guide: what the profiler adds to each
    step is noise of its own.
    """
    lead, recordings = run.lead, tuple(sorted(str(info["id"]) for info in run.recordings))
    best = run.metrics["best_step_time_ms"]
    if lead is None:
        return Measured((), best.value, _step_source(run), recordings, low_ms=best.low, high_ms=best.high)
    steps = lead.device_step_ms
    estimate, mean = lead.best.estimate.value, lead.best.mean_ms
    if estimate is not None and mean is not None and abs(estimate - mean) > AGREES_WITHIN * mean:
        with open_rank(library, lead) as view:
            steps = _replayed_steps(view, lead) or steps
    return Measured(
        tuple(steps), best.value, lead.best.source, recordings, recorded=len(lead.steps), low_ms=best.low, high_ms=best.high
    )


def _replayed_steps(view: RankView, rank: RankResult) -> list[float]:
    """Return the counted steps of the replay without the profiler's cost, ms; empty where there is no replay."""
    rows = view.recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    if not rows:
        return []
    problem = replay_store.load(rows[0][0])
    counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
    return [float(ns) / 1e6 for ns in step_times(problem, replay(problem), rank.device, counted)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _best(side: Side) -> float | None:
    return _mean([run.metrics["best_step_time_ms"].value for run in side.runs])


def _median(side: Side) -> float | None:
    steps = [step for run in side.runs if run.lead is not None for step in run.lead.device_step_ms]
    return statistics.median(steps) if steps else None


def _source(side: Side) -> str:
    return ", ".join(sorted({_step_source(run) for run in side.runs}))


def _step_source(run: RunResult) -> str:
    """Return where the best step time is from; without GPU work only a stopwatch and the loop's own marks have an interval."""
    if run.lead is not None:
        return run.lead.best.source
    if run.metrics["best_step_time_ms"].low is None:
        return "profile"
    return "user" if run.manifest.facts.step_time_ms is not None else "marks"


def _reading(side: Side, key: str) -> Reading:
    readings = [run.metrics[key] for run in side.runs]
    if len(readings) == 1:
        return readings[0]
    value = _mean([reading.value for reading in readings])
    if value is None:
        return missing(next(reading.why_missing for reading in readings if reading.why_missing) or "Not known in every run.")
    trust = max((reading.trust for reading in readings), key=("ok", "caution", "unusable").index)
    return Reading(
        value, trust=trust, notes=(f"Mean of {len(readings)} runs.", *dict.fromkeys(n for r in readings for n in r.notes))
    )


def _findings(a: RunResult, b: RunResult) -> tuple[tuple[Finding, ...], tuple[Finding, ...], tuple[str, ...]]:
    """Return what A has and B lost, what B has and A lacks, and the rules that one side could not check."""
    rules_a, rules_b = {f.rule for f in a.findings}, {f.rule for f in b.findings}
    unchecked_a, unchecked_b = {n.rule for n in a.not_checked}, {n.rule for n in b.not_checked}
    fixed = tuple(f for f in a.findings if f.rule not in rules_b | unchecked_b)
    new = tuple(f for f in b.findings if f.rule not in rules_a | unchecked_a)
    one_sided = sorted((rules_a & unchecked_b) | (rules_b & unchecked_a))
    return fixed, new, tuple(one_sided)


def _disagreement(best: StepTimes, a_ns: Fraction | None, b_ns: Fraction | None, sources: tuple[str, str]) -> str | None:
    """Say how the profiles' change differs from the change of the best step times, where in sign or by more than 10 %."""
    if best.a is None or best.b is None or not best.a or not best.b or not a_ns or not b_ns:
        return None
    profile = (float(a_ns) / 1e6, float(b_ns) / 1e6)
    moves = (best.b / best.a - 1, profile[1] / profile[0] - 1)
    opposite = moves[0] * moves[1] < 0 and min(abs(move) for move in moves) > SAME
    if not opposite and abs(moves[0] - moves[1]) <= DISAGREES:
        return None
    words = {
        "user": "the stopwatch",
        "marks": "the run's own step marks",
        "telemetry": "telemetry",
        "estimate": "the estimate without the profiler",
        "profile": "the profile",
    }
    measured = " and ".join(dict.fromkeys(words.get(source, source) for source in sources))
    costs = [
        f"{abs(p / t - 1):.0%} {'longer' if p >= t else 'shorter'}" for p, t in zip(profile, (best.a, best.b), strict=True)
    ]
    return (
        f"The profiles and the runs disagree. Under the profiler a step of B is {_moved(moves[1])} ({profile[0]:.4g} → {profile[1]:.4g} ms); "
        f"by {measured} it is {_moved(moves[0])} ({best.a:.4g} → {best.b:.4g} ms). Profiled steps are {costs[0]} than the run's in A and "
        f"{costs[1]} in B, so the waterfall of the profiles explains the recordings, not the gain."
    )


def _moved(move: float) -> str:
    return "as long" if abs(move) < SAME else f"{abs(move):.0%} {'slower' if move > 0 else 'faster'}"

"""One side of a comparison: its runs, their representative steps, and its GPU work per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sawtooth.analysis.compare.changed.conditions import Condition, conditions_of, shared_conditions
from sawtooth.analysis.compare.changed.products import Weight, products_of, weights_of
from sawtooth.analysis.compare.changed.setup_traits import ReadBack, Trait, traits_of
from sawtooth.analysis.compare.matching import PerStepWork
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.metrics.step_sources import StepSource
from sawtooth.analysis.metrics.step_time import MAX_PROFILE_DIFFERENCE
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.replay.simulation import replay, step_times
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import busy_share_of_best
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.telemetry.attribution import machine_of
from sawtooth.ingest.errors import UsageError

_SQL = queries_of(__file__)

GPU_BOUND_SHARE = 0.9  # Share of a step in which the GPU works. Above it, the speed of the host hardly changes the step time.


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its runs, their representative steps, and their GPU work per step.

    ``traits``, ``conditions``, ``products`` (shapes) and ``weights`` are those that all runs of the side have in common.
    """

    runs: tuple[RunResult, ...]
    measured: tuple[MeasuredSteps, ...]
    kernels: tuple[PerStepWork, ...]
    operators: tuple[PerStepWork, ...]
    traits: tuple[Trait, ...] = ()
    products: frozenset[str] = frozenset()
    weights: frozenset[Weight] = frozenset()
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, sides: Sequence[Side]) -> Side:
        """Join sides of one run each into one side; times per step become means over the runs.

        Raises UsageError if ``sides`` is empty.
        """
        if not sides:
            raise UsageError("A side of a comparison needs at least one run.")
        runs = [run for side in sides for run in side.runs]
        part = [Fraction(len(side.runs), len(runs)) for side in sides]
        return cls(
            tuple(runs),
            tuple(measured for side in sides for measured in side.measured),
            tuple(p.scaled(share) for side, share in zip(sides, part, strict=True) for p in side.kernels),
            tuple(p.scaled(share) for side, share in zip(sides, part, strict=True) for p in side.operators),
            tuple(trait for trait in sides[0].traits if all(trait in side.traits for side in sides)),
            frozenset.intersection(*(side.products for side in sides)),
            frozenset.intersection(*(side.weights for side in sides)),
            shared_conditions([side.conditions for side in sides]),
        )

    @property
    def gpu_worked(self) -> bool:
        """Whether all its runs have GPU work."""
        return all(run.lead is not None for run in self.runs)

    @property
    def device_step_ms(self) -> list[float]:
        """Device durations of the counted steps of all its runs, ms."""
        return [step for run in self.runs if run.lead is not None for step in run.lead.device_step_ms]

    @property
    def first(self) -> RunResult:
        """The run that represents the side if only one run can be used (findings, devices)."""
        return self.runs[0]

    @property
    def command(self) -> list[str]:
        """The command of all runs under `sawtooth run`.

        It is [] if the commands differ, or if the runs were recorded in another way.
        """
        commands = [run.manifest.recorded_command for run in self.runs]
        return commands[0] if all(command == commands[0] for command in commands) else []

    @property
    def name(self) -> str:
        """The runs' names."""
        return " + ".join(run.manifest.name for run in self.runs)


def side_of(runs: Sequence[RunResult], library: Library) -> Side:
    """Load the data of the runs of one side that a comparison needs.

    Raises UsageError if ``runs`` is empty.
    """
    return Side.of([_side_of_one(run, library) for run in runs])


def _side_of_one(run: RunResult, library: Library) -> Side:
    measured, lead = _measurement(run, library), run.lead
    if lead is None or not len(lead.counted):
        return Side((run,), (measured,), (), (), *_set_up(run, library, None))
    per_step = Fraction(1, len(lead.counted))
    with open_rank(library, lead) as view:
        kernels, operators = tuple(_kernels(view, per_step)), tuple(_operators(view, per_step))
        copies, steps_with = view.rows(_SQL["read_back"])[0]
        read_back = ReadBack(copies / len(lead.counted), steps_with, len(lead.counted))
    return Side((run,), (measured,), kernels, operators, *_set_up(run, library, read_back))


def _set_up(
    run: RunResult, library: Library, read_back: ReadBack | None
) -> tuple[tuple[Trait, ...], frozenset[str], frozenset[Weight], tuple[Condition, ...]]:
    """Return the run's traits, product shapes, weights and conditions, from the trace of its slowest rank."""
    traces = run.manifest.traces
    of_lead = run.lead.recording_id if run.lead is not None else traces[0].id if traces else None
    if of_lead is None:
        traits = traits_of(run, None)
        return traits, frozenset(), frozenset(), conditions_of(run, library, traits, None)
    with library.open(of_lead) as recording:
        traits = traits_of(run, recording, read_back)
        conditions = conditions_of(run, library, traits, recording)
        return traits, products_of(recording), weights_of(recording), conditions


def _kernels(view: RankView, per_step: Fraction) -> list[PerStepWork]:
    rows = view.rows(_SQL["kernels"])
    return [
        PerStepWork(name=name, operator=operator, shapes=shapes, category=category, ns=ns * per_step, count=count * per_step)
        for name, operator, shapes, category, ns, count in rows
    ]


def _operators(view: RankView, per_step: Fraction) -> list[PerStepWork]:
    rows = view.rows(_SQL["operators"])
    return [
        PerStepWork(
            name=f"{name} {shapes}".rstrip(),
            operator=name,
            shapes=shapes,
            category="",
            ns=ns * per_step,
            count=calls * per_step,
        )
        for name, shapes, ns, calls in rows
    ]


def _measurement(run: RunResult, library: Library) -> MeasuredSteps:
    """Return the run's step time and the steps that show its spread.

    These are the profiled steps. If the profiler's cost is large, they are the steps of the replay without it, because that
    cost adds its own noise to each step.
    """
    lead, recordings = run.lead, tuple(sorted(row.id for row in run.recordings))
    best = run.metrics["best_step_time_ms"]
    if lead is None:
        profiled = run.host.step_ms if run.host is not None else ()
        return MeasuredSteps(
            profiled,
            best.value,
            step_source(run),
            recordings,
            low_ms=best.low,
            high_ms=best.high,
            host_bound=True,
            on_host=run.host is not None,
            machine=machine_of(run.manifest, library),
        )
    steps = lead.device_step_ms
    estimate, mean = lead.best.estimate.value, lead.best.mean_ms
    if estimate is not None and mean is not None and abs(estimate - mean) > MAX_PROFILE_DIFFERENCE * mean:
        with open_rank(library, lead) as view:
            steps = _replayed_steps(view, lead) or steps
    marks = _marks(lead)
    return MeasuredSteps(
        tuple(steps),
        best.value,
        lead.best.source,
        recordings,
        recorded=len(lead.steps),
        low_ms=best.low,
        high_ms=best.high,
        host_bound=(busy_share_of_best(lead) or 1.0) < GPU_BOUND_SHARE,
        works_ms=lead.best.floor_ms,
        profiled_ms=mean,
        kernels_ms=lead.work.kernel_ns / 1e6 if lead.work is not None and len(run.ranks) == 1 else None,
        before_high_ms=marks.before_high_ms if marks is not None else None,
        marked_ms=marks.marked_ms if marks is not None else None,
        machine=machine_of(run.manifest, library),
    )


def _marks(lead: RankResult) -> StepTimeEvidence | None:
    """Return the evidence of the step marks; None if they do not give the step time."""
    if lead.best.source != "marks":
        return None
    marks = (
        evidence for evidence in lead.best.evidence if evidence.source == "marks" and evidence.ms == lead.best.reading.value
    )
    return next(marks, None)


def _replayed_steps(view: RankView, rank: RankResult) -> list[float]:
    """Return the counted steps of the unprofiled replay, in ms; empty without a replay."""
    rows = view.recording.rows("SELECT problem FROM replays WHERE kind = 'unprofiled'")
    if not rows:
        return []
    problem = replay_store.load(rows[0][0])
    counted = rank.steps.loc[rank.steps["counted"], "step"].to_numpy(np.int32)
    return [float(ns) / 1e6 for ns in step_times(problem, replay(problem), rank.device, counted)]


def step_source(run: RunResult) -> StepSource:
    """Return the source of the best step time.

    Without GPU work, only a stopwatch and the loop's own marks have an interval.
    """
    if run.lead is not None:
        return run.lead.best.source
    if run.metrics["best_step_time_ms"].low is None:
        return "profile"
    return "user" if run.manifest.facts.step_time_ms is not None else "marks"


def withdrawn_by(a: Side, b: Side) -> str | None:
    """Return why a run of either side has no step time, as the headline of its failed check.

    Returns None if no check failed.
    """
    withdrawn_runs = ((run.manifest.name, run.withdrawn_by) for side in (a, b) for run in side.runs)
    return next((f"{name}: {check.headline}" for name, check in withdrawn_runs if check is not None), None)

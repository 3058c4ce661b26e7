"""Queries about the data loader: needed workers, hidden loading time, and starts of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import FEWER_BYTES
from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.calls import CountedEvents, frames
from sawtooth.analysis.metrics.loader_rate import Feeding, cores_of, first_read_of, sample_cost, workers_time
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, RunResult
from sawtooth.analysis.units import in_words, significant
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SEVERAL_CORES, LoaderRate, SampleCost, least_workers, predict
from sawtooth.ingest.manifest import UserFacts

COLLATE_COUNTS = 0.25  # Share of the time of a batch's samples. A shorter collation changes no advice.
UNSLOWED = 0.05  # Share by which the profiler makes a step longer. Below it, one number is enough for both steps.
MAX_SEEN = 0.5  # Share of the largest gain that more workers could bring if they kept up with the step.
ITERATOR_MADE = r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator"  # Matches the start of an epoch of a loader.
PROCESS_STARTED = r"multiprocessing/process\.py\(\d+\): start"


# Upper limit of workers if the host's number of cores is not known; the same number as in the rules' code changes.
UNKNOWN_HOST = 8


@dataclass(frozen=True)
class TimedWorkers:
    """The number of ``workers`` that load a step's batches, and the edit that gives their time per step."""

    workers: int
    edit: WithoutHostCause

    @property
    def ms(self) -> float:
        """Loading time per step with these workers, ms."""
        return self.edit.paced_ms


@dataclass(frozen=True)
class HiddenTime:
    """A run whose steps take ``run_ms``, although the profile estimates ``estimate_ms``.

    ``profiled_ms`` is their time with the profiler's cost, None if it is not known. ``evidence`` names the source of
    ``run_ms``, ``proof`` is a sentence with the numbers. ``timed`` is True if clocks of the run measured the step, False if
    telemetry did.
    """

    run_ms: float
    estimate_ms: float
    profiled_ms: float | None
    evidence: str
    proof: str
    timed: bool

    @property
    def profiled_steps_take(self) -> str:
        """The time of the profiled steps in words, with and without the profiler's cost if they differ."""
        without = in_words(self.estimate_ms)
        if self.profiled_ms is None or self.profiled_ms <= (1 + UNSLOWED) * self.estimate_ms:
            return without
        return f"{in_words(self.profiled_ms)} ({without} without the profiler)"


def hidden_time(context: RuleContext) -> HiddenTime | None:
    """Return the time of the run's steps that the profiled steps do not show.

    None if the profiled steps show all waits. The run's step time comes from its stopwatch or step marks, else from telemetry.
    """
    fit, best = context.rank.represents, context.rank.best
    estimate = best.estimate.value
    if estimate is None:
        return None
    if best.represented and STEP_SOURCES[best.source].timed:
        return None  # A clock of the run is stronger evidence than telemetry.
    if not STEP_SOURCES[best.source].timed or best.ms is None:
        if fit is None or fit.represents is not False or not fit.step_ns:
            return None
        return HiddenTime(fit.step_ns / 1e6, estimate, best.profiled.value, "telemetry shows about", fit.sentence, timed=False)
    shows = f"{STEP_SOURCES[best.source].name} show{'s' if best.source == 'user' else ''}"
    proof = f"{shows[0].upper()}{shows[1:]} {in_words(best.ms)} per step, {significant(best.ms / estimate, 2)} times the {in_words(estimate)} estimated from the profile."
    return HiddenTime(best.ms, estimate, best.profiled.value, shows, proof, timed=True)


def mostly_hidden(context: RuleContext) -> HiddenTime | None:
    """Return the hidden time if it is longer than the profiled steps' own wait for the loader; else None."""
    hidden = hidden_time(context)
    return hidden if hidden is not None and hidden.run_ms - hidden.estimate_ms > context.lost_ms("data_wait") else None


def is_hidden_loader(context: RuleContext) -> bool:
    """Return whether workers limit the run, but mostly outside the profiled steps.

    This needs timed workers. The profiled steps alone would understate this loss.
    """
    fed, hidden = workers_time(context.run.manifest.facts), mostly_hidden(context)
    if fed is None or not loader_may_limit(context):
        return False
    return fed.limits(hidden.run_ms) if hidden is not None else at_their_limit(context) is not None


def at_their_limit(context: RuleContext) -> Feeding | None:
    """Return the workers' time per batch if it limits the run but the profile hardly waits.

    It limits the run if it is as long as the run's step. If the profiled steps wait for most of the possible gain, their own wait
    shows the loss, and the result is None.
    """
    fed = workers_time(context.run.manifest.facts)
    if fed is None or not context.step_ms or not fed.limits(context.step_ms) or mostly_hidden(context) is not None:
        return None
    return fed if context.lost_ms("data_wait") < MAX_SEEN * (most_to_gain_ms(context) or math.inf) else None


def most_to_gain_ms(context: RuleContext) -> float | None:
    """Return the largest gain per step if the workers kept up, ms; None if it is not known or negligible.

    The limit is the GPU's own work, or the time per step with the best number of workers.
    """
    best = context.rank.best
    if best.ms is None or context.whatif is None:
        return None
    saved = best.ms - max(context.whatif.least_ms(best, ()), quickest_ms(context.run.manifest.facts))
    return saved if context.share(saved) >= FEW_LINES.share else None


def loads_in_workers(context: RuleContext) -> bool:
    """Return whether worker processes load the batches of the run."""
    return bool(context.recording.named(LOADS_IN_WORKERS))


def loader_may_limit(context: RuleContext) -> bool:
    """Return whether the run has worker processes that may be too slow for its steps.

    Workers that were timed and are certainly fast enough do not count.
    """
    return loads_in_workers(context) and not keeps_up(context.run.manifest.facts, context.step_ms)


def of_first_read(context: RuleContext) -> bool:
    """Return whether all profiled steps are in a first epoch that was read from disk.

    Later epochs were not read from disk, so the wait of the profiled steps does not represent the run.
    """
    first, rank = first_read_of(context.run.manifest.facts), context.rank
    if first is None or not first.is_over or first.later_ns is None or rank.trace.clock != "unix":
        return False
    return int(rank.counted["end_ns"].max()) < first.later_ns


def profiled_steps(context: RuleContext) -> list[Row]:
    """Return the counted steps as evidence rows that link to the timeline."""
    return [
        {"name": str(s.name), "start_ns": int(s.start_ns), "end_ns": int(s.end_ns)} for s in context.rank.counted.itertuples()
    ]


def keeps_up(facts: UserFacts, step_ms: float | None) -> bool:
    """Return whether the timed workers certainly load faster than steps of ``step_ms``."""
    fed = workers_time(facts)
    return fed is not None and step_ms is not None and fed.high_ms < step_ms


def quickest_ms(facts: UserFacts) -> float:
    """Return the loading time per step with the best number of workers, ms; 0 if they were not timed."""
    cost = sample_cost(facts)
    return _paced_edit(facts, cost, _best(facts, cost)).paced_ms if cost is not None else 0.0


def paced_by(facts: UserFacts, workers: int) -> WithoutHostCause | None:
    """Return the edit that reduces the loader's wait to the loading time of ``workers``.

    None if the workers were not timed.
    """
    cost = sample_cost(facts)
    return _paced_edit(facts, cost, workers) if cost is not None else None


def most_that_help(facts: UserFacts) -> TimedWorkers | None:
    """Return the loading time with the best number of workers.

    None if the workers were not timed, or if the run already has this number.
    """
    cost = sample_cost(facts)
    if cost is None or (workers := _best(facts, cost)) <= (facts.loader_workers or 0):
        return None
    return TimedWorkers(workers, _paced_edit(facts, cost, workers))


def _best(facts: UserFacts, cost: SampleCost) -> int:
    """Return the smallest number of workers with the highest sample rate."""
    return max(range(1, MAX_WORKERS_PER_CORE * cores_of(facts) + 1), key=lambda workers: _rate(facts, cost, workers).value)


def _paced_edit(facts: UserFacts, cost: SampleCost, workers: int) -> WithoutHostCause:
    rate, samples = _rate(facts, cost, workers), facts.samples_per_step or cost.batch
    likely_ms, low_ms, high_ms = (1e3 * samples / per_s for per_s in (rate.value, rate.high, rate.low))
    return WithoutHostCause("data_wait", paced_ms=likely_ms, paced_at_least=low_ms, paced_at_most=high_ms)


def _rate(facts: UserFacts, cost: SampleCost, workers: int) -> LoaderRate:
    return predict(cost, workers, cores_of(facts), int(facts.loader_workers or 0))


def advised_at_first(context: RuleContext, lost_ms: float, fed_ms: float | None) -> int:
    """Return the number of workers for a training process that loads its own batches.

    The workers must hide the loading behind the rest of the step (``fed_ms``), at one core per worker. Samples that mostly
    wait allow more workers than cores.
    """
    host, facts = context.run.telemetry.host, context.run.manifest.facts
    cores, cost = (host.means.get("cores") if host is not None else None) or facts.loader_cores, sample_cost(facts)
    max_workers = max(int(cores) - 1, 1) if cores else UNKNOWN_HOST
    if not fed_ms:
        return max_workers
    if cost is None:
        return min(max(math.ceil(lost_ms / SEVERAL_CORES / fed_ms), 1), max_workers)
    if cost.limit == "waiting":
        max_workers = MAX_WORKERS_PER_CORE * cores_of(facts)
    needed = 1e3 * (facts.samples_per_step or cost.batch) / fed_ms
    return least_workers(cost, needed, cores_of(facts), max_workers, sure=False) or max_workers


def workers_needed(facts: UserFacts, step_ms: float | None) -> str:
    """Return sentences with the time per sample and the number of workers for ``step_ms``.

    Empty if neither was measured.
    """
    cost = sample_cost(facts)
    if cost is None or not step_ms:
        return ""
    cores, seen = cores_of(facts), int(facts.loader_workers or 0)
    sample_time = f"A sample takes {in_words(1e3 * cost.wall_s)}, {in_words(1e3 * cost.cpu_s)} of it on a core."
    if cost.collate_s > COLLATE_COUNTS * cost.batch * cost.wall_s:
        sample_time += f" Collating a batch takes {in_words(1e3 * cost.collate_s)}."
    needed, max_workers = 1e3 * cost.batch / step_ms, MAX_WORKERS_PER_CORE * cores
    likely_workers = least_workers(cost, needed, cores, max_workers, seen, sure=False)
    if likely_workers is None and cost.pin_s and needed > cost.batch / cost.pin_s:
        return (
            f"{sample_time} One thread pins the batches of all workers and takes {in_words(1e3 * cost.pin_s)} for each, longer than the step: "
            f"send fewer bytes{FEWER_BYTES}."
        )
    if likely_workers is None:
        return f"{sample_time} No number of workers on {cores} cores is enough for a step of {in_words(step_ms)}, which needs {needed:,.0f} samples/s."
    sure_workers = least_workers(cost, needed, cores, max_workers, seen)
    workers = "1 worker is" if likely_workers == 1 else f"{likely_workers} workers are"
    counted = f"{sample_time} So {workers} enough for a step of {in_words(step_ms)}"
    if sure_workers == likely_workers:
        return f"{counted}."
    certain = (
        f"With {sure_workers}, slower samples are covered as well"
        if sure_workers is not None
        else f"This is not certain on {cores} cores"
    )
    return f"{counted}. {certain}."


def worker_starts(context: RuleContext) -> CountedEvents:
    """Return the calls that create a loader's iterator and start worker processes.

    A loader without workers starts none.
    """
    made, started = frames(context, ITERATOR_MADE), frames(context, PROCESS_STARTED)
    moments = np.sort(started.frame["start_ns"].to_numpy(np.int64))
    first, last = (np.searchsorted(moments, made.frame[edge].to_numpy(np.int64)) for edge in ("start_ns", "end_ns"))
    return made.where(last > first)


CPU_LIMITS = Action(
    "Make",
    "a sample cheaper",
    ", or compute less in the step: the CPU is the limit, and more workers only take its cores from the training.",
)


def crowds_the_training(result: RunResult) -> bool:
    """Return whether a run that computes on the host already has as many loader workers as cores.

    It computes on the host if operators take at least half of the host's time.
    """
    work, facts = result.host, result.manifest.facts
    if work is None or not facts.loader_cores:
        return False
    return (facts.loader_workers or 0) >= facts.loader_cores and 2 * work.operators_ms >= work.total_ms

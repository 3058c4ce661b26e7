"""Queries about the data loader: needed workers, hidden loading time, and starts of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import FEWER_BYTES
from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import CountedEvents, python_events
from sawtooth.analysis.metrics.loader_rate import Feeding, cores_of, first_read_of, sample_cost, workers_time
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, RunResult
from sawtooth.analysis.units import in_words, significant
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SEVERAL_CORES, LoaderRate, SampleCost, least_workers, predict
from sawtooth.ingest.manifest import UserFacts

MIN_COLLATE_SHARE = 0.25  # Share of the time of a batch's samples. A shorter collation changes no advice.
MIN_PROFILER_SHARE = 0.05  # Share by which the profiler makes a step longer. Texts do not name a smaller difference.
# Share of the largest gain that more workers could bring. A longer wait of the profiled steps shows the loss.
MAX_WAIT_SHARE = 0.5
ITERATOR_MADE = r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator"  # Begins an epoch.
PROCESS_STARTED = r"multiprocessing/process\.py\(\d+\): start"
MAX_WORKERS_ON_UNKNOWN_HOST = 8  # If the number of cores is not known. The rules' code changes have this number.


@dataclass(frozen=True)
class TimedWorkers:
    """A number of ``workers``, and the edit that sets the loader's wait to their time per step."""

    workers: int
    edit: WithoutHostCause

    @property
    def ms(self) -> float:
        """Loading time per step with these workers, ms."""
        return self.edit.loader_limit_ms


@dataclass(frozen=True)
class HiddenTime:
    """A run whose steps take ``run_ms``, although the profile estimates ``estimate_ms``.

    ``profiled_ms`` is the step's time with the profiler's cost, None if it is not known. ``evidence`` names the source of
    ``run_ms``, and ``proof`` is a sentence with the numbers. ``timed`` is True if clocks of the run measured the step, False if
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
        estimate = in_words(self.estimate_ms)
        if self.profiled_ms is None or self.profiled_ms <= (1 + MIN_PROFILER_SHARE) * self.estimate_ms:
            return estimate
        return f"{in_words(self.profiled_ms)} ({estimate} without the profiler)"


def hidden_time(context: RuleContext) -> HiddenTime | None:
    """Return the time of the run's steps that the profiled steps do not show; None if there is none.

    The run's step time comes from its stopwatch or step marks, else from telemetry.
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


def longer_hidden_time(context: RuleContext) -> HiddenTime | None:
    """Return the hidden time if it is longer than the profiled steps' wait for the loader, else None."""
    hidden = hidden_time(context)
    return hidden if hidden is not None and hidden.run_ms - hidden.estimate_ms > context.lost_ms("data_wait") else None


def is_hidden_loader(context: RuleContext) -> bool:
    """Return whether timed workers limit the run, but mostly outside the profiled steps.

    The profiled steps alone would understate this loss.
    """
    loading, hidden = workers_time(context.run.manifest.facts), longer_hidden_time(context)
    if loading is None or not loader_may_limit(context):
        return False
    return loading.limits(hidden.run_ms) if hidden is not None else limiting_loading_time(context) is not None


def limiting_loading_time(context: RuleContext) -> Feeding | None:
    """Return the workers' time per batch if it limits the run but the profiled steps hardly wait.

    The workers limit the run if this time is as long as the run's step.
    """
    loading = workers_time(context.run.manifest.facts)
    if loading is None or not context.step_ms or not loading.limits(context.step_ms) or longer_hidden_time(context) is not None:
        return None
    max_wait_ms = MAX_WAIT_SHARE * (max_gain_ms(context) or math.inf)
    return loading if context.lost_ms("data_wait") < max_wait_ms else None


def max_gain_ms(context: RuleContext) -> float | None:
    """Return the largest gain per step if the workers kept up, ms. None if it is not known or negligible.

    The step then takes the time of the GPU's work, or the loading time with the best number of workers.
    """
    best = context.rank.best
    if best.ms is None or context.whatif is None:
        return None
    saved = best.ms - max(context.whatif.least_ms(best, ()), shortest_loading_ms(context.run.manifest.facts))
    return saved if context.share(saved) >= FEW_LINES_TO_CHANGE.share else None


def loads_in_workers(context: RuleContext) -> bool:
    """Return whether worker processes load the batches of the run."""
    return bool(context.recording.named(LOADS_IN_WORKERS))


def loader_may_limit(context: RuleContext) -> bool:
    """Return whether the run has worker processes that are not known to be fast enough."""
    return loads_in_workers(context) and not workers_keep_up(context.run.manifest.facts, context.step_ms)


def profiles_first_read(context: RuleContext) -> bool:
    """Return whether all profiled steps are in a first epoch that was read from disk, unlike later epochs.

    The profiled steps' wait for the loader then does not represent the run.
    """
    first, rank = first_read_of(context.run.manifest.facts), context.rank
    if first is None or not first.is_over or first.later_ns is None or rank.trace.clock != "unix":
        return False
    return int(rank.counted["end_ns"].max()) < first.later_ns


def profiled_steps(context: RuleContext) -> list[Row]:
    """Return the counted steps as evidence rows that link to the timeline."""
    return [
        {"name": str(step.name), "start_ns": int(step.start_ns), "end_ns": int(step.end_ns)}
        for step in context.rank.counted.itertuples()
    ]


def workers_keep_up(facts: UserFacts, step_ms: float | None) -> bool:
    """Return whether the timed workers certainly load faster than steps of ``step_ms``."""
    loading = workers_time(facts)
    return loading is not None and step_ms is not None and loading.high_ms < step_ms


def shortest_loading_ms(facts: UserFacts) -> float:
    """Return the loading time per step with the best number of workers, ms. 0 if loading was not timed."""
    cost = sample_cost(facts)
    return _loader_limit_edit(facts, cost, _best_number(facts, cost)).loader_limit_ms if cost is not None else 0.0


def loading_time_edit(facts: UserFacts, workers: int) -> WithoutHostCause | None:
    """Return the edit that sets the loader's wait to the time of ``workers``, None if not timed."""
    cost = sample_cost(facts)
    return _loader_limit_edit(facts, cost, workers) if cost is not None else None


def best_workers(facts: UserFacts) -> TimedWorkers | None:
    """Return the best number of workers; None if loading was not timed or the run already has this number."""
    cost = sample_cost(facts)
    if cost is None or (workers := _best_number(facts, cost)) <= (facts.loader_workers or 0):
        return None
    return TimedWorkers(workers, _loader_limit_edit(facts, cost, workers))


def _best_number(facts: UserFacts, cost: SampleCost) -> int:
    """Return the smallest number of workers with the highest sample rate."""
    return max(range(1, MAX_WORKERS_PER_CORE * cores_of(facts) + 1), key=lambda workers: _rate(facts, cost, workers).value)


def _loader_limit_edit(facts: UserFacts, cost: SampleCost, workers: int) -> WithoutHostCause:
    rate, samples = _rate(facts, cost, workers), facts.samples_per_step or cost.batch
    likely_ms, low_ms, high_ms = (1e3 * samples / per_s for per_s in (rate.value, rate.high, rate.low))
    return WithoutHostCause("data_wait", loader_limit_ms=likely_ms, loader_limit_low_ms=low_ms, loader_limit_high_ms=high_ms)


def _rate(facts: UserFacts, cost: SampleCost, workers: int) -> LoaderRate:
    return predict(cost, workers, cores_of(facts), int(facts.loader_workers or 0))


def workers_to_begin_with(context: RuleContext, lost_ms: float, rest_ms: float | None) -> int:
    """Return the number of workers for a training process that loads its own batches.

    The workers must load a batch in the time of the rest of the step (``rest_ms``), at one core per worker. Loading that mostly
    waits allows more workers than cores.
    """
    host, facts = context.run.telemetry.host, context.run.manifest.facts
    cores, cost = (host.means.get("cores") if host is not None else None) or facts.loader_cores, sample_cost(facts)
    max_workers = max(int(cores) - 1, 1) if cores else MAX_WORKERS_ON_UNKNOWN_HOST
    if not rest_ms:
        return max_workers
    if cost is None:
        return min(max(math.ceil(lost_ms / SEVERAL_CORES / rest_ms), 1), max_workers)
    if cost.limit == "waiting":
        max_workers = MAX_WORKERS_PER_CORE * cores_of(facts)
    samples_per_s = 1e3 * (facts.samples_per_step or cost.batch) / rest_ms
    return least_workers(cost, samples_per_s, cores_of(facts), max_workers, sure=False) or max_workers


def workers_needed(facts: UserFacts, step_ms: float | None) -> str:
    """Return sentences with the time per sample and the number of workers for ``step_ms``.

    Empty if loading was not timed.
    """
    cost = sample_cost(facts)
    if cost is None or not step_ms:
        return ""
    cores, workers_now = cores_of(facts), int(facts.loader_workers or 0)
    sample_time = f"A sample takes {in_words(1e3 * cost.wall_s)}, {in_words(1e3 * cost.cpu_s)} of it CPU time."
    if cost.collate_s > MIN_COLLATE_SHARE * cost.batch * cost.wall_s:
        sample_time += f" Collating a batch takes {in_words(1e3 * cost.collate_s)}."
    samples_per_s, max_workers = 1e3 * cost.batch / step_ms, MAX_WORKERS_PER_CORE * cores
    likely_workers = least_workers(cost, samples_per_s, cores, max_workers, workers_now, sure=False)
    if likely_workers is None and cost.pin_s and samples_per_s > cost.batch / cost.pin_s:
        return (
            f"{sample_time} One thread pins the batches of all workers and takes {in_words(1e3 * cost.pin_s)} for each, longer than the step: "
            f"send fewer bytes{FEWER_BYTES}."
        )
    if likely_workers is None:
        return f"{sample_time} No number of workers on {cores} cores is enough for a step of {in_words(step_ms)}, which needs {samples_per_s:,.0f} samples/s."
    sure_workers = least_workers(cost, samples_per_s, cores, max_workers, workers_now)
    workers = "1 worker is" if likely_workers == 1 else f"{likely_workers} workers are"
    enough = f"{sample_time} So {workers} enough for a step of {in_words(step_ms)}"
    if sure_workers == likely_workers:
        return f"{enough}."
    if sure_workers is None:
        return f"{enough}. This is not certain on {cores} cores."
    return f"{enough}. With {sure_workers}, slower samples are covered as well."


def worker_starts(context: RuleContext) -> CountedEvents:
    """Return the calls that create a loader's iterator and start worker processes."""
    iterators = python_events(context, ITERATOR_MADE)
    process_starts = np.sort(python_events(context, PROCESS_STARTED).frame["start_ns"].to_numpy(np.int64))
    begin, end = (np.searchsorted(process_starts, iterators.frame[edge].to_numpy(np.int64)) for edge in ("start_ns", "end_ns"))
    return iterators.where(end > begin)


COMPUTE_LESS_ON_CPU = Action(
    "Make",
    "a sample cheaper",
    ", or compute less in the step: the CPU is the limit, and more workers only take its cores from the training.",
)


def workers_crowd_training(result: RunResult) -> bool:
    """Return whether a run that computes on the host already has as many loader workers as cores.

    The run computes on the host if operators take at least half of the host's time.
    """
    host, facts = result.host, result.manifest.facts
    if host is None or not facts.loader_cores:
        return False
    return (facts.loader_workers or 0) >= facts.loader_cores and 2 * host.operators_ms >= host.total_ms

"""The loader's processes: how many feed a step, by what a sample took them in the helper's own timing, and when they start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.calls import Events, frames
from sawtooth.analysis.findings.sampled_loader import FEWER_BYTES
from sawtooth.analysis.metrics.feeding import Feeding, cores_of, feeding, first_read_of, sample_cost
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, RunResult
from sawtooth.analysis.units import in_words, significant
from sawtooth.ingest.loop.loading import BEYOND_CORES, SEVERAL_CORES, Rate, SampleCost, least_workers, predict
from sawtooth.ingest.manifest import UserFacts

COLLATE_COUNTS = 0.25  # of the time of a batch's samples: collating that takes less changes no advice
MOST_SEEN = 0.5  # of what workers who keep up could bring
ITERATOR_MADE = r"torch/utils/data/dataloader\.py\(\d+\): _get_iterator"  # an epoch of a loader begins
PROCESS_STARTED = r"multiprocessing/process\.py\(\d+\): start"


UNKNOWN_HOST = 8  # workers at most, where nothing tells how many cores the host has: as in the changes of rules


@dataclass(frozen=True)
class Fed:
    """A step whose batches ``workers`` load: what they take for it, ms, and the edit that says so."""

    workers: int
    edit: WithoutHostCause

    @property
    def ms(self) -> float:
        """What they take for a step, ms."""
        return self.edit.paced_ms


@dataclass(frozen=True)
class HiddenTime:
    """A run whose steps take ``run_ms``, as ``witness`` says, where the profiled ones take ``estimate_ms``; ``proof`` says it with its numbers; ``timed``: by clocks of the run, not by telemetry."""

    run_ms: float
    estimate_ms: float
    witness: str
    proof: str
    timed: bool


def hidden_time(context: RuleContext) -> HiddenTime | None:
    """Return what the profiled steps do not show of the run, by its stopwatch or marks, else by telemetry; None where they show it all."""
    fit, best = context.rank.represents, context.rank.best
    estimate = best.estimate.value
    if estimate is None:
        return None
    if best.represented and STEP_SOURCES[best.source].timed:
        return None  # a clock of the run outranks what telemetry makes of it
    if not STEP_SOURCES[best.source].timed or best.ms is None:
        if fit is None or fit.represents is not False or not fit.step_ns:
            return None
        return HiddenTime(fit.step_ns / 1e6, estimate, "telemetry says about", fit.sentence, timed=False)
    says = f"{STEP_SOURCES[best.source].name} say{'s' if best.source == 'user' else ''}"
    proof = f"{says[0].upper()}{says[1:]} {in_words(best.ms)} a step, {significant(best.ms / estimate, 2)} times the {in_words(estimate)} estimated from the profile."
    return HiddenTime(best.ms, estimate, says, proof, timed=True)


def mostly_hidden(context: RuleContext) -> HiddenTime | None:
    """Return what the profiled steps do not show of the run, where that is more than they themselves wait for the loader; else None."""
    hidden = hidden_time(context)
    return hidden if hidden is not None and hidden.run_ms - hidden.estimate_ms > context.lost_ms("data_wait") else None


def told_as_hidden(context: RuleContext) -> bool:
    """Tell whether workers that were timed to set the run's pace do so mostly where the profiled steps do not wait for them, which would understate it."""
    fed, hidden = feeding(context.run.manifest.facts), mostly_hidden(context)
    if fed is None or not loader_may_limit(context):
        return False
    return fed.limits(hidden.run_ms) if hidden is not None else at_their_limit(context) is not None


def at_their_limit(context: RuleContext) -> Feeding | None:
    """Return what the workers need for a batch where that is as long as the run's step and the profiled steps hardly wait for it; else None.

    Where those wait for most of what workers that keep up could bring, the wait itself tells what it costs.
    """
    fed = feeding(context.run.manifest.facts)
    if fed is None or not context.step_ms or not fed.limits(context.step_ms) or mostly_hidden(context) is not None:
        return None
    return fed if context.lost_ms("data_wait") < MOST_SEEN * (most_to_gain_ms(context) or math.inf) else None


def most_to_gain_ms(context: RuleContext) -> float | None:
    """Return the most that workers who keep up bring a step: down to the GPU's own work, or to what any number of workers feeds; None where that is not known or next to nothing."""
    best = context.rank.best
    if best.ms is None or context.whatif is None:
        return None
    saved = best.ms - max(context.whatif.least_ms(best, ()), quickest_ms(context.run.manifest.facts))
    return saved if context.share(saved) >= FEW_LINES.share else None


def loads_in_workers(context: RuleContext) -> bool:
    """Tell whether worker processes load the batches of the run."""
    return bool(context.recording.named(LOADS_IN_WORKERS))


def loader_may_limit(context: RuleContext) -> bool:
    """Tell whether worker processes load the batches of the run and, as far as they were timed, may give no more than its steps take."""
    return loads_in_workers(context) and not keeps_up(context.run.manifest.facts, context.step_ms)


def of_first_read(context: RuleContext) -> bool:
    """Tell whether the profiled steps are of a first epoch that was read from the disk, as later ones were not: their wait is not the run's."""
    first, rank = first_read_of(context.run.manifest.facts), context.rank
    if first is None or not first.is_over or first.later_ns is None or rank.trace.clock != "unix":
        return False
    return int(rank.counted["end_ns"].max()) < first.later_ns


def profiled_steps(context: RuleContext) -> list[dict[str, Any]]:
    """Return the counted steps as evidence rows that link to the timeline."""
    return [
        {"name": str(s.name), "start_ns": int(s.start_ns), "end_ns": int(s.end_ns)} for s in context.rank.counted.itertuples()
    ]


def keeps_up(facts: UserFacts, step_ms: float | None) -> bool:
    """Tell whether the workers, as they were timed, give more than steps of ``step_ms`` take, for sure."""
    fed = feeding(facts)
    return fed is not None and step_ms is not None and fed.high_ms < step_ms


def quickest_ms(facts: UserFacts) -> float:
    """Return the shortest step that any number of workers feeds, ms, as they were timed; 0 where they were not."""
    cost = sample_cost(facts)
    return _paced(facts, cost, _best(facts, cost)).paced_ms if cost is not None else 0.0


def paced_by(facts: UserFacts, workers: int) -> WithoutHostCause | None:
    """Return the loader's wait gone, as far as ``workers`` feed a step by what a sample took; None where it was not timed."""
    cost = sample_cost(facts)
    return _paced(facts, cost, workers) if cost is not None else None


def most_that_help(facts: UserFacts) -> Fed | None:
    """Return the step that as many workers feed as bring something; None where they were not timed, or there are as many already."""
    cost = sample_cost(facts)
    if cost is None or (workers := _best(facts, cost)) <= (facts.loader_workers or 0):
        return None
    return Fed(workers, _paced(facts, cost, workers))


def _best(facts: UserFacts, cost: SampleCost) -> int:
    """Return the smallest number of workers that gives most samples."""
    return max(range(1, BEYOND_CORES * cores_of(facts) + 1), key=lambda workers: _rate(facts, cost, workers).value)


def _paced(facts: UserFacts, cost: SampleCost, workers: int) -> WithoutHostCause:
    rate, samples = _rate(facts, cost, workers), facts.samples_per_step or cost.batch
    likely, least, most = (1e3 * samples / per_s for per_s in (rate.value, rate.high, rate.low))
    return WithoutHostCause("data_wait", paced_ms=likely, paced_at_least=least, paced_at_most=most)


def _rate(facts: UserFacts, cost: SampleCost, workers: int) -> Rate:
    return predict(cost, workers, cores_of(facts), int(facts.loader_workers or 0))


def advised_at_first(context: RuleContext, lost_ms: float, fed_ms: float | None) -> int:
    """Return how many workers to load with what the training process loads by itself: as many as hide it behind the rest of the step, ``fed_ms``, a core
    each; more where their samples wait."""
    host, facts = context.run.telemetry.host, context.run.manifest.facts
    cores, cost = (host.means.get("cores") if host is not None else None) or facts.loader_cores, sample_cost(facts)
    most = max(int(cores) - 1, 1) if cores else UNKNOWN_HOST
    if not fed_ms:
        return most
    if cost is None:
        return min(max(math.ceil(lost_ms / SEVERAL_CORES / fed_ms), 1), most)
    if cost.limit == "waiting":
        most = BEYOND_CORES * cores_of(facts)
    wanted = 1e3 * (facts.samples_per_step or cost.batch) / fed_ms
    return least_workers(cost, wanted, cores_of(facts), most, sure=False) or most


def workers_needed(facts: UserFacts, step_ms: float | None) -> str:
    """Return in sentences what a sample took and how many workers feed a step of ``step_ms``; empty where neither was measured."""
    cost = sample_cost(facts)
    if cost is None or not step_ms:
        return ""
    cores, seen = cores_of(facts), int(facts.loader_workers or 0)
    took = f"A sample takes {in_words(1e3 * cost.wall_s)}, {in_words(1e3 * cost.cpu_s)} of it on a core."
    if cost.collate_s > COLLATE_COUNTS * cost.batch * cost.wall_s:
        took += f" Collating a batch takes {in_words(1e3 * cost.collate_s)}."
    wanted, most = 1e3 * cost.batch / step_ms, BEYOND_CORES * cores
    likely = least_workers(cost, wanted, cores, most, seen, sure=False)
    if likely is None and cost.pin_s and wanted > cost.batch / cost.pin_s:
        return (
            f"{took} One thread takes {in_words(1e3 * cost.pin_s)} to pin a batch, longer than the step, however many workers there are: "
            f"send fewer bytes{FEWER_BYTES}."
        )
    if likely is None:
        return f"{took} No number of workers on {cores} cores feeds a step of {in_words(step_ms)}: it needs {wanted:,.0f} samples/s."
    sure = least_workers(cost, wanted, cores, most, seen)
    workers = "1 worker feeds" if likely == 1 else f"{likely} workers feed"
    counted = f"{took} By that {workers} a step of {in_words(step_ms)}"
    if sure == likely:
        return f"{counted}."
    return f"{counted}; {f'{sure} leave room for a sample that takes longer' if sure is not None else f'on {cores} cores no number is certain to'}."


def worker_starts(context: RuleContext) -> Events:
    """Return the calls that make a loader's iterator and start worker processes for it; a loader without workers starts none."""
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
    """Tell whether a training that computes on the host for half of its time or more has as many loader workers as cores already."""
    work, facts = result.host, result.manifest.facts
    if work is None or not facts.loader_cores:
        return False
    return (facts.loader_workers or 0) >= facts.loader_cores and 2 * work.operators_ms >= work.total_ms

"""The number of loader workers that a code change should use, if more workers help."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import cheaper_batch, pins_too_slowly
from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.metrics.step_time_evidence import HOST_DRIFT
from sawtooth.analysis.run.model import CodeChange
from sawtooth.analysis.telemetry.host import Limit
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SampleCost, least_workers, predict
from sawtooth.ingest.manifest import UserFacts


class Workers(NamedTuple):
    """The loader workers of the run, 0 if unknown, and the number to use."""

    seen: int
    use: int


def workers_for(context: RuleContext, step_ms: float | None, limit: Limit | None = None) -> Workers | None:
    """Return how many workers load batches as fast as steps of ``step_ms`` need them.

    There is at most one worker per core, unless samples mostly wait. None if more workers do not help, because something else
    limits the loader or each core already has a computing worker.
    """
    host, facts = context.run.telemetry.host, context.run.manifest.facts
    cost = sample_cost(facts)
    workers = int((host.means.get("workers") if host is not None else None) or facts.loader_workers or 0)
    cores = int((host.means.get("cores") if host is not None else None) or facts.loader_cores or 2 * workers)
    max_workers = MAX_WORKERS_PER_CORE * cores if cost is not None and cost.limit == "waiting" else cores
    if pins_too_slowly(facts) or limit not in (None, "worker") or (workers and workers >= max_workers):
        return None
    if not workers or not step_ms:
        return Workers(workers, 2 * workers)
    if cost is not None:
        return Workers(workers, min(max(_least(facts, cost, max_workers, step_ms), workers + 1), max_workers))
    # The workers were not timed. The run waits for them, so their rate is known: it grows with their number at best.
    return Workers(workers, min(max(math.ceil(workers * (context.step_ms or step_ms) / step_ms), 2 * workers), max_workers))


def _least(facts: UserFacts, cost: SampleCost, max_workers: int, step_ms: float) -> int:
    needed = 1e3 * (facts.samples_per_step or cost.batch) / step_ms
    numbers = (
        least_workers(cost, needed, cores_of(facts), max_workers, int(facts.loader_workers or 0), sure=sure)
        for sure in (True, False)
    )
    return next((number for number in numbers if number is not None), max_workers)


def with_more(facts: UserFacts, changes: tuple[CodeChange, ...], workers: Workers | None) -> tuple[CodeChange, ...]:
    """Return ``changes`` with the ``workers`` of ``workers_for``.

    The slots are ``$workers`` and ``$seen``. If more workers do not help, the change makes a sample cheaper instead.
    """
    if workers is None:
        return (cheaper_batch(facts),)
    return tuple(_with_workers(change, workers) for change in changes)


def _with_workers(change: CodeChange, workers: Workers) -> CodeChange:
    """Return a loader's code change with its numbers of workers.

    Without known workers, the change has its usual numbers.
    """
    if not workers.seen:
        return change.filled()
    names = {"workers": str(workers.use)}
    if change.framework == "PyTorch":
        names["seen"] = f", num_workers={workers.seen}"
    return replace(change.filled(**names), of_run="seen" in names)


class FedStep(NamedTuple):
    """Loader workers, and the step in ms that they allow; ``low_ms`` is the low end of its interval."""

    workers: int
    step_ms: float
    low_ms: float


def enough_workers(cost: SampleCost, facts: UserFacts, rest_ms: float, inline: bool) -> FedStep:
    """Return the fewest workers that load a batch in ``rest_ms``, or else the number that loads fastest.

    ``rest_ms`` is the step without the wait for batches. If the training loads its batches itself (``inline``), workers take cores from
    it. At the low end they do not, the host is faster by its usual drift, and the workers are as fast as the model allows.
    """
    cores, seen, batch_ms = cores_of(facts), int(facts.loader_workers or 0), 1e3 * cost.batch
    core_ms = (batch_ms * cost.cpu_s + 1e3 * cost.collate_s) / cores if inline else 0.0
    rates = [predict(cost, workers, cores, seen) for workers in range(1, MAX_WORKERS_PER_CORE * cores + 1)]
    needed = batch_ms / (rest_ms + core_ms) if rest_ms + core_ms > 0 else math.inf
    best = max(rates, key=lambda rate: rate.value)
    enough = next((rate for rate in rates if rate.value >= min(needed, best.value)), best)
    low_ms = max(rest_ms / (1 + HOST_DRIFT), batch_ms / enough.high)
    return FedStep(enough.workers, max(rest_ms + core_ms, batch_ms / enough.value), low_ms)

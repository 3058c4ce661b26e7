"""The number of loader workers that a code change should use, if more workers help."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import cheaper_batch_change, pins_too_slowly
from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.metrics.step_time_evidence import HOST_DRIFT
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.telemetry.host import Limit
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SampleCost, least_workers, predict
from sawtooth.ingest.manifest import UserFacts

MORE_WORKERS = Action(
    "Give",
    "the loader more workers and a deeper prefetch",
    ", or reduce the work per sample: decode smaller images, or cache decoded samples.",
)


class WorkerCounts(NamedTuple):
    """The run's number of loader workers (0 if unknown), and the advised number."""

    now: int
    advised: int


def workers_for(context: RuleContext, step_ms: float | None, limit: Limit | None = None) -> WorkerCounts | None:
    """Return how many workers load batches as fast as steps of ``step_ms`` need them.

    At most one worker per core is advised, unless samples mostly wait. None if more workers do not help, because something
    else limits the loader or each core already has a computing worker.
    """
    host, facts = context.run.telemetry.host, context.run.manifest.facts
    cost = sample_cost(facts)
    workers = int((host.means.get("workers") if host is not None else None) or facts.loader_workers or 0)
    cores = int((host.means.get("cores") if host is not None else None) or facts.loader_cores or 2 * workers)
    max_workers = MAX_WORKERS_PER_CORE * cores if cost is not None and cost.limit == "waiting" else cores
    if pins_too_slowly(facts) or limit not in (None, "worker") or (workers and workers >= max_workers):
        return None
    if not workers or not step_ms:
        return WorkerCounts(workers, 2 * workers)
    if cost is not None:
        return WorkerCounts(workers, min(max(_fewest_workers(facts, cost, max_workers, step_ms), workers + 1), max_workers))
    # The workers were not timed. The run waits for them, so its step shows their rate. At best, the rate grows with their number.
    enough = math.ceil(workers * (context.step_ms or step_ms) / step_ms)
    return WorkerCounts(workers, min(max(enough, 2 * workers), max_workers))


def _fewest_workers(facts: UserFacts, cost: SampleCost, max_workers: int, step_ms: float) -> int:
    """Return the fewest workers that are surely, or else likely, fast enough for steps of ``step_ms``."""
    samples_per_s = 1e3 * (facts.samples_per_step or cost.batch) / step_ms
    numbers = (
        least_workers(cost, samples_per_s, cores_of(facts), max_workers, int(facts.loader_workers or 0), sure=sure)
        for sure in (True, False)
    )
    return next((number for number in numbers if number is not None), max_workers)


def loader_changes(facts: UserFacts, changes: tuple[CodeChange, ...], workers: WorkerCounts | None) -> tuple[CodeChange, ...]:
    """Return ``changes`` with the ``workers`` of ``workers_for``.

    The slots are ``$workers`` and ``$workers_now``. If more workers do not help, the change makes a sample cheaper instead.
    """
    if workers is None:
        return (cheaper_batch_change(facts),)
    return tuple(_with_workers(change, workers) for change in changes)


def _with_workers(change: CodeChange, workers: WorkerCounts) -> CodeChange:
    """Return the code change with ``workers``, or with default numbers if ``workers.now`` is unknown."""
    if not workers.now:
        return change.filled()
    names = {"workers": str(workers.advised)}
    if change.framework == "PyTorch":
        names["workers_now"] = f", num_workers={workers.now}"
    return replace(change.filled(**names), of_run="workers_now" in names)


class FedStep(NamedTuple):
    """Loader workers, and the step in ms that they allow; ``low_ms`` is the low end of its interval."""

    workers: int
    step_ms: float
    low_ms: float


def enough_workers(cost: SampleCost, facts: UserFacts, rest_ms: float, inline: bool) -> FedStep:
    """Return the fewest workers that load a batch in ``rest_ms``, or else the number that loads fastest.

    ``rest_ms`` is the step without the wait for batches. If the training loads its batches itself (``inline``), workers take
    cores from the training. The low end of the interval assumes that the workers take no core from the training, that the
    host is faster by HOST_DRIFT, and that the workers are as fast as the model allows.
    """
    cores, workers_now, samples_1000 = cores_of(facts), int(facts.loader_workers or 0), 1e3 * cost.batch
    core_ms = (samples_1000 * cost.cpu_s + 1e3 * cost.collate_s) / cores if inline else 0.0
    busy_ms = rest_ms + core_ms
    rates = [predict(cost, workers, cores, workers_now) for workers in range(1, MAX_WORKERS_PER_CORE * cores + 1)]
    samples_per_s = samples_1000 / busy_ms if busy_ms > 0 else math.inf
    best = max(rates, key=lambda rate: rate.value)
    enough = next((rate for rate in rates if rate.value >= min(samples_per_s, best.value)), best)
    low_ms = max(rest_ms / (1 + HOST_DRIFT), samples_1000 / enough.high)
    return FedStep(enough.workers, max(busy_ms, samples_1000 / enough.value), low_ms)


def workers_action(inline: bool, enough: int | None, workers: int) -> Action:
    """Return the advice to load in worker processes, or in more of them."""
    if inline:
        several = enough is not None and enough > 1
        return Action(
            "Load", "batches in $amount worker processes" if several else "batches in a worker process", amount=enough
        )
    return Action("Use", f"$amount loader workers instead of {workers}", amount=enough) if enough and workers else MORE_WORKERS


def num_workers_change(workers_now: int, advised: int | None) -> CodeChange:
    """Return the code change of the loader's number of workers; without advice, at least to 4."""
    present_argument = f", num_workers={workers_now}" if workers_now else ""
    return CodeChange(
        "PyTorch",
        f"loader = DataLoader(dataset, …{present_argument})",
        f"loader = DataLoader(dataset, …, num_workers={advised or max(2 * workers_now, 4)}, persistent_workers=True)",
    )

"""Loading times: samples per second of loader and loop, and the parts of a step without GPU work.

The recorder's helper measured them.
"""

from __future__ import annotations

from sawtooth.analysis.knowledge.owners import HOST_LOADING, HOST_OPERATORS, HOST_REST, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.loader_rate import rate_of, sample_cost
from sawtooth.analysis.run.model import RunResult
from sawtooth.ingest.loop.loading import LoaderRate, SampleCost
from sawtooth.ingest.loop.step_parts import StepParts
from sawtooth.ingest.manifest import UserFacts

# A first batch takes at most this many times as long as a later one, because all workers load at the same time.
FIRST_BATCH_RATIO = 2.0
MIN_STARTS = 0.02  # Share of the step. Shorter waits for first batches are not reported.


def batch_ms(cost: SampleCost) -> float:
    """Return the time in which one process loads a batch, ms."""
    return 1e3 * (cost.batch * cost.wall_s + cost.collate_s + cost.pin_s)


def loader_rates(facts: UserFacts, step_ms: float | None) -> tuple[LoaderRate, float] | None:
    """Return the samples per second that the loader can deliver and that steps of ``step_ms`` need.

    None where the loader was not timed.
    """
    cost, rate = sample_cost(facts), rate_of(facts)
    return (rate, 1e3 * cost.batch / step_ms) if cost is not None and rate is not None and step_ms else None


def slow_worker_starts_ms(parts: StepParts, facts: UserFacts) -> float:
    """Return the wait for the first batches of epochs, ms per step.

    It is 0 if persistent workers would need as long to load these batches.
    """
    cost = sample_cost(facts)
    if (
        parts.persistent_workers
        and cost is not None
        and facts.loader_workers
        and parts.first_ms * parts.epoch_steps <= FIRST_BATCH_RATIO * batch_ms(cost)
    ):
        return 0.0
    return parts.first_ms


def worker_starts_ms(result: RunResult) -> float:
    """Return the wait for slow starts of epochs in a run without GPU work, ms per step.

    It is 0 if it is not relevant.
    """
    host, step_ms = result.host, result.metrics["best_step_time_ms"].value
    if host is None or host.parts is None or not step_ms:
        return 0.0
    ms = min(slow_worker_starts_ms(host.parts, result.manifest.facts), host.loading_ms)
    return ms if ms >= MIN_STARTS * step_ms else 0.0


def host_parts(result: RunResult) -> dict[str, float]:
    """Return the host's time in a step without GPU work, ms by part; the parts sum to the run's step.

    The parts come from the trace, or from the loader's own times if the loop loads each batch itself. Empty where neither is
    known.
    """
    step_ms, work, facts = result.metrics["best_step_time_ms"].value, result.host, result.manifest.facts
    if result.lead is not None or not step_ms:
        return {}
    if work is not None:
        parts = {HOST_LOADING: work.loading_ms, HOST_OPERATORS: work.operators_ms, HOST_REST: work.rest_ms}
        parts[OUTSIDE_PROFILE] = work.outside_ms
        return {part: ms * work.of_the_step for part, ms in parts.items() if ms > 0} if work.steps else {}
    cost = sample_cost(facts)
    if cost is None or facts.loader_workers != 0:
        return {}
    loading_ms = min(batch_ms(cost), step_ms)
    return {HOST_LOADING: loading_ms, HOST_REST: step_ms - loading_ms}

"""Loading times: samples per second of loader and loop, and the parts of a step without GPU work.

The recorder's helper measured them.
"""

from __future__ import annotations

from sawtooth.analysis.knowledge.owners import HOST_LOADING, HOST_OPERATORS, HOST_REST
from sawtooth.analysis.metrics.loader_rate import rate_of, sample_cost
from sawtooth.analysis.run.model import RunResult
from sawtooth.ingest.loop.loading import LoaderRate, SampleCost
from sawtooth.ingest.manifest import UserFacts


def batch_ms(cost: SampleCost) -> float:
    """Return the time in which one process loads a batch, ms."""
    return 1e3 * (cost.batch * cost.wall_s + cost.collate_s + cost.pin_s)


def loader_rates(facts: UserFacts, step_ms: float | None) -> tuple[LoaderRate, float] | None:
    """Return the samples per second that the loader can deliver and that steps of ``step_ms`` need.

    None where the loader was not timed.
    """
    cost, rate = sample_cost(facts), rate_of(facts)
    return (rate, 1e3 * cost.batch / step_ms) if cost is not None and rate is not None and step_ms else None


def host_parts(result: RunResult) -> dict[str, float]:
    """Return the host's time in a step without GPU work, ms by part; the parts sum to the run's own step.

    The parts come from the trace, or from the loader's own times if the loop loads each batch itself. Empty where neither is
    known.
    """
    step_ms, work, facts = result.metrics["best_step_time_ms"].value, result.host, result.manifest.facts
    if result.lead is not None or not step_ms:
        return {}
    if work is not None:
        parts = {HOST_LOADING: work.loading_ms, HOST_OPERATORS: work.operators_ms, HOST_REST: work.rest_ms}
        return {part: ms * work.of_the_step for part, ms in parts.items() if ms > 0} if work.steps else {}
    cost = sample_cost(facts)
    if cost is None or facts.loader_workers != 0:
        return {}
    loading_ms = min(batch_ms(cost), step_ms)
    return {HOST_LOADING: loading_ms, HOST_REST: step_ms - loading_ms}

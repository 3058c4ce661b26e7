"""What the loop and its loader's processes take, by the helper's own timing: samples a second, and the parts of a step without GPU work."""

from __future__ import annotations

from sawtooth.analysis.knowledge.owners import HOST_LOADING, HOST_OPERATORS, HOST_REST
from sawtooth.analysis.metrics.feeding import rate_of, sample_cost
from sawtooth.analysis.run.model import RunResult
from sawtooth.ingest.loop.loading import Rate, SampleCost
from sawtooth.ingest.manifest import UserFacts


def batch_ms(cost: SampleCost) -> float:
    """Return what one process takes to load a batch, ms."""
    return 1e3 * (cost.batch * cost.wall_s + cost.collate_s + cost.pin_s)


def pace(facts: UserFacts, step_ms: float | None) -> tuple[Rate, float] | None:
    """Return the samples a second that the loader gives, as it was timed, and those that steps of ``step_ms`` take; None where it was not timed."""
    cost, rate = sample_cost(facts), rate_of(facts)
    return (rate, 1e3 * cost.batch / step_ms) if cost is not None and rate is not None and step_ms else None


def host_parts(result: RunResult) -> dict[str, float]:
    """Return what the host's time of a step goes to in a run without GPU work, ms by part, which sum to the run's own step.

    By the trace, or by the loader's own times where the loop loads each batch itself; empty where neither tells.
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

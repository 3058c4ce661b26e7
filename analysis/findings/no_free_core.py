"""Whether samples wait for a core of the host, and not for a disk, a network or a lock."""

from __future__ import annotations

from sawtooth.analysis.metrics.feeding import sample_cost
from sawtooth.analysis.run.model import Action
from sawtooth.analysis.telemetry.host import HostLoad
from sawtooth.ingest.manifest import UserFacts

ASK_FOR_CORES = Action("Ask", "for more cores", ", or stop what else computes on these.")


def without_a_core(facts: UserFacts, host: HostLoad | None) -> tuple[str, Action] | None:
    """Return how a title ends that names the host's cores, and what to do, where a sample mostly waits and no core is free; None elsewhere."""
    cost = sample_cost(facts)
    clause = host.without_a_free_core() if host is not None and cost is not None and cost.limit == "waiting" else None
    return (f": {clause}", ASK_FOR_CORES) if clause else None

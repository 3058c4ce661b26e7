"""One rank is late, and the others wait for it.

What it checks
    Collectives met across the ranks: one ends when the last rank has come, so what a rank spends beyond the shortest duration is waiting.
Why it costs time
    Ranks step together. Whatever makes one late (its data, its host, its clocks) is paid by all.
What to do
    Look at what the late rank does that the others do not: its own findings, its loader, its clocks.
When it is wrong
    Where ranks have different work by design (pipeline stages), waiting is part of the schedule.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings import Rule, RuleInput, in_words
from analysis.run_result import CodeChange, Finding

LOSES_TO = {
    "data_wait": "its data loader",
    "host_sync": "synchronization with its host",
    "blocking_copy": "copies that block its host",
    "launch_bound": "kernel launches",
    "python_host": "Python on its host",
    "launch_latency": "launch latency",
}

CHANGES = (
    CodeChange(
        "PyTorch",
        "batches of very different lengths on each rank",
        "sort or bucket by length, so that every rank gets the same work",
    ),
    CodeChange("PyTorch", "if rank == 1: extra_work()", "do it on every rank, or outside the loop"),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when the others wait for one rank, as the collectives they share tell (``analysis.rank_waits``)."""
    met = given.run.communication
    found = met.straggler if met else None
    if met is None or found is None or given.step_ms is None:
        return
    late = f"Rank {found.rank}" if found.rank is not None else f"Device {given.run.ranks[found.position].device}"
    does = ""
    if found.cause is not None and found.excess_ms is not None:
        does = f"; it loses {in_words(found.excess_ms)} more than they do to {LOSES_TO.get(found.cause, found.cause)}"
    # What the profiler adds to the late rank's host the others wait for as well: it is no lateness of the run's.
    distortion = max((given.rank.metrics["step_time_ms"].value or 0.0) - given.step_ms, 0.0)
    unsure = 2 * distortion > found.late_ms
    rows = given.gap_evidence("unattributed", "comm_wait", "comm_transfer")
    yield given.finding(
        RULE.slug,
        f"{late} comes late: the others wait {in_words(found.late_ms)} of each step for it{does}",
        f"Look at what {late.lower()} does that the others do not, its data first; open its trace on the timeline.",
        ceiling_ms=max(found.late_ms - distortion, 0.0) or None,
        predicted_ms=None if unsure else given.step_ms - (found.late_ms - distortion),
        severity="info" if unsure else None,
        confidence="low" if unsure else "high",
        note=f"Not predicted: the profiler alone slows the host by {in_words(distortion)} a step, and not every rank alike."
        if unsure
        else "The step without the others' waiting for it.",
        risk="Moving work between ranks changes which samples each of them sees.",
        changes=CHANGES,
        evidence=[{"rank": w.rank, "wait_ms_per_step": w.wait_ms, "comes_last_to": w.last_share} for w in met.ranks]
        + [r for r in rows if r["end_ns"] - r["start_ns"] > 0],
    )


RULE = Rule("straggling-rank", ("steps", "ranks"), check)

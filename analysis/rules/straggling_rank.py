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
from analysis.rank_waits import STRAGGLER_SHARE
from analysis.run_result import CodeChange, Communication, Finding, Straggler

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
    gain = _gain_ms(met, found, given)
    certain = gain is not None and gain >= STRAGGLER_SHARE * given.step_ms
    rows = given.gap_evidence("unattributed", "comm_wait", "comm_transfer")
    yield given.finding(
        RULE.slug,
        f"{late} comes late: the others wait {in_words(found.late_ms)} of each step for it{does}",
        f"Look at what {late.lower()} does that the others do not, its data first; open its trace on the timeline.",
        ceiling_ms=gain if certain else None,
        predicted_ms=given.step_ms - gain if certain and gain is not None else None,
        severity=None if certain else "info",
        confidence="high" if certain else "low",
        note="The step of the slowest other rank: each rank replayed without the profiler and without waiting for others."
        if certain
        else "Not predicted: without the profiler, which slows one host more than another, the ranks take about equally long.",
        risk="Moving work between ranks changes which samples each of them sees.",
        changes=CHANGES,
        evidence=[{"rank": w.rank, "wait_ms_per_step": w.wait_ms, "comes_last_to": w.last_share} for w in met.ranks]
        + [r for r in rows if r["end_ns"] - r["start_ns"] > 0],
    )


def _gain_ms(met: Communication, found: Straggler, given: RuleInput) -> float | None:
    """Return what a step gains where the late rank is as fast as the slowest of the others, None where they cannot be replayed."""
    alone = {wait.position: wait.alone_ms for wait in met.ranks}
    late = alone.pop(found.position)
    others = [ms for ms in alone.values() if ms is not None]
    if late is None or len(others) < len(alone) or not late or given.step_ms is None:
        return None
    return given.step_ms * max(late - max(others), 0.0) / late


RULE = Rule("straggling-rank", ("steps", "ranks"), check)

"""One rank is late, and the others wait for it.

What it checks
    Exposed communication of every rank: a collective ends when the last rank has come, so the rank that comes last waits least.
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

from analysis.findings import CodeChange, Finding, Rule, RuleInput, in_words

WORTH_NAMING = 0.05  # of the step: ranks never end at the same microsecond

CHANGES = (
    CodeChange(
        "PyTorch",
        "batches of very different lengths on each rank",
        "sort or bucket by length, so that every rank gets the same work",
    ),
    CodeChange("PyTorch", "if rank == 1: extra_work()", "do it on every rank, or outside the loop"),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when a rank waits for another for more than WORTH_NAMING of the step."""
    waits = {
        r.rank: sum(row.ms_per_step or 0.0 for row in r.ledger if row.owner == "exposed_comm")
        for r in given.run.ranks
        if len(r.counted)
    }
    if len(waits) < 2:
        return
    late, patient = min(waits, key=lambda k: waits[k]), max(waits, key=lambda k: waits[k])
    lost = waits[patient] - waits[late]
    if given.share(lost) < WORTH_NAMING or given.step_ms is None:
        return
    causes = sorted(
        (
            (row.ms_per_step or 0.0, row.cause)
            for r in given.run.ranks
            if r.rank == late
            for row in r.ledger
            if row.owner == "idle"
        ),
        reverse=True,
    )
    does = (
        f"; rank {late} itself loses most to {causes[0][1]} ({in_words(causes[0][0])})"
        if causes and given.share(causes[0][0]) >= WORTH_NAMING
        else ""
    )
    rows = given.gap_evidence("unattributed", "comm_wait", "comm_transfer")
    yield given.finding(
        RULE.slug,
        f"Rank {late} comes late: rank {patient} waits {in_words(lost)} of each step for it{does}",
        f"Look at what rank {late} does that the others do not, its data first; open its trace on the timeline.",
        ceiling_ms=lost,
        predicted_ms=given.step_ms - lost,
        confidence="high",
        note="The step without the waiting: exposed communication as on the rank that comes last.",
        risk="Moving work between ranks changes which samples each of them sees.",
        changes=CHANGES,
        evidence=[{"rank": k, "exposed_communication_ms_per_step": v} for k, v in waits.items()]
        + [r for r in rows if r["end_ns"] - r["start_ns"] > 0],
    )


RULE = Rule("straggling-rank", ("steps", "ranks"), check)

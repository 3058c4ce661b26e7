"""Some steps take far longer than the others.

What it checks
    The counted steps of the profile: steps at least half as long again as the median.
Why it costs time
    Whatever happens every N steps (logging, checkpoints, evaluation, garbage collection, a slow batch) is paid on average.
What to do
    See what the host does in the slow steps, and do it less often or beside the loop.
When it is wrong
    With few profiled steps one slow step says little about how often it comes.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries.loading import of_first_read
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

SLOWER = 1.5  # times the median step: clocks and batches move steps less
LEAST_STEPS = 4  # of three, any one can be the median
WORTH_NAMING = 0.03  # of the mean step
MOSTLY = 0.5  # of what the slow steps cost

CHANGES = (
    CodeChange(
        "PyTorch",
        "if step % 10 == 0:\n    log(loss.item()); save()",
        "if step % 1000 == 0:\n    log(loss.item()); save_in_background()",
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when slow steps cost more than WORTH_NAMING of the mean step."""
    times = sorted(context.rank.device_step_ms)
    if len(times) < LEAST_STEPS:
        return
    median = times[len(times) // 2]
    slow = [ms for ms in times if ms >= SLOWER * median]
    lost = sum(ms - median for ms in slow) / len(times)
    if not slow or len(slow) * 2 >= len(times) or context.share(lost) < WORTH_NAMING:
        return
    waits = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.cause == "data_wait")
    if waits >= MOSTLY * lost and of_first_read(context):
        return  # later epochs have in memory what these steps wait for
    rows = context.rank.counted.assign(ms=context.rank.device_step_ms).nlargest(5, "ms")
    yield context.finding(
        RULE.slug,
        f"{len(slow)} of {len(times)} steps take up to {in_words(times[-1])}, the others {in_words(median)}: {in_words(lost)} a step on average",
        "Open the slow steps on the timeline and see what the host does there; do it less often, or beside the loop.",
        ceiling_ms=lost,
        severity="warning" if context.share(lost) >= 0.1 else "info",
        confidence="low",
        note="Not predicted: the cause of each slow step has a rule of its own.",
        risk="Depends on the cause.",
        changes=CHANGES,
        evidence=[
            {"name": str(r.name), "start_ns": int(r.start_ns), "end_ns": int(r.end_ns), "ms": float(r.ms)}
            for r in rows.itertuples(index=False)
        ],
    )


RULE = Rule("periodic-stalls", ("steps",), check, Explains())

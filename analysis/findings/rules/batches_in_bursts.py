"""Batches come in bursts.

What it checks
    Waits for a loader with workers: some steps wait long, most do not.
Why it costs time
    Workers that began together end together: a burst of batches, then a pause. A queue deep enough would even it out.
What to do
    A deeper queue (prefetch_factor), samples of more even cost, or more workers where the mean is too slow as well.
When it is wrong
    When workers are too slow on average, a deeper queue only delays the wait.
References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.loading import of_first_read, worker_starts
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

LONG_SHARE = 0.5  # of a step's time: a wait that long is a pause

CHANGES = (
    CodeChange("PyTorch", "DataLoader(dataset, …, num_workers=8)", "DataLoader(dataset, …, num_workers=8, prefetch_factor=8)"),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=8)",
        "TrainingArguments(dataloader_num_workers=8, dataloader_prefetch_factor=8)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield information when some steps wait for the loader and at least as many do not."""
    workers = context.recording.named(LOADS_IN_WORKERS)
    lost = context.lost_ms("data_wait")
    if not workers or context.is_trifle(lost) or worker_starts(context).count or of_first_read(context):
        return  # workers that start anew are late by themselves, and a first reading of the disk is over
    rows = context.recording.rows(
        "SELECT t.step, t.end_ns - t.start_ns, coalesce(sum(g.end_ns - g.start_ns), 0) FROM steps t LEFT JOIN gaps g ON g.step = t.step AND g.device = t.device "
        "AND g.cause = 'data_wait' WHERE t.device = ? AND t.counted GROUP BY 1, 2 ORDER BY 1",
        [context.rank.device],
    )
    waits = [r for r in rows if r[2] >= LONG_SHARE * r[1]]
    if not waits or len(waits) * 2 > len(rows):
        return
    yield Evidence(
        Advice(
            f"Batches come in bursts: {len(waits)} of {len(rows)} steps wait up to {in_words(max(r[2] for r in waits) / 1e6)} for the loader, the others hardly",
            Action("Deepen", "the loader's queue with prefetch_factor", ", so that a burst carries over the pause."),
            note="Not predicted: whether the workers keep up on average is not in a few steps.",
            risk="Each batch more in the queue takes host memory.",
            changes=CHANGES,
        ),
        lost_ms=lost,
        cost_ms=lost,
        confidence="low",
        severity="info",
        rows=context.gap_evidence("data_wait"),
    )


RULE = Rule(
    "batches-in-bursts",
    measure,
    reads=OF_TRACE | {"loader_timing"},
    explains=Explains(("data_wait",)),
    requires=("steps",),
    bar=FEW_LINES,
)

"""Batches come in bursts.

What it checks
    Whether some steps wait long for the loader's workers, while most steps do not wait.
Why it costs time
    Workers that start together finish together: a burst of batches, then a pause. A deep enough queue evens this out.
What to do
    Use a deeper queue (prefetch_factor), or make the cost of samples more even. If the loader is also too slow on average, use
    more workers.
When it is wrong
    The workers are too slow on average. A deeper queue then only delays the wait.
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

LONG_SHARE = 0.5  # Share of a step's time from which a wait counts as a pause.

CHANGES = (
    CodeChange("PyTorch", "DataLoader(dataset, …, num_workers=8)", "DataLoader(dataset, …, num_workers=8, prefetch_factor=8)"),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=8)",
        "TrainingArguments(dataloader_num_workers=8, dataloader_prefetch_factor=8)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if some steps wait for the loader and at least as many do not."""
    workers = context.recording.named(LOADS_IN_WORKERS)
    lost = context.lost_ms("data_wait")
    if not workers or context.is_trifle(lost) or worker_starts(context).count or of_first_read(context):
        return  # Other rules cover workers that start again, and the first read from disk.
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
            f"Batches come in bursts: {len(waits)} of {len(rows)} profiled steps wait up to {in_words(max(r[2] for r in waits) / 1e6)} for the loader, the others hardly wait",
            Action(
                "Deepen",
                "the loader's queue with prefetch_factor",
                ", so that the batches of a burst last until the next burst.",
            ),
            note="Not predicted: a few steps do not show whether the workers keep up on average.",
            risk="Each additional batch in the queue takes host memory.",
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
    threshold=FEW_LINES,
)

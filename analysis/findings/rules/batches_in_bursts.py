"""Batches come in bursts.

What it checks
    Whether some steps wait long for the loader's workers, while most steps do not wait.
Why it costs time
    Workers that start together finish together. So batches come in a burst, and a pause follows. With a deep enough queue, the
    loop does not wait in this pause.
What to do
    Use a deeper queue (prefetch_factor), or make the cost of samples more even.
When it is wrong
    The workers are too slow on average. A deeper queue then only delays the wait: use more workers.
References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.derive.host_only import LOADS_IN_WORKERS
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.loading import profiles_first_read, worker_starts
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_PAUSE_SHARE = 0.5  # Share of the step. A shorter wait is no pause.

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
    lost_ms = context.lost_ms("data_wait")
    if not context.recording.named(LOADS_IN_WORKERS) or context.is_negligible(lost_ms):
        return
    if worker_starts(context).count_per_step or profiles_first_read(context):
        return  # The rules workers-start-again and slow-first-read report these waits.
    rows = context.recording.rows(
        "SELECT t.step, t.end_ns - t.start_ns, coalesce(sum(g.end_ns - g.start_ns), 0) FROM steps t LEFT JOIN gaps g ON g.step = t.step AND g.device = t.device "
        "AND g.cause = 'data_wait' WHERE t.device = ? AND t.counted GROUP BY 1, 2 ORDER BY 1",
        [context.rank.device],
    )
    pauses_ns = [wait_ns for _, step_ns, wait_ns in rows if wait_ns >= MIN_PAUSE_SHARE * step_ns]
    if not pauses_ns or len(pauses_ns) * 2 > len(rows):
        return
    yield Evidence(
        Advice(
            f"Batches come in bursts: {len(pauses_ns)} of {len(rows)} profiled steps waited up to {in_words(max(pauses_ns) / 1e6)} for the loader, the others hardly waited",
            Action(
                "Deepen",
                "the loader's queue with prefetch_factor",
                ", so that the batches of a burst last until the next burst.",
            ),
            note="Not predicted: a few steps do not show whether the workers keep up on average.",
            risk="Each additional batch in the queue takes host memory.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        confidence="low",
        severity="info",
        rows=context.gap_evidence("data_wait"),
    )


RULE = Rule(
    "batches-in-bursts",
    measure,
    reads=TRACE_SOURCES | {"loader_timing"},
    explains=Explains(("data_wait",)),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)

"""The data loader starves the GPU.

What it checks
    Idle time of the steady window in which the launching thread is inside the DataLoader's ``next`` (cause ``data_wait``). Whether the
    loader works in the training process (``_SingleProcessDataLoaderIter``) or in workers tells which change comes first.
Why it costs time
    The GPU has finished the step and the next batch is not there. With ``num_workers=0`` every sample is read, decoded and augmented
    between two steps; with too few workers the step waits for the slowest of them.
What to do
    Load in worker processes, enough that together they are faster than the step; keep them alive between epochs; pin memory so that the
    copy to the GPU overlaps.
When it is wrong
    When the storage or the network is the limit, more workers only queue there: look at the read throughput. When the profiled steps
    emptied a full prefetch queue, the wait is missing from the trace; telemetry then shows it.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.rule import Rule, RuleInput, in_words
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.02  # a loader that costs less than 2 % of the step is within the noise of most step times
SINGLE_PROCESS = "_SingleProcessDataLoaderIter"

CHANGES = (
    CodeChange(
        "PyTorch",
        "loader = DataLoader(dataset, batch_size=64)",
        "loader = DataLoader(dataset, batch_size=64, num_workers=8, pin_memory=True,\n                    persistent_workers=True, prefetch_factor=4)",
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, batch_size=64)",
        "DataLoader(dataset, batch_size=64, num_workers=8, persistent_workers=True)",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(...)",
        "TrainingArguments(..., dataloader_num_workers=8, dataloader_persistent_workers=True, dataloader_prefetch_factor=4)",
    ),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when the loader costs more than WORTH_NAMING of the step."""
    lost = given.lost_ms("data_wait")
    if given.share(lost) < WORTH_NAMING:
        return
    single = bool(given.recording.rows("SELECT 1 FROM names WHERE contains(name, ?) LIMIT 1", [SINGLE_PROCESS]))
    where = "in the training process itself (num_workers=0)" if single else "in its worker processes"
    yield given.finding(
        RULE.slug,
        f"The GPU waits {in_words(lost)} of each step for the data loader, which works {where}",
        "Load data in worker processes: start with as many as there are CPU cores for each GPU, pinned memory and persistent workers."
        if single
        else "Give the loader more workers and a deeper prefetch, or make a sample cheaper: decode smaller images, cache what is decoded.",
        ceiling_ms=lost,
        edits=[WithoutHostCause("data_wait")],
        confidence="high" if single else "medium",
        note="The loader's wait removed from the replay: what is left when it always keeps up.",
        risk="Each worker holds its own copy of the dataset object; a dataset kept in Python lists multiplies the host's memory.",
        changes=CHANGES,
        evidence=given.gap_evidence("data_wait"),
    )


RULE = Rule("data-loader-starves-gpu", ("steps",), check, Explains(("data_wait",)))

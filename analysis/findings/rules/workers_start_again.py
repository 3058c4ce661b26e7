"""The loader starts its workers inside the run.

What it checks
    Whether the loader creates its iterator in the counted steps (frames of ``_get_iterator``) and starts processes. This needs
    a trace with Python stacks. The waits for the loader in the same steps also count.
Why it costs time
    Each epoch starts every worker process again, which imports the program and opens the dataset again.
What to do
    Set ``persistent_workers=True``, which keeps the workers running.
When it is wrong
    The run has one long epoch, so this happens once. A loader without workers (``num_workers=0``) also creates a new
    iterator, but this costs nothing.
References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.loading import worker_starts
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch", "DataLoader(dataset, …, num_workers=8)", "DataLoader(dataset, …, num_workers=8, persistent_workers=True)"
    ),
    CodeChange(
        "Lightning", "DataLoader(dataset, …, num_workers=8)", "DataLoader(dataset, …, num_workers=8, persistent_workers=True)"
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=8)",
        "TrainingArguments(dataloader_num_workers=8, dataloader_persistent_workers=True)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if starting workers, with the wait for their first batch, takes a relevant share."""
    starts = worker_starts(context)
    steps = sorted({int(step) for step in starts.frame["step"]})
    waited = context.recording.rows(
        "SELECT coalesce(sum(end_ns - start_ns), 0) FROM gaps WHERE device = ? AND cause = 'data_wait' AND list_contains(?, step)",
        [context.rank.device, steps],
    )
    starts_ms = context.of_run(starts.ms)
    cost = starts_ms + context.of_run(float(waited[0][0]) / 1e6 / max(starts.steps, 1)) if steps else 0.0
    if context.is_trifle(cost):
        return
    yield Evidence(
        Advice(
            f"The loader starts its workers anew in {len(steps)} of {starts.steps} profiled steps: {in_words(starts_ms)} a step on average, {in_words(cost)} with the wait for their first batch",
            Action("Keep", "the loader's workers", ": persistent_workers=True."),
            note="Not predicted: how often an epoch ends outside the profile is not known, and kept workers begin an epoch with an empty queue too.",
            risk="Workers keep their memory between epochs; a data set changed in the main process is not seen by them.",
            changes=CHANGES,
        ),
        lost_ms=cost,
        cost_ms=cost,
        rows=starts.rows(),
        places=starts.places(),
    )


RULE = Rule(
    "workers-start-again",
    measure,
    reads=OF_TRACE | {"python_stacks"},
    explains=Explains(("data_wait",), called="loader workers that restart"),
    requires=("steps", "stacks"),
    threshold=FEW_LINES,
)

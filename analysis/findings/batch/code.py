"""Code examples for a larger batch, with the run's own batch size if it is known."""

from __future__ import annotations

from sawtooth.analysis.run.model import CodeChange, RunResult

WRITTEN = (
    ("PyTorch", "DataLoader(dataset, batch_size={})"),
    ("Lightning", "DataLoader(dataset, batch_size={})   # in train_dataloader"),
    ("Transformers", "TrainingArguments(per_device_train_batch_size={})"),
)


def larger_batch_code(run: RunResult, times: int) -> tuple[CodeChange, ...]:
    """Return the code for a batch ``times`` as large in each framework."""
    size = batch_size(run)
    before, after = (str(size), str(times * size)) if size else ("batch_size", "larger_batch_size")
    return tuple(CodeChange(name, line.format(before), line.format(after)) for name, line in WRITTEN)


def batch_size(run: RunResult) -> int | None:
    """Return the samples per batch, from the loader or from the user; None if not known.

    A number from the user is not used for a run with several ranks, because it may count all ranks.
    """
    facts = run.manifest.facts
    size = facts.loader_batch or (facts.samples_per_step if len(run.ranks) == 1 else None)
    return round(size) if size and size >= 1 else None

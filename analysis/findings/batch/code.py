"""Code examples for a larger batch, with the run's own batch size if it is known."""

from __future__ import annotations

from sawtooth.analysis.run.model import CodeChange, RunResult

CODE_LINES = (
    ("PyTorch", "DataLoader(dataset, batch_size={})"),
    ("Lightning", "DataLoader(dataset, batch_size={})   # in train_dataloader"),
    ("Transformers", "TrainingArguments(per_device_train_batch_size={})"),
)


def larger_batch_code(run: RunResult, times: int) -> tuple[CodeChange, ...]:
    """Return the code for a batch ``times`` as large in each of the CODE_LINES."""
    size = batch_size(run)
    before, after = (str(size), str(times * size)) if size else ("batch_size", "larger_batch_size")
    return tuple(CodeChange(name, line.format(before), line.format(after)) for name, line in CODE_LINES)


def batch_size(run: RunResult) -> int | None:
    """Return the samples per batch, None if not known.

    The number comes from the loader, or from the user for a run with one rank. With several ranks, the user may count all ranks.
    """
    facts = run.manifest.facts
    size = facts.loader_batch or (facts.samples_per_step if len(run.ranks) == 1 else None)
    return round(size) if size and size >= 1 else None

"""Add sentences to a finding's advice, and insert the run's own classes into suggested code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.knowledge.frames import FRAME, MODULE
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.store.library import Recording

# Texts for the code slots if the run's own classes are not known.
MODEL = (("model", "Net()"),)
OPTIMIZER = (("optimizer", "AdamW"), ("options", "lr=3e-4"), ("fused", "fused=True"))
ENTRY_POINTS = (MODULE, "main")  # These names do not describe the work of a function.
WRAPPERS = ("Sequential", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")
# PyTorch's optimizers that accept fused=True for parameters on a GPU, in all versions since 2.3.
FUSED_ON_GPU = ("Adam", "AdamW", "SGD")
# PyTorch's optimizers that accept foreach=True. Others (Muon, LBFGS, SparseAdam, and classes of other libraries) raise TypeError.
WITH_FOREACH = (
    "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
)  # fmt: skip
_OPTIMIZERS = "SELECT DISTINCT name FROM names WHERE starts_with(name, 'Optimizer.step#') ORDER BY 1"
# The class of the model: its call has the longest total time of all modules.
_MODEL_CLASS = """
SELECT name FROM python_calls JOIN names USING (name_id) WHERE starts_with(name, 'nn.Module: ')
GROUP BY name ORDER BY sum(dur_ns) DESC, name LIMIT 1"""
_INSTANCE_NUMBER = re.compile(r"_\d+$")


def optimizers(recording: Recording) -> list[str]:
    """Return the classes of the optimizers that made steps, such as Adagrad; empty if none is recorded."""
    return recording.once(_optimizer_classes)


def _optimizer_classes(recording: Recording) -> list[str]:
    names = [str(name).removeprefix("Optimizer.step#").removesuffix(".step") for (name,) in recording.rows(_OPTIMIZERS)]
    return [name for name in names if name.isidentifier()]


def step_annotations(optimizer_classes: Sequence[str]) -> str:
    """Return the regular expression for the step annotations of these optimizer classes."""
    return rf"^Optimizer\.step#(?:{'|'.join(optimizer_classes)})\.step$"


def own_code_names(recording: Recording) -> dict[str, str]:
    """Return the text for the code slot ``$model``.

    Empty if the model's class is not recorded, or if it is only one of PyTorch's containers.
    """
    rows = recording.rows(_MODEL_CLASS)
    name = _INSTANCE_NUMBER.sub("", str(rows[0][0]).removeprefix("nn.Module: ")) if rows else ""
    return {"model": f"{name}(…)"} if name.isidentifier() and name not in WRAPPERS else {}


def with_optimizer(changes: Sequence[CodeChange], name: str | None) -> tuple[CodeChange, ...]:
    """Insert the run's own optimizer into the code slots of ``changes``.

    An optimizer without a fused form gets ``foreach``, which updates all tensors at once. Code for other frameworks names AdamW.
    It is left out if the run has another optimizer.
    """
    if name is None:
        return tuple(change.filled() for change in changes)
    names = {"optimizer": name, "options": "…", "fused": "fused=True" if name in FUSED_ON_GPU else "foreach=True"}
    own_changes = [change.filled(**names) for change in changes if change.framework == "PyTorch"]
    other_changes = [change.filled() for change in changes if change.framework != "PyTorch"]
    return (*own_changes, *(other_changes if name == "AdamW" else []))


def with_more_advice(action: Action, sentences: str) -> Action:
    """Return ``action`` with further ``sentences`` on how to do it."""
    return replace(action, how=f"{action.how} {sentences}".rstrip())


def function_of(frame: str) -> str | None:
    """Return the function of a frame; None for a script's main function and the module level."""
    match = FRAME.match(frame)
    name = match["function"] if match is not None else None
    return name if name is not None and name not in ENTRY_POINTS and name.isidentifier() else None

"""Examples of code with what the trace knows of the run: the classes of its model and its optimizers, the functions that it calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.knowledge.frames import FRAME, MODULE
from sawtooth.analysis.run.model import CodeChange
from sawtooth.analysis.store.library import Recording

ANY_MODEL = "Net()"  # what examples call the model that they make
STARTS = (MODULE, "main")  # functions that say nothing of what is done in them
WRAPPERS = ("Sequential", "DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")
FUSED_ON_GPU = (
    "Adam",
    "AdamW",
    "SGD",
)  # PyTorch's optimizers that take fused=True for parameters on a GPU, in every version since 2.3
_OPTIMIZERS = "SELECT DISTINCT name FROM names WHERE starts_with(name, 'Optimizer.step#') ORDER BY 1"
# A model's own call lasts longest of all modules'.
_MODEL = """
SELECT name FROM python_calls JOIN names USING (name_id) WHERE starts_with(name, 'nn.Module: ')
GROUP BY name ORDER BY sum(dur_ns) DESC, name LIMIT 1"""
_NUMBER = re.compile(r"_\d+$")


def optimizers(recording: Recording) -> list[str]:
    """Return the classes of the optimizers that stepped: Adagrad; empty where the trace does not name them."""
    names = [str(name).removeprefix("Optimizer.step#").removesuffix(".step") for (name,) in recording.rows(_OPTIMIZERS)]
    return [name for name in names if name.isidentifier()]


def model(recording: Recording) -> str | None:
    """Return the class of the run's model, None without Python calls or where it is no more than a container of PyTorch's."""
    rows = recording.rows(_MODEL)
    name = _NUMBER.sub("", str(rows[0][0]).removeprefix("nn.Module: ")) if rows else ""
    return name if name.isidentifier() and name not in WRAPPERS else None


def with_model(changes: Sequence[CodeChange], name: str) -> tuple[CodeChange, ...]:
    """Return ``changes`` with the class of the run's model in place of any model's."""
    return tuple(_of_model(change, name) if change.framework == "PyTorch" else change for change in changes)


def _of_model(change: CodeChange, name: str) -> CodeChange:
    if ANY_MODEL not in change.before:
        return change
    before, after = (re.sub(rf"\b{re.escape(ANY_MODEL)}", f"{name}(…)", text) for text in (change.before, change.after))
    return replace(change, before=before, after=after, of_run=True)


def with_optimizer(changes: Sequence[CodeChange], name: str | None) -> tuple[CodeChange, ...]:
    """Return ``changes`` to an optimizer with the run's own in PyTorch's: what it has no fused form of updates all tensors at once (``foreach``)."""
    if name is None:
        return tuple(changes)
    argument = "fused=True" if name in FUSED_ON_GPU else "foreach=True"
    own = [
        replace(
            change,
            before=change.before.replace("AdamW(", f"{name}(").replace("lr=3e-4", "…"),
            after=change.after.replace("AdamW(", f"{name}(").replace("lr=3e-4", "…").replace("fused=True", argument),
            of_run=True,
        )
        for change in changes
        if change.framework == "PyTorch"
    ]
    others = [change for change in changes if change.framework != "PyTorch"]
    return (*own, *(others if name == "AdamW" else []))


def function_of(frame: str) -> str | None:
    """Return the function of a frame where its name says what it does; None of a script's own start."""
    match = FRAME.match(frame)
    return (
        match["function"]
        if match is not None and match["function"] not in STARTS and match["function"].isidentifier()
        else None
    )

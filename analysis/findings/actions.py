"""Complete an action: sentences behind it, and in the slots of its code the classes of the run's model and optimizers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.knowledge.frames import FRAME, MODULE
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.store.library import Recording

# What stands in the slots of code where the run's own names are not known.
MODEL = (("model", "Net()"),)
OPTIMIZER = (("optimizer", "AdamW"), ("options", "lr=3e-4"), ("fused", "fused=True"))
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


def own_names(recording: Recording) -> dict[str, str]:
    """Return what stands in the slot ``$model`` of code; empty where the model's class is not recorded, or is no more than a container of PyTorch's."""
    rows = recording.rows(_MODEL)
    name = _NUMBER.sub("", str(rows[0][0]).removeprefix("nn.Module: ")) if rows else ""
    return {"model": f"{name}(…)"} if name.isidentifier() and name not in WRAPPERS else {}


def with_optimizer(changes: Sequence[CodeChange], name: str | None) -> tuple[CodeChange, ...]:
    """Return ``changes`` to an optimizer with the run's own in their slots: what it has no fused form of updates all tensors at once (``foreach``)."""
    if name is None:
        return tuple(change.filled() for change in changes)
    names = {"optimizer": name, "options": "…", "fused": "fused=True" if name in FUSED_ON_GPU else "foreach=True"}
    own = [change.filled(**names) for change in changes if change.framework == "PyTorch"]
    others = [change.filled() for change in changes if change.framework != "PyTorch"]
    return (*own, *(others if name == "AdamW" else []))


def followed_by(action: Action, sentences: str) -> Action:
    """Return ``action`` with further ``sentences`` about how it is done."""
    return replace(action, how=f"{action.how} {sentences}".rstrip())


def function_of(frame: str) -> str | None:
    """Return the function of a frame where its name says what it does; None of a script's own start."""
    match = FRAME.match(frame)
    return (
        match["function"]
        if match is not None and match["function"] not in STARTS and match["function"].isidentifier()
        else None
    )

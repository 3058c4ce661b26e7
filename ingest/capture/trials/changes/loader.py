"""Changes of ``DataLoader`` arguments: workers, pinned memory, prefetch and batch size.

An iterator of the loader proves a change by its living workers, its prefetch factor, or its pinning of batches.

Worker processes are not added to an iterable dataset, because they would repeat its samples, nor to a dataset with CUDA tensors or open
handles, which processes cannot share. A script that spawns workers needs a main guard. Standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..patching import change_arguments

if TYPE_CHECKING:
    from ..trial_state import TrialState

WORKERS, PINNED, PERSISTENT, PREFETCH, BATCH = (
    "loader-workers",
    "pin-memory",
    "persistent-workers",
    "prefetch-factor",
    "batch-size",
)
ITERABLE = "The dataset is an IterableDataset, of which each worker would deliver all samples."
NO_GUARD = 'Spawned workers need `if __name__ == "__main__":` in the script, which does not have it.'
ON_GPU = "The dataset has CUDA tensors, which worker processes cannot share."
HANDLES = "The dataset has an open {kind}, which worker processes cannot share."
HANDLE_MODULES = (
    "h5py",
    "lmdb",
    "sqlite3",
    "socket",
    "mmap",
    "zarr",
    "tarfile",
    "zipfile",
    "pycurl",
    "psycopg",
    "redis",
    "pymongo",
)
# The search in a dataset stops after this many values, and at this level. The dataset's attributes have level 1.
MAX_VALUES, MAX_DEPTH = 200, 3


def _patch(module: ModuleType, state: TrialState) -> None:
    def change(loader: Any, arguments: dict[str, Any]) -> list[str]:
        why = refusal(module, arguments)
        arguments["_refusal"] = why
        slugs = []
        if (values := state.requested(WORKERS)) is not None and not _refused(state, WORKERS, why):
            slugs += _set(arguments, WORKERS, num_workers=int(values["workers"]))
        keeps_workers = state.requested(PERSISTENT) is not None and arguments["num_workers"]
        if keeps_workers and not _refused(state, PERSISTENT, why):
            slugs += _set(arguments, PERSISTENT, persistent_workers=True)
        if (values := state.requested(PREFETCH)) is not None and arguments["num_workers"]:
            slugs += _set(arguments, PREFETCH, prefetch_factor=int(values["factor"]))
        if state.requested(PINNED) is not None:
            slugs += _set(arguments, PINNED, pin_memory=True)
        values = state.requested(BATCH)
        if values is not None and arguments["batch_sampler"] is None and arguments["batch_size"]:
            slugs += _set(arguments, BATCH, batch_size=round(arguments["batch_size"] * float(values["times"])))
        return slugs

    def after(loader: Any, arguments: dict[str, Any]) -> None:
        length = None
        with contextlib.suppress(Exception):
            length = len(loader.dataset)
        state.notes.note_seen(
            "loader",
            dataset=type(loader.dataset).__qualname__,
            samples=length,
            workers=loader.num_workers,
            batch=loader.batch_size,
            pinned=bool(loader.pin_memory),
            persistent=bool(loader.persistent_workers),
            prefetch=loader.prefetch_factor,
            refusal=arguments.get("_refusal"),
            batched_by_sampler=loader.batch_size is None,
        )
        if loader.batch_size and state.requested(BATCH) is not None:
            state.notes.note_proof(BATCH, f"The loader makes batches of {loader.batch_size} samples.")

    change_arguments(module.DataLoader, state, change, after)
    _patch_iterators(module, state)


def _set(arguments: dict[str, Any], slug: str, **values: Any) -> list[str]:
    if all(arguments.get(name) == value for name, value in values.items()):
        return []
    arguments.update(values)
    return [slug]


def _refused(state: TrialState, slug: str, why: str | None) -> bool:
    if why is not None:
        state.notes.note_refusal(slug, why)
    return why is not None


def _patch_iterators(module: ModuleType, state: TrialState) -> None:
    for owner, prove in ((module._BaseDataLoaderIter, _prove_pinned), (module._MultiProcessingDataLoaderIter, _prove_workers)):
        _patch_begin(owner, prove, state)


def _patch_begin(owner: Any, prove: Callable[[Any, TrialState], None], state: TrialState) -> None:
    original = owner.__init__

    def begin(iterator: Any, /, *arguments: Any, **named: Any) -> None:
        original(iterator, *arguments, **named)
        state.call_safely(prove, iterator, state)

    owner.__init__ = begin


def _prove_pinned(iterator: Any, state: TrialState) -> None:
    if state.requested(PINNED) is not None and iterator._pin_memory:
        state.notes.note_proof(PINNED, "The loader pins the memory of its batches.")


def _prove_workers(iterator: Any, state: TrialState) -> None:
    living = sum(worker.is_alive() for worker in iterator._workers)
    values = state.requested(WORKERS)
    if values is not None and living == int(values["workers"]):
        state.notes.note_proof(WORKERS, f"{living} worker processes of the loader were alive.")
    if state.requested(PERSISTENT) is not None and iterator._persistent_workers:
        state.notes.note_proof(PERSISTENT, "The iterator keeps its workers between epochs.")
    values = state.requested(PREFETCH)
    if values is not None and iterator._prefetch_factor == int(values["factor"]):
        state.notes.note_proof(PREFETCH, f"Each worker prefetched {iterator._prefetch_factor} batches.")


def refusal(module: ModuleType, arguments: dict[str, Any]) -> str | None:
    """Return why a loader with these arguments must not use worker processes; None if it may."""
    dataset = arguments["dataset"]
    if isinstance(dataset, module.IterableDataset):
        return ITERABLE
    context = arguments.get("multiprocessing_context")
    multiprocessing = sys.modules.get("torch.multiprocessing") or sys.modules["multiprocessing"]
    method = context if isinstance(context, str) else context.get_start_method() if context else None
    if (method or multiprocessing.get_start_method()) != "fork" and not _has_main_guard():
        return NO_GUARD
    return _unshared(dataset)


def _has_main_guard() -> bool:
    main = sys.modules.get("__main__")
    if getattr(main, "__spec__", None) is not None:  # With python -m, spawned workers import the module by its name.
        return True
    file = getattr(main, "__file__", None)
    if file is None:
        return False
    for line in ast.parse(Path(file).read_bytes()).body:
        if isinstance(line, ast.If) and any(
            isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(line.test)
        ):
            return True
    return False


def _unshared(dataset: Any) -> str | None:
    """Return why the values in ``dataset`` cannot be used in several processes; None if nothing was found."""
    waiting, checked = [(dataset, 0)], 0
    while waiting and checked < MAX_VALUES:
        value, depth = waiting.pop(0)
        checked += 1
        if getattr(value, "is_cuda", False) is True:
            return ON_GPU
        kind = type(value)
        is_file = hasattr(value, "fileno") and hasattr(value, "closed") and not value.closed
        if is_file or (depth and kind.__module__.partition(".")[0] in HANDLE_MODULES):
            return HANDLES.format(kind=f"{kind.__module__}.{kind.__qualname__}")
        if depth < MAX_DEPTH:
            inner = list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []
            inner += list(value.values())[:10] if isinstance(value, dict) else []
            inner += list(value)[:10] if isinstance(value, (list, tuple)) else []
            waiting += [(part, depth + 1) for part in inner if not isinstance(part, (int, float, str, bytes, type(None)))]
    return None


PATCHES = {"torch.utils.data.dataloader": _patch}

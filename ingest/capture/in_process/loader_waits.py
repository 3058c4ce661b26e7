"""Time for which the training's main thread waits for batches of PyTorch's DataLoader.

Two parts of this time are also counted separately. The first is the wait between epochs: the workers of one epoch end, the workers of the
next epoch start, the dataset prepares itself, and the first batch is loaded. The second is the part of this wait in which the epoch's
iterator starts. Standard library only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from .shared import process_wide, watch

SOURCE = "_sawtooth_source"  # This attribute of an iterator identifies the dataset that it reads.
# A loop may create a dataset per epoch. Beyond this number of datasets, new ones of the same type and size count as one.
MAX_SOURCES = 100
ITERATORS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")


class WaitedDataset(NamedTuple):
    """Identifies a dataset. The id alone is not enough, because a later dataset may have the same id."""

    kind: type
    size: int
    id: int


class Waited(NamedTuple):
    """A wait in ns, and two parts of it.

    ``first_ns`` is the wait before an epoch's first batch and after its last one; ``start_ns`` is the part of it in which the iterator starts.
    """

    ns: int = 0
    first_ns: int = 0
    start_ns: int = 0


NO_WAIT = (0, 0, 0)


class LoaderWaits:
    """The waits of one process so far, by dataset. Only waits of the main thread count."""

    def __init__(self) -> None:
        # The values are ``Waited`` as plain tuples, which are faster to make.
        self._waited: dict[WaitedDataset | None, tuple[int, int, int]] = {}
        self._within = False

    def timed(
        self, function: Callable[[Any], Any], argument: Any, source: WaitedDataset | None, *, first: bool, starts: bool = False
    ) -> Any:
        """Call ``function`` with ``argument``, and count its time for the dataset ``source`` (None: unknown).

        The call that ends an epoch counts as a wait for the next epoch's first batch.
        """
        if self._within or threading.get_ident() != threading.main_thread().ident:
            return function(argument)
        self._within, began_ns = True, time.perf_counter_ns()
        try:
            return function(argument)
        except StopIteration:
            first = True
            raise
        finally:
            took_ns, self._within = time.perf_counter_ns() - began_ns, False
            waited = self._waited.get(source)
            if waited is None:
                if source is not None and len(self._waited) >= MAX_SOURCES:
                    source = source._replace(id=0)
                waited = self._waited.get(source, NO_WAIT)
            self._waited[source] = (
                waited[0] + took_ns,
                waited[1] + took_ns * first,
                waited[2] + took_ns * starts,
            )

    def since_last(self) -> Callable[[int, str], Waited | None]:
        """Return a function that measures the waits of an optimizer's steps.

        The function returns the wait since its last call for the same optimizer, or None if there was no wait.

        At a step with an evaluation, only datasets of earlier training steps count, because the evaluation has its own dataset.
        """
        before: dict[int, dict[WaitedDataset | None, tuple[int, int, int]]] = {}
        began = dict(self._waited)
        trained: set[WaitedDataset | None] = set()  # datasets of steps without an evaluation

        def since(optimizer: int, phase: str) -> Waited | None:
            last = before.get(optimizer, began)
            changed = [
                (source, waited, last.get(source, NO_WAIT))
                for source, waited in self._waited.items()
                if waited is not last.get(source)
            ]
            if not changed:
                return None
            before[optimizer] = self._waited.copy()
            if phase != "eval":
                trained.update([source for source, _, _ in changed])
            ns = first_ns = start_ns = 0
            for source, now, then in changed:
                if source in trained or not trained:
                    ns += now[0] - then[0]
                    first_ns += now[1] - then[1]
                    start_ns += now[2] - then[2]
            return Waited(ns, first_ns, start_ns)

        return since

    def watch(self, loaders: Any) -> Callable[[], None]:
        """Count waits until the returned function is called; ``loaders`` is torch.utils.data.dataloader."""
        undo = [watch(loaders.DataLoader, "__iter__", self, _timed_start)]
        undo += [watch(getattr(loaders, name), "_next_data", self, _timed_batch) for name in ITERATORS]

        def leave() -> None:
            for each in undo:
                each()

        return leave


def _timed_start(start: Callable[[Any], Any], watchers: list[LoaderWaits]) -> Callable[[Any], Any]:
    def timed(loader: Any) -> Any:
        source, persistent = None, False
        with contextlib.suppress(Exception):  # A subclass may override any attribute.
            source = _source(loader)
            persistent = getattr(loader, "_iterator", None) is not None  # The iterator and its workers exist already.
        iterator = _call_timed(watchers, start, loader, source, first=True, starts=not persistent)
        # An iterator of another kind gets no attribute, because the training may pickle it.
        if hasattr(type(iterator), "_next_data"):
            with contextlib.suppress(Exception):
                setattr(iterator, SOURCE, source)
        return iterator

    return timed


def _timed_batch(next_batch: Callable[[Any], Any], watchers: list[LoaderWaits]) -> Callable[[Any], Any]:
    def timed(iterator: Any) -> Any:
        source, first = getattr(iterator, SOURCE, None), getattr(iterator, "_num_yielded", None) == 0
        if len(watchers) == 1:  # This case is the usual one, and a direct call is faster.
            return watchers[0].timed(next_batch, iterator, source, first=first)
        return _call_timed(watchers, next_batch, iterator, source, first=first)

    return timed


def _call_timed(
    watchers: list[LoaderWaits], function: Callable[[Any], Any], argument: Any, source: WaitedDataset | None, **part: bool
) -> Any:
    """Call ``function`` with ``argument``, timed by all watchers."""
    for waits in watchers[1:]:
        function = partial(waits.timed, function, source=source, **part)
    return watchers[0].timed(function, argument, source, **part) if watchers else function(argument)


def _source(loader: Any) -> WaitedDataset:
    dataset: Any = getattr(loader, "dataset", None)
    size = 0
    # The length of an IterableDataset is not asked, because it may take long to compute.
    if getattr(loader, "_dataset_kind", 0) == 0:
        with contextlib.suppress(Exception):  # A user's dataset may have no length.
            size = len(dataset)
    return WaitedDataset(type(dataset), size, id(dataset))


LOADER_WAITS = process_wide("loader_waits", LoaderWaits)  # for `sawtooth run`

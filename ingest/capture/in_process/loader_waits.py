"""Time for which the training's main thread waits for batches of PyTorch's DataLoader.

Two parts count separately. The wait for an epoch's first batch includes the start and the end of worker processes, and all that the dataset does
before its first sample. The start of the epoch's iterator, with its processes, is a part of that wait. Standard library only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from .shared import process_wide, watch

SOURCE = "_sawtooth_source"  # attribute of an iterator with its dataset
MOST_SOURCES = (
    100  # A loop may make a dataset in each epoch. Of further ones, those of the same type and size are not told apart.
)
ITERATORS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")


class WaitedDataset(NamedTuple):
    """A dataset. A new one may have the same id as one that was deleted."""

    kind: type
    size: int
    id: int


class Waited(NamedTuple):
    """A wait in ns, and two parts of it.

    ``first_ns`` is before an epoch's first batch and after its last one, ``start_ns`` the part of that for the iterator's start.
    """

    ns: int = 0
    first_ns: int = 0
    start_ns: int = 0


NONE = (0, 0, 0)


class LoaderWaits:
    """The waits of one process so far, by dataset. Only those of the main thread count."""

    def __init__(self) -> None:
        self._waited: dict[WaitedDataset | None, tuple[int, int, int]] = {}  # as in Waited, but faster to make
        self._within = False

    def timed(
        self, function: Callable[[Any], Any], of: Any, source: WaitedDataset | None, *, first: bool, starts: bool = False
    ) -> Any:
        """Call ``function`` with ``of`` and count its time for ``source``, None if that is not known.

        The call that ends an epoch counts for the next first batch.
        """
        if self._within or threading.get_ident() != threading.main_thread().ident:
            return function(of)
        self._within, began_ns = True, time.perf_counter_ns()
        try:
            return function(of)
        except StopIteration:
            first = True
            raise
        finally:
            took_ns, self._within = time.perf_counter_ns() - began_ns, False
            waited = self._waited.get(source)
            if waited is None:
                if source is not None and len(self._waited) >= MOST_SOURCES:
                    source = source._replace(id=0)
                waited = self._waited.get(source, NONE)
            self._waited[source] = (
                waited[0] + took_ns,
                waited[1] + took_ns * first,
                waited[2] + took_ns * starts,
            )

    def since_last(self) -> Callable[[int, str], Waited | None]:
        """Return a function that gives the wait since its last call for an optimizer, None without one.

        A step with an evaluation counts only the datasets that other steps used, because the evaluation has a dataset of its own.
        """
        before: dict[int, dict[WaitedDataset | None, tuple[int, int, int]]] = {}
        began = dict(self._waited)
        own: set[WaitedDataset | None] = set()

        def since(optimizer: int, phase: str) -> Waited | None:
            last = before.get(optimizer, began)
            changed = [
                (source, waited, last.get(source, NONE))
                for source, waited in self._waited.items()
                if waited is not last.get(source)
            ]
            if not changed:
                return None
            before[optimizer] = self._waited.copy()
            if phase != "eval":
                own.update([source for source, _, _ in changed])
            ns = first_ns = start_ns = 0
            for source, now, then in changed:
                if source in own or not own:
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
        source, kept = None, False
        with contextlib.suppress(Exception):  # a subclass may override any attribute
            source = _source(loader)
            kept = getattr(loader, "_iterator", None) is not None  # with persistent workers
        iterator = _through(watchers, start, loader, source, first=True, starts=not kept)
        if hasattr(type(iterator), "_next_data"):  # not the iterator of a subclass, which the training may pickle
            with contextlib.suppress(Exception):
                setattr(iterator, SOURCE, source)
        return iterator

    return timed


def _timed_batch(following: Callable[[Any], Any], watchers: list[LoaderWaits]) -> Callable[[Any], Any]:
    def timed(iterator: Any) -> Any:
        source, first = getattr(iterator, SOURCE, None), getattr(iterator, "_num_yielded", None) == 0
        if len(watchers) == 1:  # a second recorder is rare
            return watchers[0].timed(following, iterator, source, first=first)
        return _through(watchers, following, iterator, source, first=first)

    return timed


def _through(
    watchers: list[LoaderWaits], function: Callable[[Any], Any], of: Any, source: WaitedDataset | None, **part: bool
) -> Any:
    """Call ``function`` with ``of``, timed by each of the watchers."""
    for waits in watchers[1:]:
        function = partial(waits.timed, function, source=source, **part)
    return watchers[0].timed(function, of, source, **part) if watchers else function(of)


def _source(loader: Any) -> WaitedDataset:
    dataset: Any = getattr(loader, "dataset", None)
    size = 0
    if (
        getattr(loader, "_dataset_kind", 0) == 0
    ):  # PyTorch does not ask for the length of an IterableDataset, which may take long
        with contextlib.suppress(Exception):  # a user's own may fail
            size = len(dataset)
    return WaitedDataset(type(dataset), size, id(dataset))


LOADER_WAITS = process_wide("loader_waits", LoaderWaits)  # for `sawtooth run`

"""Time for which the training's main thread waits for batches of PyTorch's DataLoader.

Two parts of this time are also counted separately. The first part is the wait between epochs, in which the workers of one epoch end, the
workers of the next epoch start, the dataset prepares itself, and the first batch is loaded. The second part is the start of the epoch's
iterator, which belongs to the first part. Standard library only.
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


class LoaderWait(NamedTuple):
    """A wait in ns, and two parts of this wait.

    ``first_ns`` is the wait before an epoch's first batch and after its last batch. ``start_ns`` is the part of ``first_ns`` in which the
    iterator starts.
    """

    ns: int = 0
    first_ns: int = 0
    start_ns: int = 0


NO_WAIT = (0, 0, 0)


class LoaderWaits:
    """The waits of one process so far, by dataset. Only waits of the main thread count."""

    def __init__(self) -> None:
        # The values are plain tuples with the fields of LoaderWait, because plain tuples are faster to make.
        self._waits: dict[WaitedDataset | None, tuple[int, int, int]] = {}
        self._in_call = False

    def time_call(
        self, function: Callable[[Any], Any], argument: Any, source: WaitedDataset | None, *, first: bool, starts: bool = False
    ) -> Any:
        """Call ``function`` with ``argument``, and add the call's duration to the waits for ``source``.

        ``source`` is None if the dataset is unknown. The call that ends an epoch counts as a wait for the next epoch's first batch.
        """
        if self._in_call or threading.get_ident() != threading.main_thread().ident:
            return function(argument)
        self._in_call, start_ns = True, time.perf_counter_ns()
        try:
            return function(argument)
        except StopIteration:
            first = True
            raise
        finally:
            duration_ns, self._in_call = time.perf_counter_ns() - start_ns, False
            wait = self._waits.get(source)
            if wait is None:
                if source is not None and len(self._waits) >= MAX_SOURCES:
                    source = source._replace(id=0)
                wait = self._waits.get(source, NO_WAIT)
            self._waits[source] = (wait[0] + duration_ns, wait[1] + duration_ns * first, wait[2] + duration_ns * starts)

    def wait_reader(self) -> Callable[[int, str], LoaderWait | None]:
        """Return a function that returns the wait since an optimizer's previous step (None: no wait).

        At a step with an evaluation, only datasets of earlier training steps count, because the evaluation has its own dataset.
        """
        last_waits: dict[int, dict[WaitedDataset | None, tuple[int, int, int]]] = {}
        first_waits = dict(self._waits)
        training_sources: set[WaitedDataset | None] = set()  # Datasets of steps without an evaluation.

        def wait(optimizer: int, phase: str) -> LoaderWait | None:
            last = last_waits.get(optimizer, first_waits)
            changed = [
                (source, sum_now, last.get(source, NO_WAIT))
                for source, sum_now in self._waits.items()
                if sum_now is not last.get(source)
            ]
            if not changed:
                return None
            last_waits[optimizer] = self._waits.copy()
            if phase != "eval":
                training_sources.update([source for source, _, _ in changed])
            ns = first_ns = start_ns = 0
            for source, sum_now, sum_before in changed:
                if source in training_sources or not training_sources:
                    ns += sum_now[0] - sum_before[0]
                    first_ns += sum_now[1] - sum_before[1]
                    start_ns += sum_now[2] - sum_before[2]
            return LoaderWait(ns, first_ns, start_ns)

        return wait

    def watch(self, loaders: Any) -> Callable[[], None]:
        """Count waits until the returned function is called; ``loaders`` is torch.utils.data.dataloader."""
        unwatch_functions = [watch(loaders.DataLoader, "__iter__", self, _timed_start)]
        unwatch_functions += [watch(getattr(loaders, name), "_next_data", self, _timed_batch) for name in ITERATORS]

        def unwatch() -> None:
            for unwatch_function in unwatch_functions:
                unwatch_function()

        return unwatch


def _timed_start(start: Callable[[Any], Any], watchers: list[LoaderWaits]) -> Callable[[Any], Any]:
    def timed_start(loader: Any) -> Any:
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

    return timed_start


def _timed_batch(next_batch: Callable[[Any], Any], watchers: list[LoaderWaits]) -> Callable[[Any], Any]:
    def timed_batch(iterator: Any) -> Any:
        source, first = getattr(iterator, SOURCE, None), getattr(iterator, "_num_yielded", None) == 0
        if len(watchers) == 1:  # Usually there is one watcher. A direct call is faster.
            return watchers[0].time_call(next_batch, iterator, source, first=first)
        return _call_timed(watchers, next_batch, iterator, source, first=first)

    return timed_batch


def _call_timed(
    watchers: list[LoaderWaits], function: Callable[[Any], Any], argument: Any, source: WaitedDataset | None, **parts: bool
) -> Any:
    """Call ``function`` with ``argument``, timed by all watchers; ``parts`` are ``first`` and ``starts``."""
    for waits in watchers[1:]:
        function = partial(waits.time_call, function, source=source, **parts)
    return watchers[0].time_call(function, argument, source, **parts) if watchers else function(argument)


def _source(loader: Any) -> WaitedDataset:
    dataset: Any = getattr(loader, "dataset", None)
    size = 0
    # The length of an IterableDataset is not read, because the dataset may take long to compute it.
    if getattr(loader, "_dataset_kind", 0) == 0:
        with contextlib.suppress(Exception):  # A user's dataset may have no length.
            size = len(dataset)
    return WaitedDataset(type(dataset), size, id(dataset))


LOADER_WAITS = process_wide("loader_waits", LoaderWaits)  # For `sawtooth run`.

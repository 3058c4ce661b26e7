"""Tests of how long a loop waits for batches, with fake classes of a DataLoader."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.ingest.capture.in_process import loader_waits
from sawtooth.ingest.capture.in_process.loader_waits import LoaderWait, LoaderWaits


class _Batches:
    def __init__(self, clock: list[int], batches: int) -> None:
        self._clock, self._batches, self._num_yielded = clock, batches, 0

    def _next_data(self) -> int:
        self._clock[0] += 2 if self._num_yielded else 30
        if self._num_yielded == self._batches:
            raise StopIteration
        self._num_yielded += 1
        return self._num_yielded


def torch_loaders(clock: list[int]) -> Any:
    class DataLoader:
        def __init__(self, dataset: Any, batches: int) -> None:
            self.dataset, self._batches, self._iterator = dataset, batches, None

        def __iter__(self) -> _Batches:
            clock[0] += 10
            return type("_MultiProcessingDataLoaderIter", (loaders._MultiProcessingDataLoaderIter,), {})(clock, self._batches)

    single, several = type("Single", (_Batches,), {}), type("Several", (_Batches,), {})
    for kind in (single, several):
        kind._next_data = _Batches._next_data  # type: ignore[attr-defined]
    loaders = SimpleNamespace(
        DataLoader=DataLoader, _SingleProcessDataLoaderIter=single, _MultiProcessingDataLoaderIter=several
    )
    return loaders


def test_waits_are_divided_by_epoch_and_those_of_an_evaluation_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch takes 10 ns to start, 30 for the first batch, 2 for each other batch, and 2 to end."""
    clock = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock[0])
    waits, loaders = LoaderWaits(), torch_loaders(clock)
    leave, since = waits.watch(loaders), waits.wait_reader()
    trained, validated = [1], [2]
    batches = loaders.DataLoader(trained, 3).__iter__()
    seen = []
    for _ in range(3):
        batches._next_data()
        seen.append(since(0, "train"))
    assert seen == [LoaderWait(40, 40, 10), LoaderWait(2, 0, 0), LoaderWait(2, 0, 0)]
    assert since(0, "train") is None
    with pytest.raises(StopIteration):
        batches._next_data()
    loaders.DataLoader(validated, 3).__iter__()._next_data()
    assert since(0, "eval") == LoaderWait(2, 2, 0)  # The end of the epoch, without the evaluation's loader.
    loaders.DataLoader(validated, 3).__iter__()._next_data()
    loaders.DataLoader(trained, 3).__iter__()._next_data()  # Another loader of the same dataset.
    assert since(0, "eval") == LoaderWait(40, 40, 10)
    monkeypatch.setattr(loader_waits, "MAX_SOURCES", 2)
    for made in ([3], [4], (5,)):
        loaders.DataLoader(made, 3).__iter__()._next_data()
    assert since(0, "train") == LoaderWait(120, 120, 30)
    assert {source.id for source in waits._waits if source is not None} == {id(trained), id(validated), 0}
    leave()
    loaders.DataLoader([1], 3).__iter__()._next_data()
    assert since(0, "train") is None


class _Iterable:
    """A loader of an IterableDataset, whose length may take long to compute."""

    _dataset_kind = 1

    def __init__(self) -> None:
        self.dataset, self.asked = self, 0

    def __len__(self) -> int:
        self.asked += 1
        return 1


class _Broken:
    @property
    def dataset(self) -> Any:
        raise RuntimeError("only of this subclass")


@pytest.mark.parametrize("loader", [_Iterable(), _Broken()])
def test_a_loader_of_any_kind_gives_its_own_iterator_unchanged(loader: Any) -> None:
    """The training may pickle an iterator of its own, so the recorder adds nothing to the iterator."""
    own = SimpleNamespace()
    kind = type("DataLoader", (), {"__iter__": lambda self: own})
    several = type("Several", (), {"_next_data": lambda self: 1})
    loaders = SimpleNamespace(
        DataLoader=kind, _SingleProcessDataLoaderIter=several, _MultiProcessingDataLoaderIter=type("Other", (several,), {})
    )
    waits = LoaderWaits()
    since = waits.wait_reader()
    leave = waits.watch(loaders)
    assert kind.__iter__(loader) is own and not vars(own)  # type: ignore[attr-defined]
    waited = since(0, "train")
    assert waited is not None and waited.start_ns == waited.ns
    assert not getattr(loader, "asked", 0), "PyTorch does not ask for the length"
    leave()

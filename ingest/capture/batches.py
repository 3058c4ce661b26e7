"""Batch times of PyTorch's DataLoader, measured in its workers.

``watch`` wraps ``fetch`` of PyTorch's two fetchers, so that workers forked afterwards time each batch. A worker writes one line per batch into
its own file: wall time, CPU time, the part of both for collating, and the bytes read from files and from the disk. A line takes some
microseconds. ``loop/batch_files.py`` reads these files. Standard library only. Errors in this module never reach the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..loop.code_location import code_location, sample_location
from ..loop.page_cache import bytes_read, room_for_files
from .in_process import shared

# Measuring padding takes at most this time per batch on average. All recording may take 5 µs per step.
PADDING_NS = 3000
MAX_SAMPLES = 256  # Padding is not measured in larger batches, because each sample takes 1 to 5 µs.
MAX_PARTS = 16  # Of a longer list, only the shapes of this many items are read, to save time.
MAX_BATCHES = 2000  # Batches recorded per process. They are enough for the mean, and too few to fill a disk in a long training.
WallAndCpu = tuple[int, int]  # Wall time and CPU time, both in ns.
FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class BatchTimes:
    """Writer of one process's batch times into ``folder``. A forked process writes its own file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid, self._file, self._remaining = 0, -1, 0

    def write(self, dataset: Any, samples: int, fetch: WallAndCpu, collate: _TimedCollate, fields: Mapping[str, Any]) -> None:
        """Write the line of one batch: number of samples, times of fetching and collating, ``fields``."""
        if self._pid != os.getpid():
            self._open(dataset, collate.collate)
        if self._remaining > 0:
            self._remaining -= 1
            line = {
                "n": samples,
                "wall": fetch[0],
                "cpu": fetch[1],
                "collate": collate.duration_ns[0],
                "collate_cpu": collate.duration_ns[1],
                **fields,
            }
            os.write(self._file, (json.dumps(line) + "\n").encode())

    def _open(self, dataset: Any, collate: Any) -> None:
        self._pid, self._remaining = os.getpid(), 0
        self._file = os.open(self._folder / f"batches-{self._pid}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        info = _worker_info()
        workers, parent = (info.num_workers, os.getppid()) if info is not None else (0, self._pid)
        head = {"dataset": _dataset_name(dataset), "workers": workers, "parent": parent, "room": room_for_files()}
        with contextlib.suppress(Exception):  # A dataset may override any attribute that is read here.
            head |= {"sample_code": sample_location(dataset), "collate_code": code_location(collate)}
        os.write(self._file, (json.dumps(head) + "\n").encode())
        self._remaining = MAX_BATCHES


class PinTimes:
    """Writer of the times that the pinning thread takes for each batch.

    The batches of all workers pass through this thread one by one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid, self._file, self.remaining = folder, 0, -1, MAX_BATCHES

    def write(self, start_ns: int, end_ns: int, last_end_ns: int | None) -> None:
        """Write the duration of a batch, and the pause since the end of the thread's last batch."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._file = os.open(self._folder / f"pins-{self._pid}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.remaining -= 1
        pause = "" if last_end_ns is None else f" {start_ns - last_end_ns}"
        os.write(self._file, f"{end_ns - start_ns}{pause}\n".encode())


def _timed_pinning(pin: Callable[..., Any], watchers: list[PinTimes]) -> Callable[..., Any]:
    thread_state = threading.local()

    def timed_pin(*arguments: Any, **options: Any) -> Any:
        # PyTorch's function calls itself for the parts of a batch. These calls are not timed separately.
        if getattr(thread_state, "pinning", False) or all(times.remaining <= 0 for times in watchers):
            return pin(*arguments, **options)
        thread_state.pinning, start_ns = True, time.perf_counter_ns()
        try:
            return pin(*arguments, **options)
        finally:
            thread_state.pinning, end_ns = False, time.perf_counter_ns()
            for times in watchers:
                with contextlib.suppress(Exception):
                    times.write(start_ns, end_ns, getattr(thread_state, "last_end_ns", None))
            thread_state.last_end_ns = end_ns

    return timed_pin


def watch_pinning(module: Any, folder: Path) -> Callable[[], None]:
    """Time the pinning of all loaders until the returned function is called.

    ``module`` is torch.utils.data._utils.pin_memory.
    """
    return shared.watch(module, "pin_memory", PinTimes(folder), _timed_pinning)


class _TimedCollate:
    """Collate function of one epoch's fetcher, with the duration of its last call.

    ``read_clocks`` reads the clocks of the process that fetches, which is a worker or the training. ``process`` is the name of this process
    in /proc. The dataset has ``size`` samples; 0 means that the size is unknown.
    """

    def __init__(self, collate: Callable[[Any], Any], in_worker: bool, epoch: int, size: int) -> None:
        self.collate, self.duration_ns, self.epoch, self.size = collate, (0, 0), epoch, size
        self._last: tuple[Any, Any] | None = None
        self.read_clocks, self.process = (_worker_clocks, "self") if in_worker else (_training_clocks, "thread-self")

    def fields(self, bytes_before: tuple[int, int] | None) -> dict[str, int]:
        """Return the epoch, dataset size, wall time, and the bytes read since ``bytes_before``, if known."""
        fields = {"epoch": self.epoch, "of": self.size, "at": time.time_ns()}
        bytes_now = bytes_read(self.process)
        if bytes_now is not None and bytes_before is not None:
            fields |= {"read": bytes_now[0] - bytes_before[0], "disk": bytes_now[1] - bytes_before[1]}
        return fields

    def __call__(self, samples: Any) -> Any:
        start = self.read_clocks()
        batch = self.collate(samples)
        self.duration_ns = _elapsed(start, self.read_clocks())
        self._last = samples, batch
        return batch

    def take_last(self) -> tuple[Any, Any] | None:
        """Return the last batch's samples and the batch, once; None if they were returned already."""
        last, self._last = self._last, None
        return last


class _Padding:
    """Measurement of the share of padding in a process's batches, from the second batch on.

    Some batches are skipped, so that the measurement takes at most PADDING_NS per batch on average.
    """

    def __init__(self) -> None:
        self._pid, self._batches, self._measured, self._spent_ns = 0, 0, 0, 0

    def field(self, samples_and_batch: tuple[Any, Any] | None) -> dict[str, float]:
        """Return the share of padding in a batch as a field; {} if it is not measured."""
        if self._pid != os.getpid():
            self._pid, self._batches, self._measured, self._spent_ns = os.getpid(), 0, 0, 0
        self._batches += 1
        # The time for the measured batches and this one, at the mean time so far.
        expected_ns = self._spent_ns / self._measured * (self._measured + 1) if self._measured else 0
        if samples_and_batch is None or self._batches == 1 or expected_ns > PADDING_NS * self._batches:
            return {}
        start_ns = time.perf_counter_ns()
        self._measured += 1
        try:
            return {"padding": padding_share(*samples_and_batch)}
        finally:
            self._spent_ns += time.perf_counter_ns() - start_ns


def watch(fetchers: Any, folder: Path) -> Callable[[], None]:
    """Time the fetches of all loaders until the returned function is called.

    ``fetchers`` is torch.utils.data._utils.fetch.
    """
    times = BatchTimes(folder)
    with contextlib.ExitStack() as stack:
        for name in FETCHERS:
            stack.callback(shared.watch(getattr(fetchers, name), "fetch", times, _timed_fetch))
        return stack.pop_all().close


def watch_loaders(folder: Path) -> list[Callable[[], None]]:
    """Time fetches and pinning of all loaders until the returned functions are called; needs PyTorch."""
    from torch.utils.data._utils import fetch, pin_memory

    unwatch = watch(fetch, folder)
    try:
        return [unwatch, watch_pinning(pin_memory, folder)]
    except Exception:  # In another version of PyTorch, pinning may work differently.
        unwatch()
        raise


def _worker_info() -> Any:
    """Return PyTorch's description of this loader worker; None outside workers. Needs an imported loader."""
    return sys.modules["torch.utils.data._utils.worker"].get_worker_info()


def _timed_fetch(fetch: Callable[[Any, Any], Any], watchers: list[BatchTimes]) -> Callable[[Any, Any], Any]:
    # By process and dataset, because a forked process inherits its parent's counts.
    epochs: Counter[tuple[int, str]] = Counter()
    padding = _Padding()

    def timed_fetch(self: Any, indices: Any) -> Any:
        if not watchers:
            return fetch(self, indices)
        if not isinstance(self.collate_fn, _TimedCollate):  # Each iterator of a loader has its own fetcher.
            key = os.getpid(), _dataset_name(self.dataset)
            epochs[key] += 1
            self.collate_fn = _TimedCollate(
                self.collate_fn, _worker_info() is not None, epochs[key], _dataset_size(self.dataset)
            )
        collate = self.collate_fn
        bytes_before, start = bytes_read(collate.process), collate.read_clocks()
        batch = fetch(self, indices)
        fetch_ns = _elapsed(start, collate.read_clocks())
        with contextlib.suppress(Exception):
            fields = collate.fields(bytes_before) | padding.field(collate.take_last())
            for times in watchers:
                with contextlib.suppress(Exception):  # If one watcher cannot write, the others still do.
                    times.write(self.dataset, len(indices) if self.auto_collation else 1, fetch_ns, collate, fields)
        return batch

    return timed_fetch


def _worker_clocks() -> WallAndCpu:
    """Return wall and process CPU time in ns, because a worker only loads and its dataset may use threads."""
    return time.perf_counter_ns(), time.process_time_ns()


def _training_clocks() -> WallAndCpu:
    """Return wall and thread CPU time in ns, because other threads of the training compute too."""
    return time.perf_counter_ns(), time.thread_time_ns()


def _elapsed(start: WallAndCpu, end: WallAndCpu) -> WallAndCpu:
    return end[0] - start[0], end[1] - start[1]


def padding_share(samples: Any, batch: Any) -> float:
    """Return the share of padding in ``batch``, from the lengths of its ``samples``.

    The share is 0 if the samples were not padded to the length of the longest sample.
    """
    if not isinstance(samples, list) or not 2 <= len(samples) <= MAX_SAMPLES:
        return 0.0
    sizes = [[size for shape in _shapes(sample) for size in shape] for sample in samples]
    if any(len(sample_sizes) != len(sizes[0]) for sample_sizes in sizes):
        return 0.0
    varying = (dimension for dimension in zip(*sizes, strict=True) if min(dimension) < max(dimension))
    lengths = max(varying, key=max, default=None)
    if lengths is None or not any(_has_dimensions(shape, len(samples), max(lengths)) for shape in _shapes(batch)):
        return 0.0
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def _has_dimensions(shape: tuple[int, ...], samples: int, length: int) -> bool:
    sizes = list(shape)
    if samples in sizes:
        sizes.remove(samples)
        return length in sizes
    return False


def _shapes(item: Any) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors, arrays and lists of numbers in ``item``.

    A list of items with equal shapes counts as one array."""
    if isinstance(item, Mapping):
        return [shape for part in item.values() for shape in _shapes(part)]
    shape = getattr(item, "shape", None)
    if shape is not None:
        return [tuple(int(size) for size in shape)]
    if not isinstance(item, (list, tuple)) or not item:
        return []
    if isinstance(item[0], (int, float)):
        return [(len(item),)]
    parts = [_shapes(part) for part in item[:MAX_PARTS]]
    if isinstance(item, list) and all(part == parts[0] for part in parts):
        return [(len(item), *shape) for shape in parts[0]]
    return [shape for part in parts for shape in part]


def _dataset_size(dataset: Any) -> int:
    """Return the number of samples; 0 if it is unknown or may take long to compute (IterableDataset)."""
    with contextlib.suppress(Exception):
        if not isinstance(dataset, sys.modules["torch.utils.data"].IterableDataset):
            return len(dataset)
    return 0


def _dataset_name(dataset: Any) -> str:
    """Return a name from the dataset's class and size. All workers give a dataset one name."""
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}:{_dataset_size(dataset) or ''}"

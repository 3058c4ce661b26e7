"""How long the loader's processes take for a batch: the fetching of PyTorch's DataLoader timed where it happens, in its workers.

``watch`` wraps the two fetchers' ``fetch``, so that workers forked afterwards time each batch: wall clock, time on a core, how much of it
was putting samples together, and what was read for it from the disk and from the page cache. A line a batch goes into a file of the worker's own (some
microseconds); ``cost_of`` makes one ``SampleCost`` of them. Standard library only; what fails in here is left out and never reaches the training.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..loop.cores import usable_cores
from ..loop.loading import SampleCost
from ..loop.page_cache import FirstRead, bytes_read, first_read, room_for_files
from .in_process import shared

MOST = 2000  # batches of one process: their mean is known, and a long training fills no disk
FEWEST = 3  # batches: fewer are the loader's start
Spent = tuple[int, int]  # ns by the wall clock, ns on a core
FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


class BatchTimes:
    """Writes one process's batches into ``folder``. A forked process writes a file of its own."""

    def __init__(self, folder: Path, worker: Callable[[], Any]) -> None:
        self._folder, self.worker = folder, worker
        self._pid, self._file, self._left = 0, -1, 0

    def note(self, dataset: Any, samples: int, whole: Spent, collate: Spent, read: dict[str, int]) -> None:
        """Note a batch of ``samples`` from ``dataset`` and what of it was collating, each by wall clock and on a core, ns, and what was ``read``."""
        if self._pid != os.getpid():
            self._open(dataset)
        if self._left > 0:
            self._left -= 1
            line = {"n": samples, "wall": whole[0], "cpu": whole[1], "collate": collate[0], "collate_cpu": collate[1], **read}
            os.write(self._file, (json.dumps(line) + "\n").encode())

    def _open(self, dataset: Any) -> None:
        self._pid, self._left = os.getpid(), 0
        self._file = os.open(self._folder / f"batches-{self._pid}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        info = self.worker()
        workers, parent = (info.num_workers, os.getppid()) if info is not None else (0, self._pid)
        head = {"dataset": _name(dataset), "workers": workers, "parent": parent, "room": room_for_files()}
        os.write(self._file, (json.dumps(head) + "\n").encode())
        self._left = MOST


QUICK_SHARE = 10  # one in so many batches lay ready in the workers' queue: then nothing was waited for


class PinTimes:
    """Writes what the thread that pins the workers' batches takes for each: however many workers there are, their batches go through it one by one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid, self._file, self.left = folder, 0, -1, MOST

    def note(self, ns: int, end_before: int | None, begin: int) -> None:
        """Note what a batch took, and how long before it the thread was done with its last one; nothing of that for a thread's first."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._file = os.open(self._folder / f"pins-{self._pid}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.left -= 1
        since = "" if end_before is None else f" {begin - end_before}"
        os.write(self._file, f"{ns}{since}\n".encode())


def _timed_pinning(pin: Callable[..., Any], watchers: list[PinTimes]) -> Callable[..., Any]:
    inside = threading.local()  # a batch's parts are pinned by the same function

    def pinned(*arguments: Any, **options: Any) -> Any:
        if getattr(inside, "pinning", False) or all(times.left <= 0 for times in watchers):
            return pin(*arguments, **options)
        inside.pinning, before = True, time.perf_counter_ns()
        try:
            return pin(*arguments, **options)
        finally:
            inside.pinning, after = False, time.perf_counter_ns()
            for times in watchers:
                with contextlib.suppress(Exception):  # the training must not notice
                    times.note(after - before, getattr(inside, "end", None), before)
            inside.end = after

    return pinned


def watch_pinning(module: Any, folder: Path) -> Callable[[], None]:
    """Time what loaders pin from now on; return what ends it. ``module`` is torch.utils.data._utils.pin_memory."""
    return shared.watch(module, "pin_memory", PinTimes(folder), _timed_pinning)


class _Timed:
    """The collate function of one epoch's fetcher, that tells what it took last. ``now`` are a worker's clocks or the training's, ``who`` its name in /proc;
    the dataset has ``of`` samples (0: that is not known)."""

    def __init__(self, collate: Callable[[Any], Any], in_worker: bool, epoch: int, of: int) -> None:
        self.collate, self.took, self.epoch, self.of = collate, (0, 0), epoch, of
        self.now, self.who = (_in_worker, "self") if in_worker else (_in_training, "thread-self")

    def read_since(self, before: tuple[int, int] | None) -> dict[str, int]:
        """Return what was read since ``before``, of which epoch; without what the system does not tell."""
        now = bytes_read(self.who)
        about = {"epoch": self.epoch, "of": self.of, "at": time.time_ns()}
        return about if now is None or before is None else {**about, "read": now[0] - before[0], "disk": now[1] - before[1]}

    def __call__(self, samples: Any) -> Any:
        before = self.now()
        made = self.collate(samples)
        self.took = _since(before, self.now())
        return made


def watch(fetchers: Any, folder: Path, worker: Callable[[], Any]) -> Callable[[], None]:
    """Time what the loaders fetch from now on; return what ends it. ``fetchers`` is torch.utils.data._utils.fetch, ``worker`` its get_worker_info."""
    times = BatchTimes(folder, worker)
    with contextlib.ExitStack() as leave:
        for name in FETCHERS:
            leave.callback(shared.watch(getattr(fetchers, name), "fetch", times, _timed))
        return leave.pop_all().close


def watch_loaders(folder: Path) -> list[Callable[[], None]]:
    """Time what every loader of this process fetches and pins, until what is returned is called. Needs PyTorch."""
    from torch.utils.data import get_worker_info
    from torch.utils.data._utils import fetch, pin_memory

    unwatch = watch(fetch, folder, get_worker_info)
    try:
        return [unwatch, watch_pinning(pin_memory, folder)]
    except Exception:  # another PyTorch pins otherwise: it is left as it was found
        unwatch()
        raise


def _timed(fetch: Callable[[Any, Any], Any], watchers: list[BatchTimes]) -> Callable[[Any, Any], Any]:
    epochs: Counter[tuple[int, str]] = Counter()  # a forked process goes on with its parent's

    def timed(self: Any, wanted: Any) -> Any:
        if not watchers:
            return fetch(self, wanted)
        if not isinstance(self.collate_fn, _Timed):  # each iterator of a loader has a fetcher of its own
            who = os.getpid(), _name(self.dataset)
            epochs[who] += 1
            self.collate_fn = _Timed(self.collate_fn, watchers[0].worker() is not None, epochs[who], _size(self.dataset))
        collate = self.collate_fn
        read, before = bytes_read(collate.who), collate.now()
        made = fetch(self, wanted)
        whole = _since(before, collate.now())
        for times in watchers:
            with contextlib.suppress(Exception):  # the training must not notice
                times.note(
                    self.dataset, len(wanted) if self.auto_collation else 1, whole, collate.took, collate.read_since(read)
                )
        return made

    return timed


def _in_worker() -> Spent:
    """A worker does nothing else, and its dataset may use threads."""
    return time.perf_counter_ns(), time.process_time_ns()


def _in_training() -> Spent:
    """The training's other threads compute meanwhile."""
    return time.perf_counter_ns(), time.thread_time_ns()


def _since(before: Spent, now: Spent) -> Spent:
    return now[0] - before[0], now[1] - before[1]


@dataclass(frozen=True)
class Loading:
    """What a loader's processes took: for a sample, how many they are, and the first reading of their dataset where it was counted."""

    cost: SampleCost
    workers: int
    first: FirstRead | None = None


def loading_of(folder: Path) -> Loading | None:
    """Return what the loader did by the files in ``folder``; None where too few batches were fetched.

    Of several datasets the one counts that most samples came from, of several workers the slowest: batches are given out in turn, so the
    others wait for it. Each process's first batch is left out, and batches without a sample; what was read from the disk once also is, where
    it comes from the page cache since.
    """
    by_loader: dict[tuple[str, int], list[tuple[dict[str, Any], list[dict[str, int]]]]] = defaultdict(list)
    for path in folder.glob("batches-*.jsonl"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            head, _, *lines = path.read_text().splitlines()
            about = json.loads(head)
            whole = (json.loads(line) for line in lines if line.endswith("}"))
            by_loader[about["dataset"], about["workers"]].append((about, [batch for batch in whole if batch["n"]]))
    if not by_loader:
        return None
    (_, workers), processes = max(by_loader.items(), key=lambda item: sum(batch["n"] for _, own in item[1] for batch in own))
    first = first_read(processes)
    since = first.later_ns or 0 if first is not None and first.is_over else 0
    timed = ([batch for batch in own if batch.get("at", 0) >= since] for _, own in processes)
    batches = max((own for own in timed if len(own) >= FEWEST), key=_each_s, default=None)
    if batches is None:
        return None
    each = [_alone(batch, "") for batch in batches]
    cpu_s = statistics.fmean(_alone(batch, "_cpu") for batch in batches)
    collate_s = statistics.fmean(batch["collate"] for batch in batches) / 1e9
    size = statistics.median(batch["n"] for batch in batches)
    error_s = statistics.stdev(each) / math.sqrt(len(each))
    cost = SampleCost(statistics.fmean(each), error_s, cpu_s, collate_s, int(size), pin_s=_pin_s(folder))
    return Loading(cost, workers, first)


def _pin_s(folder: Path) -> float:
    """Return the seconds of its thread that pinning a batch takes, 0 where none was pinned. Each process's first makes the thread's context.

    Between two batches the thread takes the next from the workers' queue and gives the last one's memory back, which for large batches is as much again.
    What it takes at the least between two is that; it may wait as well, so that no more than the pinning itself counts.
    """
    times: list[list[int]] = []
    for path in folder.glob("pins-*.txt"):
        with contextlib.suppress(OSError, ValueError):
            times += [[int(part) for part in line.split()] for line in path.read_text().split("\n")[1:-1]]
    if len(times) < FEWEST:
        return 0.0
    pin_ns = statistics.median(pin for pin, *_ in times)
    between_ns = sorted(since for _, *rest in times for since in rest)
    least_ns = between_ns[len(between_ns) // QUICK_SHARE] if between_ns else 0
    return (pin_ns + min(least_ns, pin_ns)) / 1e9


def _each_s(batches: list[dict[str, int]]) -> float:
    return statistics.fmean(batch["wall"] / batch["n"] for batch in batches) / 1e9


def _alone(batch: dict[str, int], clock: str) -> float:
    """Return the seconds of one sample by a clock, collating aside."""
    return (batch["cpu" if clock else "wall"] - batch[f"collate{clock}"]) / batch["n"] / 1e9


def facts_of(loading: Loading) -> dict[str, float]:
    """Return ``loading`` as facts of a run."""
    cost, first = loading.cost, loading.first
    facts = {
        "loader_workers": loading.workers,
        "loader_cores": usable_cores(),
        "loader_batch": cost.batch,
        "loader_sample_ms": 1e3 * cost.wall_s,
        "loader_sample_error_ms": 1e3 * cost.error_s,
        "loader_sample_cpu_ms": 1e3 * cost.cpu_s,
        "loader_collate_ms": 1e3 * cost.collate_s,
        "loader_pin_ms": 1e3 * cost.pin_s,
    }
    if first is None:
        return facts
    facts |= {
        "loader_first_disk_share": first.disk_share,
        "loader_first_sample_ms": 1e3 * first.sample_s,
        "loader_first_sample_bytes": first.sample_bytes,
        "loader_dataset_samples": first.samples,
        "loader_room_bytes": max(first.room_bytes, 1.0),
    }
    if first.later_share is not None and first.later_ns is not None:
        facts |= {"loader_later_disk_share": first.later_share, "loader_later_from_ns": first.later_ns}
    return facts


def _size(dataset: Any) -> int:
    with contextlib.suppress(Exception):
        return len(dataset)
    return 0


def _name(dataset: Any) -> str:
    """Tell datasets apart by what is alike in every worker."""
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}:{_size(dataset) or ''}"

"""Timing of DataLoader workers, from the files in which ``ingest/capture/batches.py`` records batches.

Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .code_location import MAX_LENGTH
from .cores import usable_cores
from .loading import SampleCost
from .page_cache import FirstRead, first_read

MIN_BATCHES = 3  # With fewer batches, the loader's start dominates the times.
# One of this many batches is assumed to be ready in the workers' queue when the pinning thread takes it.
READY_ONE_IN = 10


class ProcessBatches(NamedTuple):
    """Header and batches from the file of one loader process, without its first batch."""

    header: dict[str, Any]
    batches: list[dict[str, int]]


@dataclass(frozen=True)
class Loading:
    """Measured behavior of a loader: cost of a sample, number of workers, first epoch.

    ``first_epoch``: reads of the first epoch, None if they were not counted.
    ``sample_code``, ``collate_code``: locations of the code that makes a sample and that collates a batch.
    ``padding``: share of a batch that is padding.
    """

    cost: SampleCost
    workers: int
    first_epoch: FirstRead | None = None
    sample_code: str | None = None
    collate_code: str | None = None
    padding: float = 0.0


def read_loading(folder: Path, training: int | None = None) -> Loading | None:
    """Return the loader's measurements from the files in ``folder``; None if there are too few batches.

    ``training`` is a process id. Only files of its child processes are used, or all files if there are none.
    Of several datasets, the dataset with the most samples is used. The times of the slowest worker are used, because workers deliver
    batches in turn and faster workers wait. Each process's first batch and batches without samples are ignored. The first epoch is
    ignored if it read from the disk and later epochs read from the page cache.
    """
    by_loader: dict[tuple[str, int], list[ProcessBatches]] = defaultdict(list)
    written = _processes(folder)
    for process in [process for process in written if process.header.get("parent") == training] or written:
        by_loader[process.header["dataset"], process.header["workers"]].append(process)
    if not by_loader:
        return None
    (_, workers), processes = max(by_loader.items(), key=lambda item: _samples(item[1]))
    first_epoch = first_read(processes)
    start_ns = 0
    if first_epoch is not None and first_epoch.is_over:
        start_ns = first_epoch.later_ns or 0
    timed = ([batch for batch in process.batches if batch.get("at", 0) >= start_ns] for process in processes)
    slowest = max((batches for batches in timed if len(batches) >= MIN_BATCHES), key=_mean_seconds_per_sample, default=None)
    if slowest is None:
        return None
    header = processes[0].header
    paddings = [batch["padding"] for process in processes for batch in process.batches if "padding" in batch]
    return Loading(
        _sample_cost(slowest, _pin_s(folder, training)),
        workers,
        first_epoch,
        header.get("sample_code"),
        header.get("collate_code"),
        statistics.fmean(paddings) if paddings else 0.0,
    )


def _processes(folder: Path) -> list[ProcessBatches]:
    """Return the header and the batches that each process of a loader wrote into ``folder``."""
    processes = []
    for path in folder.glob("batches-*.jsonl"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            first_line, _, *lines = path.read_text().splitlines()  # The second line is the process's first batch.
            batches = [json.loads(line) for line in lines if line.endswith("}")]
            header = json.loads(first_line)
            if "dataset" in header and "workers" in header:
                processes.append(ProcessBatches(header, [batch for batch in batches if batch["n"]]))
    return processes


def _samples(processes: list[ProcessBatches]) -> int:
    return sum(batch["n"] for process in processes for batch in process.batches)


def _sample_cost(batches: list[dict[str, int]], pin_s: float) -> SampleCost:
    seconds_per_sample = [_sample_s(batch) for batch in batches]
    return SampleCost(
        wall_s=statistics.fmean(seconds_per_sample),
        error_s=statistics.stdev(seconds_per_sample) / math.sqrt(len(batches)),
        cpu_s=statistics.fmean(_sample_s(batch, cpu=True) for batch in batches),
        collate_s=statistics.fmean(batch["collate"] for batch in batches) / 1e9,
        batch=int(statistics.median(batch["n"] for batch in batches)),
        pin_s=pin_s,
    )


def _pin_s(folder: Path, training: int | None = None) -> float:
    """Return the seconds that the pinning thread needs per batch; 0 if no batch was pinned.

    Each process's first batch is ignored, because it creates the thread's CUDA context.
    Between two batches, the thread takes the next batch from the workers' queue and frees the memory of the last batch. For large batches,
    this work takes as long as the pinning. It is measured by the shortest times between batches. These times may include waiting, so at
    most the pinning time is counted.
    """
    rows: list[list[int]] = []  # Time of pinning in ns. In newer files also the time since the end of the previous pinning.
    own = folder / f"pins-{training}.txt"
    for path in [own] if own.exists() else folder.glob("pins-*.txt"):
        with contextlib.suppress(OSError, ValueError):
            lines = path.read_text().split("\n")[1:-1]  # Leave out the first batch and the unfinished last line.
            rows += [[int(part) for part in line.split()] for line in lines]
    if len(rows) < MIN_BATCHES:
        return 0.0
    pin_ns = statistics.median(row[0] for row in rows)
    between_ns = sorted(row[1] for row in rows if len(row) > 1)
    shortest_ns = between_ns[len(between_ns) // READY_ONE_IN] if between_ns else 0
    return (pin_ns + min(shortest_ns, pin_ns)) / 1e9


def _mean_seconds_per_sample(batches: list[dict[str, int]]) -> float:
    return statistics.fmean(batch["wall"] / batch["n"] for batch in batches) / 1e9


def _sample_s(batch: dict[str, int], *, cpu: bool = False) -> float:
    """Return the seconds for one sample without collating: CPU time if ``cpu``, else wall time."""
    total_ns, collate_ns = (batch["cpu"], batch["collate_cpu"]) if cpu else (batch["wall"], batch["collate"])
    return (total_ns - collate_ns) / batch["n"] / 1e9


def loader_facts(loading: Loading) -> dict[str, float | str]:
    """Convert ``loading`` to facts of a run, as in ``UserFacts`` of ``ingest/manifest.py``."""
    cost, first = loading.cost, loading.first_epoch
    facts: dict[str, float | str] = {
        "loader_workers": loading.workers,
        "loader_cores": usable_cores(),
        "loader_batch": cost.batch,
        "loader_sample_ms": 1e3 * cost.wall_s,
        "loader_sample_error_ms": 1e3 * cost.error_s,
        "loader_sample_cpu_ms": 1e3 * cost.cpu_s,
        "loader_collate_ms": 1e3 * cost.collate_s,
        "loader_pin_ms": 1e3 * cost.pin_s,
        "loader_padding": loading.padding,
    }
    locations = (("loader_sample_code", loading.sample_code), ("loader_collate_code", loading.collate_code))
    facts |= {key: location for key, location in locations if location and len(location) <= MAX_LENGTH}
    if first is None:
        return facts
    facts |= {
        "loader_first_disk_share": first.disk_share,
        "loader_first_sample_ms": 1e3 * first.sample_s,
        "loader_first_sample_bytes": first.sample_bytes,
        "loader_dataset_samples": first.samples,
        "loader_room_bytes": max(first.room_bytes, 1.0),  # Memory for the page cache. In the manifest, 0 means "not recorded".
    }
    if first.later_share is not None and first.later_ns is not None:
        facts |= {"loader_later_disk_share": first.later_share, "loader_later_from_ns": first.later_ns}
    return facts

"""Times of a loader's processes, from the files in which ``capture/batches.py`` records each batch.

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
from typing import Any

from .cores import usable_cores
from .loading import SampleCost
from .page_cache import FirstRead, first_read

FEWEST = 3  # least number of batches; fewer only show how the loader starts
LONGEST_PLACE = 300  # longest location of code, in characters; the manifest has the same limit
# One in this many batches is assumed to be ready in the workers' queue, so that the thread did not wait for it.
QUICK_SHARE = 10


@dataclass(frozen=True)
class Loading:
    """Measured behavior of a loader: cost of a sample, number of workers, first epoch.

    ``first``: reads of the first epoch, None if they were not counted.
    ``sample_code``, ``collate_code``: locations of the code that makes a sample and that collates a batch.
    ``padding``: share of a batch that is padding.
    """

    cost: SampleCost
    workers: int
    first: FirstRead | None = None
    sample_code: str | None = None
    collate_code: str | None = None
    padding: float = 0.0


def loading_of(folder: Path) -> Loading | None:
    """Return the loader's measurements from the files in ``folder``; None if there are too few batches.

    If there are several datasets, the one with the most samples counts. The slowest worker counts, because workers deliver batches in
    turn and the others wait for it.
    Each process's first batch and batches without samples are ignored. If the first epoch read from the disk and later epochs from the
    page cache, the first epoch is ignored too.
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
    batches = max((own for own in timed if len(own) >= FEWEST), key=_batch_share_s, default=None)
    if batches is None:
        return None
    each = [_sample_s(batch, "") for batch in batches]
    cpu_s = statistics.fmean(_sample_s(batch, "_cpu") for batch in batches)
    collate_s = statistics.fmean(batch["collate"] for batch in batches) / 1e9
    size = statistics.median(batch["n"] for batch in batches)
    error_s = statistics.stdev(each) / math.sqrt(len(each))
    cost = SampleCost(statistics.fmean(each), error_s, cpu_s, collate_s, int(size), pin_s=_pin_s(folder))
    about = processes[0][0]
    looked_at = [batch["padding"] for _, own in processes for batch in own if "padding" in batch]
    padding = statistics.fmean(looked_at) if looked_at else 0.0
    return Loading(cost, workers, first, about.get("sample_code"), about.get("collate_code"), padding)


def _pin_s(folder: Path) -> float:
    """Return the seconds that the pinning thread needs per batch; 0 if no batch was pinned.

    Each process's first batch is ignored, because it creates the thread's CUDA context.
    Between two batches, the thread takes the next one from the workers' queue and frees the memory of the last one. For large batches this
    takes as long as the pinning. The shortest times between batches measure this work. They may include waiting, so at most the time of the
    pinning itself is added.
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


def _batch_share_s(batches: list[dict[str, int]]) -> float:
    return statistics.fmean(batch["wall"] / batch["n"] for batch in batches) / 1e9


def _sample_s(batch: dict[str, int], clock: str) -> float:
    """Return the seconds for one sample without collating: CPU time if ``clock`` is set, else wall time."""
    return (batch["cpu" if clock else "wall"] - batch[f"collate{clock}"]) / batch["n"] / 1e9


def facts_of(loading: Loading) -> dict[str, float | str]:
    """Convert ``loading`` to facts of a run."""
    cost, first = loading.cost, loading.first
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
    places = (("loader_sample_code", loading.sample_code), ("loader_collate_code", loading.collate_code))
    facts |= {key: place for key, place in places if place and len(place) <= LONGEST_PLACE}
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

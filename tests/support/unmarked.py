"""Recordings without step marks.

Such a profile is the result if ``profiler.step()`` is never called and no optimizer is named.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from sawtooth.analysis.derive.events import TraceEvents, load_events
from sawtooth.analysis.derive.steps.device import device_steps
from sawtooth.analysis.derive.steps.host import find_host_steps
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support.findings_of import library, recording_of

ANNOTATIONS = ("user_annotation", "gpu_user_annotation")


@dataclass(frozen=True)
class StepsSeen:
    """The source of a trace's steps, and their number and median (counted steps, ms) on the first device."""

    source: str
    count: int
    ms: float | None


def without_marks(trace: Path, target: Path) -> Path:
    """Write ``trace`` (gzipped JSON) to ``target`` without annotations, and return ``target``.

    ProfilerStep and Optimizer.step are annotations too.
    """
    document = json.loads(gzip.decompress(trace.read_bytes()))
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") not in ANNOTATIONS]
    target.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=1))
    return target


def marked_and_not(trace: Path) -> tuple[StepsSeen, StepsSeen]:
    """Return the steps of ``trace`` with its marks and without them."""
    with tempfile.TemporaryDirectory(prefix="sawtooth-unmarked-") as place:
        folder = DataFolder(Path(place, "data")).create()
        bare = ingest_file(without_marks(trace, Path(place, "bare.json.gz")), folder, keep_source=False).id
        return steps_seen(events_of(library().folder, recording_of(trace))), steps_seen(events_of(folder, bare))


def events_of(folder: DataFolder, recording: str) -> TraceEvents:
    with duckdb.connect(":memory:") as con:
        con.execute(f"ATTACH '{folder.recording_file(recording)}' AS r (READ_ONLY); USE r")
        return load_events(con)


def steps_seen(events: TraceEvents) -> StepsSeen:
    """Return the steps on the first device of ``events``."""
    host = find_host_steps(events)
    devices = np.unique(events.gpu.device)
    if not len(devices) or host.source == "none":
        return StepsSeen(host.source, 0, None)
    table = device_steps(events, host, int(devices[0])).table
    counted = table[table["counted"].astype(bool)]
    return StepsSeen(
        host.source, len(table), float((counted["end"] - counted["start"]).median()) / 1e6 if len(counted) else None
    )

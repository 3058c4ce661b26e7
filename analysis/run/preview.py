"""Basic facts of a recording before anything is derived from it, for a first sentence on the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from sawtooth.ingest.database import read_rows

_GPUS = "SELECT DISTINCT name FROM devices WHERE name IS NOT NULL AND device IN (SELECT device FROM gpu_ops)"
_STEPS = "SELECT count(*) FROM names WHERE regexp_full_match(name, 'ProfilerStep#\\d+')"
_DEVICES = "SELECT device FROM gpu_ops GROUP BY device ORDER BY count(*) DESC, device LIMIT 16"  # A host has at most 16 GPUs.
# Operations are stored in order of start, so both windows read them once without storing rows. Millions of operations then need
# no extra memory.
_BUSY = """WITH running AS (SELECT start_ns, max(start_ns + dur_ns) OVER (ROWS UNBOUNDED PRECEDING) AS reached FROM gpu_ops WHERE device = {}),
    each AS (SELECT start_ns, reached, coalesce(lag(reached) OVER (), start_ns) AS before FROM running)
    SELECT sum(reached - greatest(start_ns, before)), max(reached) - min(start_ns) FROM each"""


@dataclass(frozen=True)
class TracePreview:
    """Basic facts of a trace, from all of its recorded events.

    ``gpu`` is the model of its GPUs, None where it names none or several. ``steps`` is the number of steps that the profiler
    marked. ``busy_share`` (0 to 1) is the busy share of the time from a GPU's first operation to its last, None without GPU
    work.
    """

    gpu: str | None
    steps: int
    busy_share: float | None


def first_look(recording_file: Path) -> TracePreview | None:
    """Return the first look at a trace's recording; None where its file cannot be read.

    The code that derives from the file reports the error.
    """
    try:
        models, steps, devices = (read_rows(recording_file, select) for select in (_GPUS, _STEPS, _DEVICES))
        parts = [read_rows(recording_file, _BUSY.format(device))[0] for (device,) in devices]
    except duckdb.Error:
        return None
    lasts = sum(last for _, last in parts)
    return TracePreview(
        models[0][0] if len(models) == 1 else None, steps[0][0], sum(busy for busy, _ in parts) / lasts if lasts else None
    )

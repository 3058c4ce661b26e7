"""What a recording says by itself, before anything is derived of it: enough for a first sentence while the rest is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from sawtooth.ingest.database import rows_of

_GPUS = "SELECT DISTINCT name FROM devices WHERE name IS NOT NULL AND device IN (SELECT device FROM gpu_ops)"
_STEPS = "SELECT count(*) FROM names WHERE regexp_full_match(name, 'ProfilerStep#\\d+')"
_BUSY = """WITH ordered AS (SELECT device, start_ns, start_ns + dur_ns AS end_ns, max(start_ns + dur_ns) OVER (
        PARTITION BY device ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM gpu_ops),
    each AS (SELECT sum(greatest(end_ns - greatest(start_ns, coalesce(reached, start_ns)), 0)) AS busy, max(end_ns) - min(start_ns) AS lasts
        FROM ordered GROUP BY device)
    SELECT sum(busy)::DOUBLE / nullif(sum(lasts), 0) FROM each"""


@dataclass(frozen=True)
class FirstLook:
    """A trace as recorded, none of it left out.

    ``gpu`` is its GPUs' model, None where it names none or several; ``steps`` how many the profiler marked; ``busy_share`` the part, 0 to 1, of the
    time from a GPU's first operation to its last in which it worked, None without GPU work.
    """

    gpu: str | None
    steps: int
    busy_share: float | None


def first_look(recording_file: Path) -> FirstLook | None:
    """Look at a trace's recording; None where its file cannot be read, which whoever derives it will tell."""
    try:
        models, steps, busy = (rows_of(recording_file, select) for select in (_GPUS, _STEPS, _BUSY))
    except duckdb.Error:
        return None
    return FirstLook(models[0][0] if len(models) == 1 else None, steps[0][0], busy[0][0])

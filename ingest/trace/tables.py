"""Tables that a source fills with events, ids of repeated texts, and problems.

Values that a format does not record are NULL.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import NULL, small_integers
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.source import GPU_KINDS, TABLES, UNNAMED
from sawtooth.ingest.trace.spool import Columns, Spool, SpooledTable

NO_ID = np.int32(-1)
UNKNOWN = np.int64(NULL)
NO_NUMBER = np.float64("nan")
NO_SHAPE = (NULL,) * 6

# Optional columns of each table, with their default values. The comments list the required columns.
# ``kind`` of gpu is an index into GPU_KINDS. ``collective`` is an index into ``collectives``. ``name_id``, ``thread_id``,
# ``signature_id``, ``extra``, and ``kind`` of syncs are indices into ``ids``. ``start`` and ``dur`` are in ns.
OPTIONAL: dict[str, dict[str, Any]] = {
    "ops": {  # annotation (bool), name_id, thread_id, start, dur
        **dict.fromkeys(("external_id", "sequence_number", "forward_thread"), UNKNOWN),
        **dict.fromkeys(("signature_id", "extra", "collective"), NO_ID),
    },
    "calls": {"correlation": UNKNOWN},  # name_id, thread_id, start, dur
    "gpu": {  # kind, name_id, device, stream, start, dur
        **dict.fromkeys(("correlation", "external_id", "graph_id", "graph_node_id"), UNKNOWN),
        **dict.fromkeys(("registers_per_thread", "shared_memory_bytes", "bytes"), UNKNOWN),
        **dict.fromkeys(("blocks_per_sm", "warps_per_sm", "occupancy_pct"), NO_NUMBER),
        "collective": NO_ID,
    },
    "gpu_annotations": {},  # name_id, device, stream, start, dur
    "graph_annotations": {},  # graph_id, graph_node_id, name_id, backward (bool), start
    "python": {"module_id": UNKNOWN},  # name_id, thread_id, start, dur
    "syncs": dict.fromkeys(
        ("correlation", "wait_on_stream", "wait_on_event_correlation"), UNKNOWN
    ),  # kind, device, stream, start, dur
    "overheads": {},  # name_id, thread_id, start, dur
    "memory": dict.fromkeys(("device_type", "device", "address", "allocated", "reserved"), UNKNOWN),  # thread_id, start, bytes
}


class EventTables:
    """Implement ``TraceTables`` for formats that need no class of their own."""

    def __init__(self, spool: Spool, limits: Limits) -> None:
        self.ids: dict[str, dict[Any, int]] = {
            key: {} for key in ("names", "threads", "signatures", "extras", "sync_kinds", "shapes")
        }
        self.tables = {key: SpooledTable(spool) for key in TABLES}
        self.collectives: list[Any] = []
        self.thread_names: dict[tuple[str, str], str] = {}
        self.process_names: dict[str, str] = {}
        self.notes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._limits = limits
        self._name_length = 0

    def note(self, key: str, example: str, count: int = 1) -> None:
        """Count one kind of problem for the diagnostics."""
        self.notes[key] += count
        self.examples.setdefault(key, example)

    def name(self, text: str | None) -> int:
        """Return the id of a name.

        Raises SourceError if there are too many names, or they are too long in total.
        """
        text = text or UNNAMED
        if len(text) > self._limits.name_length:
            self.note("name_cut", text[:80])
            text = text[: self._limits.name_length]
        ids = self.ids["names"]
        if text not in ids:
            self._name_length += len(text)
            if len(ids) >= self._limits.distinct_names or self._name_length > self._limits.names_length:
                sentence = f"The trace has more different names than the limit ({len(ids):,}). Profile a shorter time."
                raise SourceError("E-LIMIT", sentence)
        return ids.setdefault(text, len(ids))

    def thread(self, pid: str, tid: str) -> int:
        """Return the id of a thread."""
        return self.ids["threads"].setdefault((pid, tid), len(self.ids["threads"]))

    def shape(self, sizes: tuple[Any, ...] = NO_SHAPE) -> int:
        """Return the id of a kernel's grid and block (x, y, z of each)."""
        return self.ids["shapes"].setdefault(sizes, len(self.ids["shapes"]))

    def shapes(self) -> dict[str, NDArray[np.int64]]:
        """Return the sizes of every shape by its id, in the form of ``Facts.shapes``."""
        sizes = small_integers([size for shape in self.ids["shapes"] for size in shape]).reshape(-1, 6)
        names = [f"{unit}_{axis}" for unit in ("grid", "block") for axis in "xyz"]
        return {name: sizes[:, position] for position, name in enumerate(names)}

    def add(self, table: str, columns: Columns) -> None:
        """Append rows to a table; missing columns of OPTIONAL get their default values."""
        count = len(columns["start"])
        absent = {name: np.full(count, value) for name, value in OPTIONAL[table].items() if name not in columns}
        if table == "gpu" and "shape" not in columns:
            absent["shape"] = np.full(count, self.shape(), np.int32)
        self.tables[table].add({**absent, **columns})

    def add_gpu(self, kind: str, columns: Columns) -> None:
        """Append operations of one kind (of GPU_KINDS) to table gpu."""
        self.add("gpu", {"kind": np.full(len(columns["start"]), GPU_KINDS.index(kind), np.int8), **columns})

    @property
    def events(self) -> int:
        """The number of rows read."""
        return sum(table.rows for table in self.tables.values())

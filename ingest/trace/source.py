"""What a trace format is: a name, how to know it, and how to read it into tables and facts.

What is the same for every format (clock, ids, links between operators, calls and GPU operations) is ``sawtooth.ingest.trace.build``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from sawtooth.ingest.source import Source
from sawtooth.ingest.trace.spool import Table

TABLES = ("ops", "calls", "gpu", "gpu_annotations", "python", "syncs", "overheads", "memory")
GPU_KINDS = ("kernel", "memcpy", "memset")  # what the ids in column ``kind`` of table ``gpu`` are of
MOST_DEVICES = 256  # of one host, MIG instances counted; each costs an analysis of its own


class TraceTables(Protocol):
    """Event tables by the names in TABLES (all there, some empty), times in nanoseconds on the trace's own clock.

    ``ids`` holds what the ids in their columns are of, in order: names, threads (pid, tid), signatures, extras and sync_kinds.
    """

    @property
    def tables(self) -> dict[str, Table]:
        """Columns are those of the store's tables, with ids in place of texts; see ``sawtooth.ingest.trace.tables`` for each."""

    @property
    def ids(self) -> Mapping[str, Mapping[Any, int]]:
        """By kind, what ids are of."""

    @property
    def collectives(self) -> list[Any]:
        """Arguments of collectives; column ``collective`` of ops and gpu counts them, -1 for none."""

    @property
    def thread_names(self) -> dict[tuple[str, str], str]:
        """Names of threads by (pid, tid)."""

    @property
    def process_names(self) -> dict[str, str]:
        """Names of processes by pid."""

    def note(self, key: str, example: str, count: int = 1) -> None:
        """Count one kind of trouble, for the diagnostics."""


@dataclass(frozen=True)
class Facts:
    """What a trace says of itself.

    ``base_ns`` is added to its times (None: nothing is said), ``tolerance_ns`` what its times are rounded to. ``recording`` are columns
    of table ``recording``, ``devices`` rows of that table, ``shapes`` grid and block sizes by shape id. ``diagnostics`` is asked last,
    since linking meets trouble too. ``samples`` are columns of that table, by device and time, where the file holds telemetry as well.
    """

    base_ns: int | None
    tolerance_ns: int
    truncated: bool
    recording: dict[str, Any]
    devices: list[dict[str, Any]]
    shapes: dict[str, NDArray[Any]]
    diagnostics: Callable[[], Iterable[dict[str, Any]]]
    samples: dict[str, NDArray[Any]] | None = None


Read = Callable[[Source, Path, Callable[[int], None]], AbstractContextManager[tuple[TraceTables, Facts]]]


@dataclass(frozen=True)
class TraceSource:
    """One trace format. ``sniff`` looks at the first uncompressed bytes.

    ``read`` gets the source, a folder for temporary files, and what to tell the number of events read so far; its tables last as long as
    its context. Raises SourceError for a source that cannot be used.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Read

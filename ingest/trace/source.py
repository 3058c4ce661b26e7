"""The interface of a trace format: its name, how to recognize it, and how to read it.

``sawtooth.ingest.trace.build`` does what all formats share (clock, ids, links between operators, calls and GPU operations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from sawtooth.ingest.errors import ImportDiagnostic
from sawtooth.ingest.source import Source
from sawtooth.ingest.trace.spool import SpooledTable

TABLES = ("ops", "calls", "gpu", "gpu_annotations", "graph_annotations", "python", "syncs", "overheads", "memory")
GPU_KINDS = ("kernel", "memcpy", "memset")  # Column ``kind`` of table ``gpu`` has the positions of these names.
UNNAMED = "(unnamed)"  # This text replaces a missing or empty name.
# Larger times count from 1970, and this time is in 1973. Smaller times count from the host's boot, and no host runs for three years.
MIN_UNIX_NS = 10**17
# GPUs of one host, including MIG instances. Each GPU is analysed separately, so more GPUs would take too long.
MAX_DEVICES = 256
# The severity and the sentence of the problems that all formats share, by key.
COMMON_SENTENCES = {
    "name_cut": ("info", "Very long names were cut."),
    "overrun": (
        "data_loss",
        "GPU operations end after the next operation of their stream began, which is impossible. They were cut off where the next operation begins.",
    ),
    "duplicate": (
        "data_loss",
        "GPU operations that were recorded twice (equal stream, times, name and correlation) are stored once.",
    ),
    "correlation_repeated": (
        "info",
        "Several launches share a correlation id. GPU operations were linked to the last of these launches before them.",
    ),
}


class TraceTables(Protocol):
    """Event tables by the names in TABLES, in ns on the trace's own clock. A table may be empty.

    ``ids`` has the values of names, threads (pid, tid), signatures, extras and sync_kinds, each in the order of their ids.
    """

    @property
    def tables(self) -> dict[str, SpooledTable]:
        """The tables by name, with the columns that ``sawtooth.ingest.trace.tables`` lists."""

    @property
    def ids(self) -> Mapping[str, Mapping[Any, int]]:
        """The values of ids, by kind."""

    @property
    def collectives(self) -> list[Any]:
        """Arguments of collectives, indexed by column ``collective`` of ops and gpu; -1 for none."""

    @property
    def thread_names(self) -> dict[tuple[str, str], str]:
        """Names of threads by (pid, tid)."""

    @property
    def process_names(self) -> dict[str, str]:
        """Names of processes by pid."""

    def note(self, key: str, example: str, count: int = 1) -> None:
        """Count one kind of problem for the diagnostics."""


@dataclass(frozen=True)
class Facts:
    """The content of a trace besides its events.

    * ``base_ns`` is added to the trace's times. It is None if the trace does not record it.
    * ``tolerance_ns`` is the largest error from rounding the times.
    * ``recording`` has columns of table ``recording``, and ``devices`` has rows of table ``devices``.
    * ``shapes`` has grid and block sizes by shape id.
    * ``diagnostics`` is called last, because linking also finds problems.
    * ``samples`` has columns of table ``samples``, ordered by device and time. It is None if the file contains no telemetry.
    """

    base_ns: int | None
    tolerance_ns: int
    truncated: bool
    recording: dict[str, Any]
    devices: list[dict[str, Any]]
    shapes: dict[str, NDArray[Any]]
    diagnostics: Callable[[], Iterable[ImportDiagnostic]]
    samples: dict[str, NDArray[Any]] | None = None


Read = Callable[[Source, Path, Callable[[int], None]], AbstractContextManager[tuple[TraceTables, Facts]]]


@dataclass(frozen=True)
class TraceSource:
    """One trace format.

    ``sniff`` gets the first uncompressed bytes, and returns whether they have this format. ``read`` gets the source, a folder for temporary
    files, and a function that it calls with the number of events read so far. The tables exist only inside the context of ``read``, which
    raises SourceError for a source that cannot be used.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Read

"""The row of table ``recording`` of a recording, typed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sawtooth.ingest.manifest import RecordingKind

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

NSIGHT = "Nsight"  # Start of the profiler's name in exports of Nsight Systems.


@dataclass(frozen=True)
class RecordingRow:
    """The columns of table ``recording`` that analysis reads; None means not recorded.

    ``ingest/schema.sql`` describes the columns.
    """

    id: str
    kind: RecordingKind
    source_name: str = ""
    source_bytes: int = 0
    clock: str = "unknown"
    base_time_ns: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    truncated: bool = False
    vendor: str | None = None
    host: str | None = None
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None
    torch_version: str | None = None
    runtime_version: str | None = None
    profiler_version: str | None = None
    record_shapes: bool | None = None
    profile_memory: bool | None = None
    with_stack: bool | None = None
    with_modules: bool | None = None

    @property
    def by_nsight(self) -> bool:
        """Whether Nsight Systems made the recording; its users mark steps and record shapes in other ways."""
        return (self.profiler_version or "").startswith(NSIGHT)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """The earliest start and the latest end of the recorded events; None without events."""
        return None if self.first_ns is None or self.last_ns is None else (self.first_ns, self.last_ns)


def row_of(recording: Recording) -> RecordingRow:
    """Return the row of an open recording."""
    return RecordingRow(*recording.rows(f"SELECT {', '.join(field.name for field in fields(RecordingRow))} FROM recording")[0])

"""The registry of trace formats."""

from __future__ import annotations

from sawtooth.ingest.trace.nsight import reader as nsight
from sawtooth.ingest.trace.source import TraceSource
from sawtooth.ingest.trace.torch_json import reader as torch_json

# A new format is a folder next to ``torch_json`` and one more source here.
SOURCES: tuple[TraceSource, ...] = (torch_json.SOURCE, nsight.SOURCE)
# The caller uses this source if no source recognizes a file. It recovers damaged traces and has the best error messages.
DEFAULT = torch_json.SOURCE


def source_for(head: bytes) -> TraceSource | None:
    """Return the source that recognizes ``head`` (the first decompressed bytes); None if no source does."""
    return next((source for source in SOURCES if source.sniff(head)), None)

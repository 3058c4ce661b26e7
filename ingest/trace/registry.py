"""The registry of trace formats."""

from __future__ import annotations

from sawtooth.ingest.trace.nsight import reader as nsight
from sawtooth.ingest.trace.source import TraceSource
from sawtooth.ingest.trace.torch_json import reader as torch_json

# For a new format, add a folder next to ``torch_json`` and a source here.
SOURCES: tuple[TraceSource, ...] = (torch_json.SOURCE, nsight.SOURCE)
# This source is used for a file that no source recognizes. It recovers damaged traces and has the best error messages.
DEFAULT = torch_json.SOURCE


def source_for(head: bytes) -> TraceSource | None:
    """Return the source that recognizes ``head`` (the first decompressed bytes); None if no source does."""
    return next((source for source in SOURCES if source.sniff(head)), None)

"""The registry of trace formats."""

from __future__ import annotations

from sawtooth.ingest.trace.nsight import reader as nsight
from sawtooth.ingest.trace.source import TraceSource
from sawtooth.ingest.trace.torch_json import reader as torch_json

DEFAULT = torch_json.SOURCE  # for unknown files: it recovers what it can and has the best error messages


def sources() -> list[TraceSource]:
    """Return every trace source.

    A new format is a folder next to ``torch_json`` and one line here.
    """
    return [
        torch_json.SOURCE,
        nsight.SOURCE,
    ]


def source_for(head: bytes) -> TraceSource | None:
    """Return the source that recognizes ``head``; None without one."""
    return next((source for source in sources() if source.sniff(head)), None)

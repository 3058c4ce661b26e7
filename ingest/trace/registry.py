"""The trace formats that are read."""

from __future__ import annotations

from sawtooth.ingest.trace.nsight import reader as nsight
from sawtooth.ingest.trace.source import TraceSource
from sawtooth.ingest.trace.torch_json import reader as torch_json

DEFAULT = torch_json.SOURCE  # of what nobody knows: it salvages what it can and says best what is wrong


def sources() -> list[TraceSource]:
    """Return every trace source; a new format is a folder beside ``torch_json`` and its line here."""
    return [
        torch_json.SOURCE,
        nsight.SOURCE,
    ]


def source_for(head: bytes) -> TraceSource | None:
    """Return the source that knows ``head``, None where none does."""
    return next((source for source in sources() if source.sniff(head)), None)

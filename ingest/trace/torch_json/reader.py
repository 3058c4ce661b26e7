"""The trace source for ``torch.profiler`` exports, complete, truncated or damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sawtooth.ingest.source import Source
from sawtooth.ingest.trace.source import Facts, TraceSource, TraceTables
from sawtooth.ingest.trace.spool import Spool
from sawtooth.ingest.trace.torch_json.facts import facts
from sawtooth.ingest.trace.torch_json.tables import TorchTrace
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.worker import ParallelReader, worker_count


def sniff(head: bytes) -> bool:
    """Return whether ``head`` is JSON with a list of trace events."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") and b'"traceEvents"' in head


@contextmanager
def read(opened: Source, folder: Path, progress: Callable[[int], None]) -> Iterator[tuple[TraceTables, Facts]]:
    """Read every event, with further processes if the file is large enough."""
    with closing(Spool(folder)) as spool, closing(opened.pieces()) as pieces:
        document = Document(pieces, opened.limits)
        trace = TorchTrace(document, opened.limits, spool)
        with closing(ParallelReader(document, trace, opened.limits, folder, worker_count(opened.total_bytes))) as reading:
            for events in reading.run():
                progress(events)
        yield trace, facts(trace, opened.damage)


SOURCE = TraceSource("torch.profiler JSON", sniff, read)

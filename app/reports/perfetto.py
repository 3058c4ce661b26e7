"""A run's traces as one file for Perfetto, on the common clock that the ranks' collectives show."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Sequence
from contextlib import closing

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.recording_row import RecordingRow
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.manifest import Manifest, RecordingRef
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.source import Source
from sawtooth.ingest.trace.torch_json.merging import RankSource, merge_traces
from sawtooth.ingest.trace.torch_json.reader import sniff

ZLIB_LEVEL = 1  # A low level, because a viewer waits for the file and does not store it.
MARGIN_NS = 1_000_000_000  # Time before the first event. Marks may be earlier, and Perfetto has no time below 0.
UNKNOWN_CLOCKS = "The traces share no clock, so all of them begin at the same time."


def viewable(folder: DataFolder, ref: RecordingRef) -> bool:
    """Return whether a trace's source is stored and readable by Perfetto, unlike an Nsight Systems export."""
    path = folder.source_file(ref.id)
    return path.is_file() and sniff(Source(path).head())


def mergeable(folder: DataFolder, manifest: Manifest) -> bool:
    """Return whether a run has several traces that Perfetto can read."""
    return len(manifest.traces) > 1 and all(viewable(folder, ref) for ref in manifest.traces)


def shifts(result: RunResult) -> tuple[list[int], bool]:
    """Return the ns to add to the times of each trace, and whether all traces then share a clock.

    All times are moved to the first rank's clock, by the ends of shared collectives or else by the time of day.
    """
    rows = {row.id: row for row in result.recordings if row.kind == "trace"}
    waits = result.communication.ranks if result.communication else ()
    offsets = {result.ranks[wait.position].recording_id: wait.clock_offset_ns for wait in waits}
    traces = [(rows[ref.id], offsets.get(ref.id)) for ref in result.manifest.traces]
    one_clock = all(row.clock == "unix" or offset is not None for row, offset in traces)
    if not one_clock:
        return [-_first_in_file(row) for row, _ in traces], False
    return [(row.base_time_ns or 0) - (offset or 0) for row, offset in traces], True


def merged_trace(result: RunResult, folder: DataFolder) -> Generator[bytes]:
    """Yield all traces of a run as one, as gzipped JSON.

    Raises NotFoundError before the first piece if a source cannot be read.
    """
    manifest = result.manifest
    if not all(viewable(folder, ref) for ref in manifest.traces) or not manifest.traces:
        raise NotFoundError(
            "Perfetto cannot open all traces of this run. A source was not stored, or is not a trace of torch.profiler. Ingest the torch.profiler traces again, without --no-keep-source."
        )
    shifts_ns, _ = shifts(result)
    first_ns = {row.id: _first_in_file(row) for row in result.recordings if row.kind == "trace"}
    origin_ns = min(first_ns[ref.id] + shift for ref, shift in zip(manifest.traces, shifts_ns, strict=True)) - MARGIN_NS
    ranks = [
        RankSource(folder.source_file(ref.id), _label(manifest.traces, number), shift)
        for number, (ref, shift) in enumerate(zip(manifest.traces, shifts_ns, strict=True))
    ]
    return _gzip(ranks, origin_ns)


def _label(traces: Sequence[RecordingRef], number: int) -> str:
    rank = traces[number].rank
    return f"rank {rank}" if rank is not None else f"trace {number + 1}"


def _first_in_file(row: RecordingRow) -> int:
    """Return the start of a trace's first event, as in its file (ns)."""
    return (row.first_ns or 0) - (row.base_time_ns or 0)


def _gzip(ranks: Sequence[RankSource], origin_ns: int) -> Generator[bytes]:
    compressor = zlib.compressobj(ZLIB_LEVEL, wbits=31)
    with closing(merge_traces(ranks, origin_ns)) as pieces:
        for piece in pieces:
            if packed := compressor.compress(piece):
                yield packed
    yield compressor.flush()

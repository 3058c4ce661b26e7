"""A run's traces as one file for Perfetto: every rank on the clock that the ranks' collectives say they share."""

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
from sawtooth.ingest.trace.torch_json.merging import RankSource, merged
from sawtooth.ingest.trace.torch_json.reader import sniff

LEVEL = 1  # of zlib: a viewer waits for it, and keeps nothing of it
BEFORE_NS = 1_000_000_000  # marks may stand before the first event that is stored, and Perfetto knows no time below 0
UNKNOWN_CLOCKS = "The traces share no clock: each rank's begins at the same time."


def viewable(folder: DataFolder, ref: RecordingRef) -> bool:
    """Tell whether a trace's source is kept, and is one that Perfetto reads: not an export of Nsight Systems."""
    path = folder.source_file(ref.id)
    return path.is_file() and sniff(Source(path).head())


def mergeable(folder: DataFolder, manifest: Manifest) -> bool:
    """Tell whether a run has several traces, all of which Perfetto reads."""
    return len(manifest.traces) > 1 and all(viewable(folder, ref) for ref in manifest.traces)


def shifts(result: RunResult) -> tuple[list[int], bool]:
    """Return what to add to the times in each trace's file (ns), and whether they are on one clock then.

    The first rank's clock is that of all; others are moved by what the ends of shared collectives say, or stay on the time of day where they share none.
    """
    rows = {row.id: row for row in result.recordings if row.kind == "trace"}
    waits = result.communication.ranks if result.communication else ()
    offsets = {result.ranks[each.position].recording_id: each.clock_offset_ns for each in waits}
    traces = [(rows[ref.id], offsets.get(ref.id)) for ref in result.manifest.traces]
    one_clock = all(row.clock == "unix" or offset is not None for row, offset in traces)
    if not one_clock:
        return [-_first_in_file(row) for row, _ in traces], False
    return [(row.base_time_ns or 0) - (offset or 0) for row, offset in traces], True


def merged_trace(result: RunResult, folder: DataFolder) -> Generator[bytes]:
    """Yield one trace of all of a run's, gzipped JSON. Raises NotFoundError, before anything is yielded, where a source cannot be read."""
    manifest = result.manifest
    if not all(viewable(folder, ref) for ref in manifest.traces) or not manifest.traces:
        raise NotFoundError(
            "Not all traces of this run can be opened in Perfetto: a source was not kept, or is no trace of torch.profiler."
        )
    added, _ = shifts(result)
    firsts = {row.id: _first_in_file(row) for row in result.recordings if row.kind == "trace"}
    origin_ns = min(firsts[ref.id] + shift for ref, shift in zip(manifest.traces, added, strict=True)) - BEFORE_NS
    ranks = [
        RankSource(folder.source_file(ref.id), _label(manifest.traces, number), shift)
        for number, (ref, shift) in enumerate(zip(manifest.traces, added, strict=True))
    ]
    return _gzipped(ranks, origin_ns)


def _label(traces: Sequence[RecordingRef], number: int) -> str:
    rank = traces[number].rank
    return f"rank {rank}" if rank is not None else f"trace {number + 1}"


def _first_in_file(row: RecordingRow) -> int:
    """Return when a trace's first event begins, as its file has it (ns)."""
    return (row.first_ns or 0) - (row.base_time_ns or 0)


def _gzipped(ranks: Sequence[RankSource], origin_ns: int) -> Generator[bytes]:
    squeeze = zlib.compressobj(LEVEL, wbits=31)
    with closing(merged(ranks, origin_ns)) as pieces:
        for piece in pieces:
            if packed := squeeze.compress(piece):
                yield packed
    yield squeeze.flush()

"""``/api/v1/runs/{run}/timeline/tiles``: timeline tiles as bytes that a canvas can draw."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from sawtooth.analysis.result_cache import RESULT, cached_file, result_of
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline_tiles
from sawtooth.analysis.tables.timeline_tiles import TimelineTile
from sawtooth.app.api.answers import Handler, answer_errors, run_of
from sawtooth.app.charts.rankings import short_name
from sawtooth.app.library import library
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.manifest import Manifest

NAME_LENGTH = 80  # Characters of a name inside a slice. The drawer shows the full name.
_DEPTH_BITS = 16  # Number of bits of a USMALLINT.
MAX_TILES = 8  # Tiles per request, which suffice for all sources of one time range.
_NAMES = lru_cache(maxsize=20_000)(short_name)
_results: dict[str, RunResult] = {}
_lock = threading.Lock()
MAX_CACHED_RESULTS = 8  # Analyses that stay in memory.


def encode_tile(tile: TimelineTile) -> bytes:
    """Return a tile as bytes: two lengths (u32), a JSON header, and columns.

    The lengths are those of the header without and with padding. Numbers are little-endian. The header and each column are padded to 8 bytes. Columns of slices: start and dur (f64, ns after
    the recording's start), id and name (u32), row (u16), kind (u8). Columns of sums: busy (f64, ns), operations (u32), column
    and row (u16), kind (u8). A row is an index in the header's ``rows`` (lane, depth), and a kind an index in ``kinds``.
    """
    slices, sums = tile.slices, tile.sums
    lanes, *lane_of = _number_values([part["lane"].to_numpy(np.int64) for part in (slices, sums)])
    depths = (part["depth"].to_numpy(np.int64) for part in (slices, sums))
    rows, row, sum_row = _number_values([lane << _DEPTH_BITS | depth for lane, depth in zip(lane_of, depths, strict=True)])
    kinds, kind, sum_kind = _number_values([part["kind"].to_numpy(object).astype(str) for part in (slices, sums)])
    header = msgspec.json.encode(
        {
            "source": tile.source,
            "level": tile.level,
            "index": tile.index,
            "complete": tile.complete,
            "slices": len(slices),
            "sums": len(sums),
            "rows": [(lanes[code >> _DEPTH_BITS], code % (1 << _DEPTH_BITS)) for code in rows],
            "kinds": kinds,
            "names": {str(i): _NAMES(name, NAME_LENGTH) for i, name in tile.names.items()},
        }
    )
    columns = [
        slices["start_ns"].to_numpy("<f8"),
        slices["dur_ns"].to_numpy("<f8"),
        slices["id"].to_numpy("<u4"),
        slices["name_id"].fillna(0).to_numpy("<u4"),
        row.astype("<u2"),
        kind.astype("u1"),
        sums["busy_ns"].to_numpy("<f8"),
        sums["operations"].to_numpy("<u4"),
        sums["column"].to_numpy("<u2"),
        sum_row.astype("<u2"),
        sum_kind.astype("u1"),
    ]
    head = _pad(header)
    return b"".join([np.array([len(header), len(head)], "<u4").tobytes(), head, *(_pad(c.tobytes()) for c in columns)])


def _number_values(columns: list[NDArray[Any]]) -> tuple[list[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted distinct values of two columns, and each column as indices of these values."""
    first_length = len(columns[0])
    distinct, indices = np.unique(np.concatenate(columns), return_inverse=True)
    return distinct.tolist(), indices[:first_length], indices[first_length:]


def _pad(data: bytes) -> bytes:
    return data + b" " * (-len(data) % 8)


def answered(find: Callable[[Request], Response]) -> Handler:
    """Return a route that runs ``find`` in a thread, because ``find`` reads the store."""

    @answer_errors
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(find, request)

    return answer


def _tiles(request: Request) -> Response:
    """Return the tiles of ``sources`` (separated by commas) at ``level`` and ``index``, concatenated."""
    level, index = number(request, "level"), number(request, "index")
    sources = request.query_params.get("sources", "").split(",")
    if len(sources) > MAX_TILES:
        raise UsageError(f"A request may name at most {MAX_TILES} tiles of the timeline.")
    with opened(request) as rank:
        parts = [encode_tile(timeline_tiles.tile(rank.recording, source, rank.device, level, index)) for source in sources]
    # A recording never changes. Its analysis changes only with Sawtooth's version or the run's other ranks.
    return Response(b"".join(parts), headers={"cache-control": "private, max-age=600"}, media_type="application/octet-stream")


def number(request: Request, name: str) -> int:
    """Return a number of the query; raises UsageError if it is missing, invalid or too large."""
    try:
        value = int(request.query_params[name][:20])
        if abs(value) >= 1 << 62:
            raise ValueError
        return value
    except (KeyError, ValueError):
        raise UsageError(f"The timeline needs a whole number as {name}.") from None


@contextmanager
def opened(request: Request) -> Iterator[RankView]:
    """Open the requested recording and device; raises NotFoundError if the run has no such recording."""
    result = requested_result(request)
    recording_id, device = request.query_params.get("recording", ""), request.query_params.get("device", "0")
    rank = rank_of(result, recording_id, device)
    if rank is not None:
        with open_rank(library(), rank, sums=True) as view:
            yield view
    elif any(recording.id == recording_id for recording in result.manifest.traces):
        with library().open(recording_id, sums=True) as recording:
            yield RankView(recording, 0, 0)
    else:
        raise NotFoundError("This run has no such trace.")


def rank_of(result: RunResult, recording_id: str, device: str) -> RankResult | None:
    """Return a device of a run; None if the run has no such device."""
    return next((r for r in result.ranks if r.recording_id == recording_id and str(r.device) == device), None)


def requested_result(request: Request) -> RunResult:
    """Return the analysis of the requested run."""
    return _result(run_of(request))


def _result(manifest: Manifest) -> RunResult:
    """Return the run's analysis, which is cached, because one screen requests dozens of tiles."""
    key = str(cached_file(library().folder, manifest, RESULT))
    with _lock:
        if key in _results:
            return _results[key]
    result = result_of(manifest, library())
    with _lock:
        while len(_results) >= MAX_CACHED_RESULTS:
            del _results[next(iter(_results))]
        _results[key] = result
    return result


tiles = answered(_tiles)

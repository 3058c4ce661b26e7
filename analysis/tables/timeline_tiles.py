"""Tiles of the timeline: the slices of a span of time, with the detail that the screen can show.

A tile has ``COLUMNS`` columns of time, each 2^level nanoseconds wide, counted from the recording's start. A slice that is at
least as long as a column is sent individually. Shorter slices are summed by row and by the column in which they start. So a tile
includes all slices, but no details that the screen cannot show. If there are only a few short slices, they are also sent
individually, and no more detailed tile is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from sawtooth.analysis.derive import timeline_sums as store
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.tables.timeline import extent, is_small
from sawtooth.ingest.errors import UsageError

COLUMNS = 1024  # Columns of a tile. Two to four tiles fill a screen.
MAX_SINGLE_SLICES = 3000  # With at most this many slices, a tile sends all individually; a screen shows about this number.
MAX_SLICES = 40_000  # Limit of individual slices of a tile. Only a damaged trace has more that are as long as a column.
LEVELS = range(53)  # A column of 2^52 ns is 52 days.
GAPS = "gaps"
SOURCES = (*store.SLICES, GAPS)

_SQL = queries_of(__file__)
_DEVICE_SOURCES = ("gpu", GAPS)
# This is the definition of ``known_by`` in SQL.
_KIND = "CASE WHEN {cause} = 'unattributed' AND owner <> 'idle' THEN owner ELSE {cause} END"
_PIECES = f"(SELECT *, {_KIND.format(cause='cause')} AS kind FROM gaps)"
_SUMMED = f"(SELECT * REPLACE ({_KIND.format(cause='kind')} AS kind) FROM {{table}} WHERE source = '{GAPS}')"


@dataclass(frozen=True)
class TimelineTile:
    """The content of a tile; times are ns after the recording's start.

    ``slices`` has start_ns, dur_ns, id, name_id, lane, depth, kind. ``sums`` has column, lane, depth, kind (that with the most
    time), busy_ns, operations. ``complete`` means that all slices are in ``slices``. ``names`` has their names by name_id.
    """

    source: str
    level: int
    index: int
    slices: pd.DataFrame
    sums: pd.DataFrame
    complete: bool
    names: dict[int, str]

    @property
    def start_ns(self) -> int:
        """The time at which the tile begins."""
        return self.index * COLUMNS << self.level


def tile(recording: Recording, source: str, device: int | None, level: int, index: int) -> TimelineTile:
    """Read a tile of ``source``; ``device`` selects the rows of GPU sources.

    Raises UsageError for an impossible tile.
    """
    if source not in SOURCES or level not in LEVELS or not 0 <= index < 1 << (62 - level):
        raise UsageError("There is no such tile of the timeline.")
    read = _Read(recording, source, device, level, index)
    sums = read.sums()
    slices = read.slices(1 << level)
    complete = len(slices) + int(sums["operations"].sum()) <= MAX_SINGLE_SLICES
    if complete and len(sums):
        slices, sums = read.slices(0), sums.iloc[:0]
    ids = [int(i) for i in slices["name_id"].dropna().unique()]
    names = dict(recording.rows("SELECT name_id, name FROM names WHERE list_contains(?, name_id)", [ids])) if ids else {}
    return TimelineTile(source, level, index, slices, sums, complete, names)


class _Read:
    """The queries of one tile."""

    def __init__(self, recording: Recording, source: str, device: int | None, level: int, index: int) -> None:
        self.whole = whole = extent(recording)
        self.recording, self.source, self.level = recording, source, level
        self.cell = store.cell_ns(whole.ns)
        start = whole.start_ns + (index * COLUMNS << level)
        self.places = {
            "origin": whole.start_ns,
            "start": start,
            "end": start + (COLUMNS << level),
            "cell": self.cell,
            "level": level,
            "source": f"'{source}'",
            "of_device": f"device = {int(device or 0)}" if source in _DEVICE_SOURCES else "true",
            **self._rows(device),
        }

    def _rows(self, device: int | None) -> dict[str, str]:
        """Return the SQL for all slices, for those as long as a cell, and for sums of shorter slices."""
        small = is_small(self.recording)
        if self.source != GAPS:
            slices = store.SLICES[self.source]
            of_source = f"WHERE source = '{self.source}'"
            return {
                "rows": slices,
                "long": slices if small else f"(SELECT * FROM long_slices {of_source})",
                "sums": f"({self._added_up(slices)})" if small else f"(SELECT * FROM lane_sums {of_source})",
                "ends": "start_ns + dur_ns",
            }
        pieces, sums, long = _PIECES, _SUMMED.format(table="lane_sums"), _SUMMED.format(table="long_slices")
        # Without gaps, no causes are known.
        if not self.recording.rows("SELECT 1 FROM gaps WHERE device = ? LIMIT 1", [int(device or 0)]):
            pieces = f"(SELECT *, owner AS kind FROM segments WHERE owner IN {LOST_OWNERS})"
            of_lost = f"WHERE source = 'segments' AND owner IN {LOST_OWNERS}"
            sums, long = f"(SELECT * FROM lane_sums {of_lost})", f"(SELECT * FROM long_slices {of_lost})"
        rows = (
            "(SELECT 0::BIGINT AS id, device, 0::BIGINT AS lane, 0::USMALLINT AS depth, kind, NULL::INTEGER AS name_id, start_ns, end_ns, "
            f"end_ns - start_ns AS dur_ns FROM {pieces})"
        )
        return {"rows": rows, "long": rows if small else long, "sums": sums, "ends": "end_ns"}

    def _added_up(self, slices: str) -> str:
        """Return the SQL for the rows of ``lane_sums`` of one source.

        The query planning of the view of all sources would take as long as reading one source.
        """
        grid = {"origin": self.whole.start_ns, "cell": self.cell}
        return store.SUMS.format(source=self.source, depth="depth", owner="NULL", rows=slices, **grid)

    def sums(self) -> pd.DataFrame:
        """Return the sums of slices shorter than a column."""
        by_cell = 1 << self.level >= self.cell
        shift = self.level - self.cell.bit_length() + 1
        return self.recording.frame(_SQL["far" if by_cell else "near"].format(**self.places, shift=shift))

    def slices(self, least_ns: int) -> pd.DataFrame:
        """Return the slices at least as long as ``least_ns`` that touch the tile."""
        tables = ("long_slices", "short_slices") if least_ns < self.cell else ("long_slices",)
        parts = [self.recording.frame(_SQL[name].format(**self.places, least=least_ns, most=MAX_SLICES)) for name in tables]
        filled = [part for part in parts if len(part)]
        return pd.concat(filled, ignore_index=True) if len(filled) > 1 else filled[0] if filled else parts[0]

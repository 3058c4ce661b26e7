"""What lies in a stretch of time, at the detail that a picture of it can show.

A picture has a budget of bars. Where more operations lie in view, short ones are summed per lane, class and column of time, and neighbouring
columns of one class and fill become one bar; an operation as long as a column stays itself. So nothing is left out and nothing is drawn
that could not be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.rank_view import RankView

GPU_BUDGET = 1400  # bars; with the other two below 3,000, which a browser draws and redraws in a fifth of a second
HOST_BUDGET = 900
GAP_BUDGET = 500
COLUMNS_MOST = 600  # columns of time; a lane is about 1,000 pixels wide, and a bar needs more than one to be seen
FILL_LEVELS = 4  # a summed bar is drawn as thick as it is filled, in quarters: finer steps would keep neighbours from merging
STREAMS_MOST = 6  # lanes on one screen; the busiest are shown, the others are counted
THREADS_MOST = 3  # likewise: the launching thread, autograd's and one more

_SQL = queries_of(__file__)
BARS = ("lane", "kind", "start_ns", "end_ns", "name_id", "operations", "busy_ns", "fill")

_LOST = f"(SELECT * FROM {{rows}} WHERE owner IN {LOST_OWNERS})"  # of segments, where causes are not known
_SUMMED = "(SELECT * FROM lane_sums WHERE source = '{source}')"


@dataclass(frozen=True)
class Span:
    """A stretch of time, absolute nanoseconds, half open."""

    start_ns: int
    end_ns: int

    @property
    def ns(self) -> int:
        """Its length."""
        return self.end_ns - self.start_ns

    def within(self, other: Span) -> Span:
        """Return the part of it that lies in ``other``; ``other`` itself where nothing does."""
        start, end = max(self.start_ns, other.start_ns), min(self.end_ns, other.end_ns)
        return Span(start, end) if end > start else other

    def zoomed(self, factor: float, other: Span) -> Span:
        """Return a span of ``factor`` times its length around the same middle, inside ``other``."""
        middle, half = (self.start_ns + self.end_ns) // 2, max(int(self.ns * factor / 2), 1)
        return Span(middle - half, middle + half).within(other)

    def shifted(self, share: float, other: Span) -> Span:
        """Return the span moved by ``share`` of its length, stopping at the ends of ``other``."""
        by = int(self.ns * share)
        by = min(max(by, other.start_ns - self.start_ns), other.end_ns - self.end_ns)
        return Span(self.start_ns + by, self.end_ns + by)

    def relative_ms(self, origin_ns: int) -> tuple[float, float]:
        """Return start and end in ms after ``origin_ns``."""
        return (self.start_ns - origin_ns) / 1e6, (self.end_ns - origin_ns) / 1e6


def span_of_ms(start_ms: float, end_ms: float, origin_ns: int) -> Span:
    """Return the span between two times given in ms after ``origin_ns``, at least a microsecond long."""
    low, high = sorted((start_ms, end_ms))
    start = origin_ns + round(low * 1e6)
    return Span(start, max(origin_ns + round(high * 1e6), start + 1000))


def extent(recording: Recording) -> Span:
    """Return the whole recording."""
    start, end = recording.rows("SELECT coalesce(first_ns, 0), coalesce(last_ns, 1) FROM recording")[0]
    return Span(start, max(end, start + 1))


def streams(rank: RankView) -> pd.DataFrame:
    """Return the streams of a device, busiest first: stream, operations, busy_ns (a sum)."""
    return rank.frame(_SQL["streams"])


def threads(recording: Recording) -> pd.DataFrame:
    """Return the host threads that matter, those that launch most first: thread_id, label, launches, operations."""
    return recording.frame(_SQL["threads"])


@dataclass(frozen=True)
class _Lanes:
    """Where the bars of some lanes come from, as SQL: all pieces, and the sums in ``lane_sums`` of those shorter than a cell.

    ``device`` is None for the host. ``budget`` is how many bars may be drawn.
    """

    pieces: str
    sums: str
    device: int | None
    lanes: list[int]
    budget: int


def gpu_bars(rank: RankView, view: Span, lanes: list[int]) -> pd.DataFrame:
    """Return bars of GPU operations on ``lanes`` (streams); ``kind`` is the owner class."""
    streams_ = _Lanes(timeline_store.GPU, _SUMMED.format(source="gpu"), rank.device, lanes, GPU_BUDGET)
    return _bars(rank.recording, view, streams_)


def host_bars(recording: Recording, view: Span, threads_: list[int]) -> pd.DataFrame:
    """Return bars of host threads: lane is thread_id × 3 + 0 for annotations, 1 for outermost operators, 2 for runtime calls."""
    lanes = [3 * t + row for t in threads_ for row in range(3)]
    return _bars(recording, view, _Lanes(timeline_store.HOST, _SUMMED.format(source="host"), None, lanes, HOST_BUDGET))


def gap_bars(rank: RankView, view: Span) -> pd.DataFrame:
    """Return bars of lost time: ``kind`` is the cause, or the owner where causes are not known."""
    known = rank.rows("SELECT 1 FROM gaps WHERE device = $device LIMIT 1")
    pieces, sums = timeline_store.GAPS, _SUMMED.format(source="gaps")
    if not known:
        pieces, sums = _LOST.format(rows=timeline_store.SEGMENTS), _LOST.format(rows=_SUMMED.format(source="segments"))
    return _bars(rank.recording, view, _Lanes(pieces, sums, rank.device, [0], GAP_BUDGET))


def _bars(recording: Recording, view: Span, source: _Lanes) -> pd.DataFrame:
    """Return the bars of ``source`` in view."""
    device, lanes, budget = source.device, source.lanes, source.budget
    if not lanes:
        return _empty()
    width, grid = max(-(-view.ns // COLUMNS_MOST), 1), view
    shown = (
        f"lane IN ({', '.join(map(str, lanes))}) AND device IS NOT DISTINCT FROM {'NULL' if device is None else int(device)}"
    )
    inside = f"{source.pieces} s WHERE start_ns < {view.end_ns} AND start_ns + dur_ns > {view.start_ns} AND {shown}"
    whole = extent(recording)
    cell = timeline_store.cell_ns(whole.ns)
    if width >= cell:  # columns are whole cells, from the border of a cell on
        width = -(-width // cell) * cell
        grid = Span(whole.start_ns + (view.start_ns - whole.start_ns) // cell * cell, view.end_ns)
        first, last = ((t - whole.start_ns) // cell for t in (grid.start_ns, view.end_ns - 1))
        short = f"""SELECT lane, kind, {whole.start_ns} + cell::BIGINT * {cell} AS start_ns, busy_ns, operations FROM {source.sums} s
            WHERE cell BETWEEN {first} AND {last} AND {shown}
            UNION ALL SELECT lane, kind, start_ns, dur_ns, 1 FROM {inside} AND dur_ns >= {cell} AND dur_ns < {width}"""
    else:
        short = f"SELECT lane, kind, start_ns, dur_ns AS busy_ns, 1 AS operations FROM {inside} AND dur_ns < {width}"
    summed = recording.frame(
        f"""SELECT lane, kind, ((greatest(start_ns, {grid.start_ns}) - {grid.start_ns}) // {width})::INTEGER AS bin,
            sum(busy_ns)::BIGINT AS busy_ns, sum(operations)::BIGINT AS operations FROM ({short}) GROUP BY ALL"""
    )
    few = int(summed["operations"].sum()) <= budget
    single = recording.frame(
        f"""SELECT lane, kind, start_ns, start_ns + dur_ns AS end_ns, name_id, 1::BIGINT AS operations, dur_ns AS busy_ns, 1.0 AS fill
            FROM {inside} AND dur_ns >= {0 if few else width}"""
    )
    if few and len(single) <= budget:
        bars = single
    else:
        bars = within_budget(summed if not few else summed.iloc[:0], single, width, grid, budget)
    return bars.sort_values(["lane", "start_ns", "end_ns"], ascending=[True, True, False], ignore_index=True)


def within_budget(summed: pd.DataFrame, single: pd.DataFrame, width: int, view: Span, budget: int) -> pd.DataFrame:
    """Return at most ``budget`` bars: columns are doubled until they fit, and operations shorter than a column join its sum.

    ``summed`` is as in ``merged_columns``; ``single`` has BARS. No operation is lost on the way.
    """
    while True:
        bars = [frame for frame in (merged_columns(summed, width, view), single) if len(frame)]
        if sum(map(len, bars)) <= budget or width >= view.ns:
            return pd.concat(bars, ignore_index=True) if bars else _empty()
        width *= 2
        short = single["busy_ns"] < width
        added = single[short]
        bins = (np.maximum(added["start_ns"].to_numpy(), view.start_ns) - view.start_ns) // width
        coarser = pd.concat(
            [summed.assign(bin=summed["bin"] // 2), added[["lane", "kind", "busy_ns", "operations"]].assign(bin=bins)],
            ignore_index=True,
        )
        summed = coarser.groupby(["lane", "kind", "bin"], as_index=False)[["busy_ns", "operations"]].sum()
        single = single[~short]


def _empty() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=object if name == "kind" else "int64") for name in BARS})


def merged_columns(summed: pd.DataFrame, width: int, view: Span) -> pd.DataFrame:
    """Turn sums per (lane, column, kind) into bars: a column takes its longest kind, equal neighbours become one bar.

    ``summed`` has lane, kind, bin, busy_ns and operations; the bars' busy_ns and operations add up to its.
    """
    if summed.empty:
        return _empty()
    ranked = summed.sort_values(["lane", "bin", "busy_ns"], ascending=[True, True, False])
    column = ranked.groupby(["lane", "bin"], as_index=False).agg(
        kind=("kind", "first"), busy_ns=("busy_ns", "sum"), operations=("operations", "sum")
    )
    fill = np.clip(np.ceil(column["busy_ns"].to_numpy() / width * FILL_LEVELS), 1, FILL_LEVELS) / FILL_LEVELS
    lane, bins = column["lane"].to_numpy(), column["bin"].to_numpy()
    kind = column["kind"].to_numpy()
    new = np.ones(len(column), bool)
    new[1:] = (lane[1:] != lane[:-1]) | (bins[1:] != bins[:-1] + 1) | (kind[1:] != kind[:-1]) | (fill[1:] != fill[:-1])
    column = column.assign(fill=fill, bar=np.cumsum(new))
    bars = column.groupby("bar", as_index=False).agg(
        lane=("lane", "first"),
        kind=("kind", "first"),
        first=("bin", "min"),
        last=("bin", "max"),
        operations=("operations", "sum"),
        busy_ns=("busy_ns", "sum"),
        fill=("fill", "first"),
    )
    start = view.start_ns + bars["first"].astype("int64") * width
    end = np.minimum(view.start_ns + (bars["last"].astype("int64") + 1) * width, view.end_ns)
    return bars.assign(start_ns=start, end_ns=end, name_id=pd.array([None] * len(bars), dtype="Int64"))[list(BARS)]


@dataclass(frozen=True)
class InView:
    """What a view comes to: the share of it in which the GPU worked, and lost time by owner and cause, ms, largest first."""

    busy_share: float
    lost: tuple[tuple[str, str | None, float], ...]


def facts_in_view(rank: RankView, view: Span) -> InView | None:
    """Return what the view comes to; None where it lies outside the device's first and last operation."""
    owned = {owner: ns for owner, _, ns in _lost(rank, timeline_store.SEGMENTS, "segments", view)}
    if not owned:
        return None
    lost = [(owner, cause, ns / 1e6) for owner, cause, ns in _lost(rank, timeline_store.GAPS, "gaps", view)]
    if not lost:
        lost = [(o, None, owned[o] / 1e6) for o in LOST_OWNERS if owned.get(o)]
    busy = sum(ns for owner, ns in owned.items() if owner != "idle")
    return InView(busy / view.ns, tuple(sorted(lost, key=lambda row: -row[2])))


def _lost(rank: RankView, pieces: str, source: str, view: Span) -> list[tuple[str, str | None, int]]:
    """Return owner, kind and the nanoseconds of them in view."""
    whole = extent(rank.recording)
    parts = timeline_store.parts_in_view(
        pieces, _SUMMED.format(source=source), "owner, kind", f"device = {int(rank.device)}",
        whole.start_ns, timeline_store.cell_ns(whole.ns), view.start_ns, view.end_ns,
    )  # fmt: skip
    return rank.recording.rows(f"SELECT owner, kind, sum(busy_ns)::BIGINT FROM ({parts}) GROUP BY ALL ORDER BY 3 DESC, 1, 2")


def names_of(recording: Recording, ids: list[int]) -> dict[int, str]:
    """Return the names of these name ids."""
    return dict(recording.rows("SELECT name_id, name FROM names WHERE list_contains(?, name_id)", [[int(i) for i in ids]]))


def operations_in_view(rank: RankView, view: Span) -> pd.DataFrame:
    """Return GPU operations in view by name: name, kind (owner class), operations, ms (sum of the parts in view), longest_us."""
    rows = f"(SELECT * FROM {timeline_store.GPU} WHERE device = {int(rank.device)})"
    return _by_name(rank.recording, view, rows, f"source = 'gpu' AND device = {int(rank.device)}", "operations")


def operators_in_view(recording: Recording, view: Span) -> pd.DataFrame:
    """Return host operators, annotations and runtime calls in view by name: name, kind, calls, ms, longest_us."""
    return _by_name(recording, view, timeline_store.HOST, "source = 'host'", "calls")


def _by_name(recording: Recording, view: Span, pieces: str, of_source: str, count: str) -> pd.DataFrame:
    """Return ``pieces`` in view by name; ``of_source`` chooses their rows of ``name_sums``."""
    whole = extent(recording)
    parts = timeline_store.parts_in_view(
        pieces, f"(SELECT * FROM name_sums WHERE {of_source})", "name_id, kind", "true",
        whole.start_ns, timeline_store.cell_ns(whole.ns, timeline_store.NAME_CELLS), view.start_ns, view.end_ns, longest=True,
    )  # fmt: skip
    return recording.frame(_SQL["by_name"].format(count=count, parts=parts))


def gaps_in_view(rank: RankView, view: Span) -> pd.DataFrame:
    """Return the longest pieces of lost time in view: at_ms (after the recording's start), ms, owner, cause, phase, confidence, operator, evidence."""
    return rank.frame(_SQL["gaps"], start=view.start_ns, end=view.end_ns, origin=extent(rank.recording).start_ns)

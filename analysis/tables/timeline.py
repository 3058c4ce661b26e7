"""The timeline's lanes, and sums over a span of time by owner, cause and name.

``timeline_tiles`` has the slices that the timeline draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from sawtooth.analysis.derive import layout
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.knowledge.owners import LOST_OWNERS
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.store.rank_view import RankView

_SQL = queries_of(__file__)
_OF_SOURCE = "(SELECT * FROM {table} WHERE source = '{source}')"


@dataclass(frozen=True)
class TimelineSpan:
    """A span of time from ``start_ns`` up to, but not including, ``end_ns``; absolute ns."""

    start_ns: int
    end_ns: int

    @property
    def ns(self) -> int:
        """The length in ns."""
        return self.end_ns - self.start_ns

    def within(self, other: TimelineSpan) -> TimelineSpan:
        """Return the part of this span inside ``other``; ``other`` itself if they do not overlap."""
        start, end = max(self.start_ns, other.start_ns), min(self.end_ns, other.end_ns)
        return TimelineSpan(start, end) if end > start else other

    def zoomed(self, factor: float, other: TimelineSpan) -> TimelineSpan:
        """Return a span with the same middle and ``factor`` times the length, limited to ``other``."""
        middle, half = (self.start_ns + self.end_ns) // 2, max(int(self.ns * factor / 2), 1)
        return TimelineSpan(middle - half, middle + half).within(other)

    def relative_ms(self, origin_ns: int) -> tuple[float, float]:
        """Return start and end in ms after ``origin_ns``."""
        return (self.start_ns - origin_ns) / 1e6, (self.end_ns - origin_ns) / 1e6


def span_of_ms(start_ms: float, end_ms: float, origin_ns: int) -> TimelineSpan:
    """Return the span between two times in ms after ``origin_ns``; at least a microsecond."""
    low, high = sorted((start_ms, end_ms))
    start = origin_ns + round(low * 1e6)
    return TimelineSpan(start, max(origin_ns + round(high * 1e6), start + 1000))


def extent(recording: Recording) -> TimelineSpan:
    """Return the span of the whole recording."""
    return recording.once(_extent)


def _extent(recording: Recording) -> TimelineSpan:
    start, end = recording.rows("SELECT coalesce(first_ns, 0), coalesce(last_ns, 1) FROM recording")[0]
    return TimelineSpan(start, max(end, start + 1))


def is_small(recording: Recording) -> bool:
    """Return whether the recording's timeline sums are views, as in small recordings.

    For a small recording, the query planning of these views takes longer than reading all events.
    """
    return recording.once(_is_small)


def _is_small(recording: Recording) -> bool:
    return bool(recording.rows(f"SELECT {layout.events_of()}")[0][0] <= layout.MAX_EVENTS_WITHOUT_SUMS)


@dataclass(frozen=True)
class Lane:
    """A lane of the timeline: the slices of one stream or thread.

    ``source`` is the source of the slices, ``lane`` the stream or thread, ``rows`` the depth of nesting.
    """

    source: str
    lane: int
    rows: int
    slices: int
    busy_ns: int


def lanes(recording: Recording, device: int) -> list[Lane]:
    """Return the lanes of the device's streams and of host threads that have slices."""
    return [Lane(*row) for row in recording.rows(_SQL["lanes"], [device])]


def threads(recording: Recording) -> dict[int, str]:
    """Return the names of host threads by thread_id."""
    return dict(recording.rows(_SQL["threads"]))


def backward_threads(recording: Recording) -> set[int]:
    """Return the thread_ids of the threads that autograd's engine uses for the backward pass."""
    return {int(row[0]) for row in recording.rows(_SQL["backward_threads"])}


@dataclass(frozen=True)
class ViewSums:
    """Sums over a view: the share in which the GPU works, and its lost time.

    ``lost`` has the lost time by owner and cause (ms), largest first. Only counted steps have causes: ``uncounted_ms`` is the
    lost time without a cause.
    """

    works_share: float
    lost: tuple[tuple[str, str | None, float], ...]
    uncounted_ms: float = 0.0


def facts_in_view(rank: RankView, view: TimelineSpan) -> ViewSums | None:
    """Return the sums over the view; None if the device has no operation during or around it."""
    owned = {owner: ns for owner, _, ns in _times_by_owner(rank, timeline_store.SEGMENTS, "segments", view)}
    if not owned:
        return None
    lost = [(owner, cause, ns / 1e6) for owner, cause, ns in _times_by_owner(rank, timeline_store.GAPS, "gaps", view)]
    if not lost:
        lost = [(o, None, owned[o] / 1e6) for o in LOST_OWNERS if owned.get(o)]
    works = sum(ns for owner, ns in owned.items() if owner not in LOST_OWNERS)
    uncounted_ms = (sum(owned.values()) - works) / 1e6 - sum(ms for *_, ms in lost)
    return ViewSums(works / view.ns, tuple(sorted(lost, key=lambda row: -row[2])), max(uncounted_ms, 0.0))


def owners_in_view(rank: RankView, view: TimelineSpan) -> list[tuple[str, int]]:
    """Return the owners of a view with their time in ns, largest first."""
    return [(owner, ns) for owner, _, ns in _times_by_owner(rank, timeline_store.SEGMENTS, "segments", view)]


def _times_by_owner(rank: RankView, pieces: str, source: str, view: TimelineSpan) -> list[tuple[str, str | None, int]]:
    """Return owner, kind and their time in the view (ns), largest first."""
    recorded = extent(rank.recording)
    long = pieces if is_small(rank.recording) else _OF_SOURCE.format(table="long_slices", source=source)
    parts = timeline_store.parts_in_view(
        pieces, _OF_SOURCE.format(table="lane_sums", source=source), long, "owner, kind", f"device = {int(rank.device)}",
        origin_ns=recorded.start_ns, cell=timeline_store.cell_ns(recorded.ns), start_ns=view.start_ns, end_ns=view.end_ns,
    )  # fmt: skip
    return rank.recording.rows(f"SELECT owner, kind, sum(busy_ns)::BIGINT FROM ({parts}) GROUP BY ALL ORDER BY 3 DESC, 1, 2")


def operations_in_view(rank: RankView, view: TimelineSpan) -> pd.DataFrame:
    """Return GPU operations in the view by name.

    Columns: name, kind (owner), operations (their number), ms (sum of the parts in the view), longest_us.
    """
    rows = f"(SELECT * FROM {timeline_store.GPU} WHERE device = {int(rank.device)})"
    return _by_name(rank.recording, view, rows, f"source = 'gpu' AND device = {int(rank.device)}", "operations")


def operators_in_view(recording: Recording, view: TimelineSpan) -> pd.DataFrame:
    """Return host operators, annotations and runtime calls in the view by name.

    Columns: name, kind, calls, ms, longest_us.
    """
    return _by_name(recording, view, timeline_store.HOST, "source = 'host'", "calls")


def _by_name(recording: Recording, view: TimelineSpan, pieces: str, of_source: str, count: str) -> pd.DataFrame:
    """Return ``pieces`` in the view by name; ``of_source`` selects their rows of ``name_sums``."""
    recorded = extent(recording)
    parts = timeline_store.parts_in_view(
        pieces, f"(SELECT * FROM name_sums WHERE {of_source})", pieces, "name_id, kind", "true",
        origin_ns=recorded.start_ns, cell=timeline_store.cell_ns(recorded.ns, timeline_store.NAME_CELLS),
        start_ns=view.start_ns, end_ns=view.end_ns, longest=True,
    )  # fmt: skip
    return recording.frame(_SQL["by_name"].format(count=count, parts=parts))


def gaps_in_view(rank: RankView, view: TimelineSpan) -> pd.DataFrame:
    """Return the longest intervals of lost time in the view.

    Columns: at_ms (after the recording's start), ms, owner, cause, phase, confidence, operator, evidence.
    """
    return rank.frame(_SQL["gaps"], start=view.start_ns, end=view.end_ns, origin=extent(rank.recording).start_ns)

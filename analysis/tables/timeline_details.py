"""Details of the timeline: one slice with related slices, sums over a span, search by name.

Times of parameters and results are in ns after the recording's start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.derive import timeline_sums
from sawtooth.analysis.nulls import plain_rows
from sawtooth.analysis.queries import queries_of
from sawtooth.analysis.store.rank_view import RankView
from sawtooth.analysis.tables import timeline
from sawtooth.analysis.tables.efficiency import roofline_table
from sawtooth.analysis.tables.timeline import TimelineSpan, ViewSums
from sawtooth.ingest.errors import NotFoundError, UsageError

MAX_LINKS = 200  # Largest number of listed kernels of one launch. A graph launch has thousands.
MAX_STACK_FRAMES = 200  # Frames of a stack. Deeper stacks are recursion.
MAX_NAMES = 500  # Largest number of names that a search uses. A search with more names would match nearly all slices.
MAX_SEARCH_CHARACTERS = 200  # A search text has at most this many characters.

_SQL = queries_of(__file__)
_ID = {"gpu": "gpu_op_id", "operators": "cpu_op_id", "calls": "call_id", "python": "python_call_id"}


@dataclass(frozen=True)
class Details:
    """One slice with related data.

    ``row`` has the slice's columns. ``links`` are related slices with their ``role`` (launch, kernel, operator). ``stack`` has the
    Python calls around the slice (or its launch), innermost first. ``same`` describes all slices with the same name: count,
    total_ns, longest_ns. ``roof`` is the operator's row of the roofline table. It is None without an operator, or
    if the operator's work is not known.
    """

    row: dict[str, Any]
    links: list[dict[str, Any]]
    stack: list[str]
    same: dict[str, int]
    roof: dict[str, Any] | None = None


def slice_details(rank: RankView, source: str, slice_id: int) -> Details:
    """Return the details of a slice.

    Raises NotFoundError if there is no such slice, and UsageError if there is no such source.
    """
    if source not in _ID:
        raise UsageError("The timeline has no such source of slices.")
    origin = timeline.extent(rank.recording).start_ns
    row = _single_row(rank, _SQL[source], id=slice_id, origin=origin)
    if row is None:
        raise NotFoundError("This slice is not in the recording.")
    links = _links(rank, source, row, origin)
    on_host = next((link for link in links if link["role"] == "launch"), row if source != "gpu" else None)
    stack = _stack(rank, on_host) if on_host is not None else []
    same = (
        _single_row(
            rank,
            _SQL["same"].format(rows=timeline_sums.SLICES[source], of_device=_device_condition(rank, source)),
            name=row["name_id"],
        )
        or {}
    )
    return Details(row, links, stack, same, _roof(rank, row) if source in ("gpu", "operators") else None)


def _device_condition(rank: RankView, source: str) -> str:
    return f"device = {int(rank.device)}" if source in ("gpu", "gaps") else "true"


def _single_row(rank: RankView, sql: str, **parameters: Any) -> dict[str, Any] | None:
    """Return the first row as plain data, NULL as None."""
    frame = _frame(rank, sql, **parameters)
    return plain_rows(frame)[0] if len(frame) else None


def _frame(rank: RankView, sql: str, **parameters: Any) -> pd.DataFrame:
    used_parameters = {name: value for name, value in {**parameters, "device": rank.device}.items() if f"${name}" in sql}
    return rank.recording.frame(sql, used_parameters)


def _links(rank: RankView, source: str, row: dict[str, Any], origin: int) -> list[dict[str, Any]]:
    """Return the slices that belong to a slice: its launch and operator, or the kernels that it launched."""
    sources: list[tuple[str, str, str]] = []  # Role, source and condition.
    if source == "gpu":
        sources.append(("launch", "calls", f"call_id = {row['call_id']}" if row["call_id"] is not None else ""))
        sources.append(("operator", "operators", f"cpu_op_id = {row['cpu_op_id']}" if row["cpu_op_id"] is not None else ""))
    elif source == "calls":
        sources.append(("kernel", "gpu", f"call_id = {row['id']}"))
        sources.append(("operator", "operators", f"cpu_op_id = {row['cpu_op_id']}" if row["cpu_op_id"] is not None else ""))
    elif source == "operators":
        end = row["start"] + row["dur"]
        calls = f"SELECT call_id FROM runtime_calls WHERE thread_id = {row['lane']} AND start_ns >= {row['start'] + origin} AND start_ns < {end + origin}"
        sources.append(("kernel", "gpu", f"call_id IN ({calls})"))
    return _linked_slices(rank, sources, origin)


def _linked_slices(rank: RankView, sources: list[tuple[str, str, str]], origin: int) -> list[dict[str, Any]]:
    """Return the slices of ``sources`` (role, source, SQL condition), each with its role and source.

    An empty condition selects no slice.
    """
    links: list[dict[str, Any]] = []
    for role, source, condition in sources:
        if condition:
            sql = _SQL["linked"].format(rows=_with_condition(source, condition), most=MAX_LINKS, origin=origin)
            links += [{**link, "role": role, "source": source} for link in plain_rows(_frame(rank, sql))]
    return links


def _with_condition(source: str, condition: str) -> str:
    """Return SQL for the slices of a source that meet a condition.

    The condition selects ids first, so that only their rows are joined.
    """
    table = {"gpu": "gpu_ops", "calls": "runtime_calls", "operators": "cpu_ops"}[source]
    return f"(SELECT * FROM {timeline_sums.SLICES[source]} WHERE id IN (SELECT {_ID[source]} FROM {table} WHERE {condition}))"


def _stack(rank: RankView, host_slice: dict[str, Any]) -> list[str]:
    """Return the names of the Python calls around the start of ``host_slice``, innermost first."""
    if not rank.recording.rows("SELECT 1 FROM python_calls LIMIT 1"):
        return []
    origin = timeline.extent(rank.recording).start_ns
    rows = _frame(rank, _SQL["stack"].format(most=MAX_STACK_FRAMES), thread=host_slice["lane"], at=host_slice["start"] + origin)
    return [str(name) for name in rows["name"]]


def _roof(rank: RankView, row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the row of the roofline table for the operator of a slice."""
    name, signature = row.get("work_name_id"), row.get("work_signature_id")
    if name is None or rank.gpu is None:
        return None
    table = roofline_table(rank)
    if table.empty:
        return None
    kernel_rows = table[
        (table["name_id"] == name)
        & (table["signature_id"].eq(signature) if signature is not None else table["signature_id"].isna())
    ]
    return plain_rows(kernel_rows.head(1))[0] if len(kernel_rows) else None


def gap_details(rank: RankView, start: int) -> dict[str, Any]:
    """Return the interval of lost time that begins at ``start``, with ``stack`` and ``links``.

    ``stack`` is the host's stack at that time. ``links`` (see ``Details``) are the operation that ended the interval, and the
    host's call and operator. Raises NotFoundError if no lost time begins at ``start``.
    """
    origin = timeline.extent(rank.recording).start_ns
    row = _single_row(rank, _SQL["gap"], start=start + origin, origin=origin)
    if row is None:
        raise NotFoundError("No lost time begins here.")
    call = row["python_call_id"]
    frames: list[str] = []
    while call is not None and len(frames) < MAX_STACK_FRAMES:
        parent, name = rank.recording.rows("SELECT parent_id, name FROM named_python_calls WHERE python_call_id = ?", [call])[0]
        frames.append(str(name))
        call = parent
    sources = [
        ("end", "gpu", row["next_gpu_op_id"]),
        ("call", "calls", row["call_id"]),
        ("operator", "operators", row["cpu_op_id"]),
    ]
    links = [(role, source, f"{_ID[source]} = {int(slice_id)}") for role, source, slice_id in sources if slice_id is not None]
    return {**row, "stack": frames, "links": _linked_slices(rank, links, origin)}


@dataclass(frozen=True)
class SpanDetails:
    """Sums over a span of time, and its operations by name, longest first.

    ``facts`` is None if the span does not overlap the time of the device's operations.
    """

    facts: ViewSums | None
    owners: list[tuple[str, int]]
    operations: pd.DataFrame


def span_details(rank: RankView, start: int, end: int) -> SpanDetails:
    """Return the sums between two times: facts, ns by owner, operations by name."""
    origin = timeline.extent(rank.recording).start_ns
    view = TimelineSpan(start + origin, max(end, start + 1) + origin)
    return SpanDetails(
        timeline.facts_in_view(rank, view), timeline.owners_in_view(rank, view), timeline.operations_in_view(rank, view)
    )


def find(rank: RankView, words: str, at: int, forwards: bool) -> dict[str, Any]:
    """Find slices whose name contains ``words``.

    The result has their number, and the next slice after ``at`` (or the last one before it) with its position. All sources are
    searched as one list in order of start. At its end, the search continues from the other end.
    """
    words = words.strip()[:MAX_SEARCH_CHARACTERS]
    if not words:
        raise UsageError("Type a part of a name to search for.")
    origin = timeline.extent(rank.recording).start_ns
    like = "%" + words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    ids = [
        r[0] for r in rank.recording.rows("SELECT name_id FROM names WHERE name ILIKE ? ESCAPE '\\' LIMIT ?", [like, MAX_NAMES])
    ]
    if not ids:
        return {"count": 0, "position": 0, "hit": None}
    id_list = ", ".join(map(str, ids))
    union = " UNION ALL ".join(
        _SQL["named"].format(source=s, rows=_matching_rows(s), of_device=_device_condition(rank, s), names=id_list) for s in _ID
    )
    order = "ORDER BY start_ns, source, id" if forwards else "ORDER BY start_ns DESC, source DESC, id DESC"
    for sign in ((">" if forwards else "<"), None):  # None continues from the other end.
        condition = f"start_ns {sign} {at + origin}" if sign else "true"
        hits = rank.recording.frame(f"SELECT * FROM ({union}) WHERE {condition} {order} LIMIT 1")
        if len(hits):
            break
    if hits.empty:
        return {"count": 0, "position": 0, "hit": None}
    hit = plain_rows(hits)[0]
    count, count_before = rank.recording.rows(
        f"SELECT count(*), count(*) FILTER ((start_ns, source, id) < ({hit['start_ns']}, '{hit['source']}', {hit['id']})) FROM ({union})"
    )[0]
    row = _single_row(rank, _SQL["place"].format(rows=timeline_sums.SLICES[hit["source"]]), id=hit["id"], origin=origin)
    return {"count": count, "position": count_before + 1, "hit": {**(row or {}), "source": hit["source"]}}


def _matching_rows(source: str) -> str:
    table = {"gpu": "gpu_ops", "operators": "cpu_ops", "calls": "runtime_calls", "python": "python_calls"}[source]
    device = "device" if source == "gpu" else "NULL::INTEGER AS device"
    return f"(SELECT {_ID[source]} AS id, {device}, name_id, start_ns FROM {table})"


def occurrences(rank: RankView, causes: tuple[str, ...], limit: int) -> list[tuple[int, int]]:
    """Return start and end of the ``limit`` longest gaps with time lost to ``causes``, in order of start."""
    origin = timeline.extent(rank.recording).start_ns
    rows = rank.rows(_SQL["occurrences"], causes=list(causes), most=limit, origin=origin)
    return sorted((int(start), int(end)) for start, end in rows)


def nth_longest_loss(rank: RankView, start: int, end: int, nth: int) -> tuple[int, int, str, str] | None:
    """Return start, length, owner and cause of the ``nth`` longest interval of lost time in a span.

    ``nth`` 0 is the longest. None if there are fewer intervals.
    """
    origin = timeline.extent(rank.recording).start_ns
    rows = rank.rows(_SQL["longest"], origin=origin, since=origin + start, until=origin + end, nth=nth)
    return rows[0] if rows else None


def longest_slice(rank: RankView, name: str, view: TimelineSpan, *, host: bool) -> tuple[str, int] | None:
    """Return source and id of the longest slice with this ``name`` that touches ``view`` (absolute ns).

    ``host`` selects slices of the host instead of the device. None if there is no such slice.
    """
    slices = " UNION ALL ".join(
        f"SELECT '{source}' AS source, {_ID[source]} AS id, start_ns, dur_ns FROM {table} WHERE {condition} "
        "AND name_id IN (SELECT name_id FROM names WHERE name = $name)"
        for source, table, condition in (
            (("operators", "cpu_ops", "true"), ("calls", "runtime_calls", "true"))
            if host
            else (("gpu", "gpu_ops", f"device = {int(rank.device)}"),)
        )
    )
    longest = rank.recording.rows(
        _SQL["longest_named"].format(rows=slices), {"name": name, "since": view.start_ns, "until": view.end_ns}
    )
    return (str(longest[0][0]), int(longest[0][1])) if longest else None

"""Sums for the timeline of a huge trace: short slices on a time grid, and a table of longer slices.

If the columns of a view are at least one grid cell wide, slices shorter than a cell are only drawn as parts of sums. Such views
read the sums instead of the slices. Closer views read the short slices that begin in the view, or less than a cell before it.
Slices longer than a cell do not overlap in a row, so there are few; they have their own table. The totals of a view by owner,
cause and name also come from sums and are exact: see ``parts_in_view``.
"""

from __future__ import annotations

import duckdb

# Most cells: a tile that reads slices covers at most 1,024 columns of half a cell, or 1/64 of the recording.
MAX_CELLS = 32_768
MAX_DEPTH = 999  # Deeper Python calls exceed the interpreter's own limit and come from a damaged trace.
NAME_CELLS = 512  # Fewer, because each cell has a row per name: 100 names make up to 51,200 rows.

# Every slice of the timeline: id (in its own table), device, lane (stream or thread), depth (number of enclosing slices), kind,
# name, start, duration.
# The owner of an operation is the alphabetically first owner of its name, except for those listed in owner_exceptions. Joining
# five million operations with 200 names takes 70 ms; joining them with another table of all operations takes 700 ms.
SLICES = {
    "gpu": """(WITH first_by_alphabet AS (SELECT name_id, min(owner) AS owner FROM kernel_classes GROUP BY name_id)
        SELECT g.gpu_op_id AS id, g.device, g.stream AS lane, 0::USMALLINT AS depth, coalesce(e.owner, u.owner) AS kind, g.name_id,
            g.start_ns, g.dur_ns
        FROM gpu_ops g JOIN first_by_alphabet u USING (name_id) LEFT JOIN owner_exceptions e USING (gpu_op_id))""",
    "operators": """(SELECT cpu_op_id AS id, NULL::INTEGER AS device, thread_id::BIGINT AS lane, depth::USMALLINT AS depth, kind, name_id,
        start_ns, dur_ns FROM cpu_ops)""",
    "calls": """(SELECT call_id AS id, NULL::INTEGER AS device, thread_id::BIGINT AS lane, 0::USMALLINT AS depth, k.kind, name_id,
        start_ns, dur_ns FROM runtime_calls JOIN call_kinds k USING (name_id))""",
    "python": """(SELECT python_call_id AS id, NULL::INTEGER AS device, thread_id::BIGINT AS lane, d.depth, 'python' AS kind, name_id,
        start_ns, dur_ns FROM python_calls JOIN python_depths d USING (python_call_id))""",
}
GPU = SLICES["gpu"]
HOST = "(SELECT NULL::INTEGER AS device, * FROM host_lanes)"
GAPS = "(SELECT device, 0::BIGINT AS lane, cause AS kind, NULL::INTEGER AS name_id, start_ns, end_ns - start_ns AS dur_ns, owner FROM gaps)"
SEGMENTS = "(SELECT device, 0::BIGINT AS lane, owner AS kind, NULL::INTEGER AS name_id, start_ns, end_ns - start_ns AS dur_ns, owner FROM segments)"

_CALL_KINDS = """
SELECT name_id, CASE
    WHEN name ILIKE '%synchronize%' THEN 'sync' WHEN name ILIKE '%malloc%' OR name ILIKE '%free%' THEN 'allocator'
    WHEN name ILIKE '%memcpy%' OR name ILIKE '%memset%' THEN 'copy' WHEN name ILIKE '%launch%' THEN 'launch' ELSE 'call' END AS kind
    FROM names WHERE name_id IN (SELECT name_id FROM runtime_calls)"""
_HOST_LANES = """
SELECT (thread_id * 3 + CASE kind WHEN 'annotation' THEN 0 ELSE 1 END)::BIGINT AS lane, kind, name_id, start_ns, dur_ns FROM cpu_ops
    WHERE (kind = 'annotation' AND name_id NOT IN (SELECT name_id FROM names WHERE starts_with(name, 'ProfilerStep')))
    OR (kind = 'op' AND (parent_id IS NULL OR parent_id IN (SELECT cpu_op_id FROM cpu_ops WHERE kind = 'annotation')))
UNION ALL
SELECT thread_id * 3 + 2, c.kind, name_id, start_ns, dur_ns FROM runtime_calls JOIN call_kinds c USING (name_id)"""

SUMS = """SELECT '{source}' AS source, device, lane, {depth} AS depth, kind, {owner} AS owner, ((start_ns - {origin}) // {cell})::INTEGER AS cell,
    sum(dur_ns)::BIGINT AS busy_ns, count(*) AS operations FROM {rows} WHERE dur_ns < {cell} GROUP BY ALL"""
LONG_PIECES = """SELECT '{source}' AS source, 0::BIGINT AS id, device, lane, 0::USMALLINT AS depth, kind, name_id, start_ns, dur_ns, owner
    FROM {rows} WHERE dur_ns >= {cell}"""
_NAME_SUMS = """SELECT '{source}' AS source, device, name_id, kind, ((start_ns - {origin}) // {cell})::INTEGER AS cell,
    sum(dur_ns)::BIGINT AS busy_ns, count(*) AS operations, max(dur_ns) AS longest_ns FROM {rows} WHERE dur_ns < {cell} GROUP BY ALL"""


def selects() -> dict[str, str]:
    """Return the SELECT of each table of timeline sums. A table comes after the tables that it reads."""
    origin = "(SELECT coalesce(first_ns, 0) FROM recording)"
    cell, name_cell = cell_sql(MAX_CELLS), cell_sql(NAME_CELLS)
    return {
        "call_kinds": _CALL_KINDS,
        "host_lanes": _HOST_LANES,
        "lane_sums": " UNION ALL ".join(_lane_sums(origin, cell).values()),
        "long_slices": " UNION ALL ".join(_long_slices(cell).values()),
        "name_sums": " UNION ALL ".join(_name_sums(origin, name_cell).values()),
    }


def _lane_sums(origin: str, cell: str) -> dict[str, str]:
    grid = {"origin": origin, "cell": cell}
    slices = {
        source: SUMS.format(source=source, depth="depth", owner="NULL", rows=rows, **grid) for source, rows in SLICES.items()
    }
    pieces = {"gaps": GAPS, "segments": SEGMENTS}
    return slices | {
        source: SUMS.format(source=source, depth="0::USMALLINT", owner="owner", rows=rows, **grid)
        for source, rows in pieces.items()
    }


def _long_slices(cell: str) -> dict[str, str]:
    slices = {
        source: f"SELECT '{source}' AS source, *, NULL::VARCHAR AS owner FROM {rows} WHERE dur_ns >= {cell}"
        for source, rows in SLICES.items()
    }
    return slices | {
        source: LONG_PIECES.format(source=source, rows=rows, cell=cell)
        for source, rows in (("gaps", GAPS), ("segments", SEGMENTS))
    }


def _name_sums(origin: str, cell: str) -> dict[str, str]:
    return {
        rows: _NAME_SUMS.format(source=source, origin=origin, cell=cell, rows=rows)
        for source, rows in (("gpu", GPU), ("host", HOST))
    }


def store_depths(con: duckdb.DuckDBPyConnection) -> None:
    """Store the depth of each Python call: the number of calls of its thread that enclose it.

    The depth is the number of calls that have begun minus the number that have ended. SQL cannot compute it efficiently.
    """
    import numpy as np  # A viewer's query process needs only the SQL above, and pandas takes a second to load.
    import pandas as pd

    calls = con.execute(
        "SELECT python_call_id AS id, thread_id AS thread, start_ns AS start, start_ns + greatest(dur_ns, 1) AS end FROM python_calls ORDER BY 1"
    ).fetchnumpy()
    if not len(calls["id"]):
        return
    depth = np.zeros(len(calls["id"]), np.int64)
    for thread in np.unique(calls["thread"]):
        calls_of_thread = np.flatnonzero(np.asarray(calls["thread"]) == thread)
        start, end = np.asarray(calls["start"])[calls_of_thread], np.asarray(calls["end"])[calls_of_thread]
        depth[calls_of_thread] = np.arange(len(calls_of_thread)) - np.searchsorted(np.sort(end), start, side="right")
    frame = pd.DataFrame({"python_call_id": calls["id"], "depth": np.clip(depth, 0, MAX_DEPTH).astype(np.uint16)})
    con.register("incoming", frame)
    con.execute("INSERT INTO d.python_depths BY NAME SELECT * FROM incoming")
    con.unregister("incoming")


def cell_ns(recording_ns: int, cells: int = MAX_CELLS) -> int:
    """Return the width of a cell for a recording of this length.

    It is a power of two, so that a column of a tile is a multiple of a cell.
    """
    return 1 << max(-(-recording_ns // cells) - 1, 0).bit_length()


def cell_sql(cells: int) -> str:
    """Return an SQL expression for ``cell_ns`` of the recording that a query reads."""
    steps = f"(coalesce(last_ns, 1) - coalesce(first_ns, 0) + {cells - 1}) // {cells} - 1"
    return f"(SELECT 1::BIGINT << length(ltrim(bin(greatest({steps}, 0)), '0')) FROM recording)"


def parts_in_view(
    rows: str,
    sums: str,
    long: str,
    keys: str,
    where: str,
    *,
    origin_ns: int,
    cell: int,
    start_ns: int,
    end_ns: int,
    longest: bool = False,
) -> str:
    """Return the SELECT for the rows between two times.

    Its columns are ``keys``, busy_ns (the parts in view), operations and, if ``longest``, longest_ns. ``sums`` has the rows shorter
    than a cell, summed by the cell in which they start. It is used for cells whose rows all end in view. At both borders of the
    view, the rows themselves are read. Rows at least as long as a cell are always read from ``long``.
    """
    first, behind = -(-(start_ns - origin_ns) // cell), (end_ns - origin_ns) // cell - 1
    low, high = (origin_ns + first * cell, origin_ns + behind * cell) if behind > first else (end_ns, end_ns)
    part = f"least(start_ns + dur_ns, {end_ns}) - greatest(start_ns, {start_ns})"
    piece = f"SELECT {keys}, {part} AS busy_ns, 1::BIGINT AS operations{', dur_ns AS longest_ns' if longest else ''}"
    read = f"{piece} FROM {rows} s WHERE {where}"
    short = f"dur_ns < {cell} AND start_ns + dur_ns > {start_ns}"  # A row of these starts less than a cell before the view.
    return f"""SELECT {keys}, busy_ns, operations{", longest_ns" if longest else ""} FROM {sums} s WHERE {where}
            AND cell >= {first} AND cell < {behind}
        UNION ALL {piece} FROM {long} s WHERE {where} AND dur_ns >= {cell} AND start_ns < {end_ns} AND start_ns + dur_ns > {start_ns}
        UNION ALL {read} AND {short} AND start_ns > {start_ns - cell} AND start_ns < {low}
        UNION ALL {read} AND {short} AND start_ns >= {high} AND start_ns < {end_ns}"""

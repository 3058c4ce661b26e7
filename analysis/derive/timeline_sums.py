"""What the timeline needs of a huge trace, derived once: host lanes without what they hide, and sums of short pieces on a grid of time.

An operation shorter than a cell of the grid can only be drawn as part of a sum in any view whose columns are at least a cell wide, so
such views read the sums instead of the operations. Longer ones do not overlap on their lane, hence are few, and are read themselves.
What a view comes to, by owner, cause and name, is read from sums likewise, exactly: see ``parts_in_view``.
"""

from __future__ import annotations

import duckdb

CELLS = 8192  # of the whole recording: views down to a fourteenth of it read sums, nearer ones a fourteenth of the operations
NAME_CELLS = 256  # coarser, since a cell holds every name: a hundred names make 25,000 rows

# The owner of a name and a short list of exceptions: five million operations join two hundred names in 70 ms, and themselves in 700.
GPU = """(WITH usual AS (SELECT name_id, min(owner) AS owner FROM kernel_classes GROUP BY name_id)
    SELECT g.device, g.stream AS lane, coalesce(e.owner, u.owner) AS kind, g.name_id, g.start_ns, g.dur_ns
    FROM gpu_ops g JOIN usual u USING (name_id) LEFT JOIN owner_exceptions e USING (gpu_op_id))"""
HOST = "(SELECT NULL::INTEGER AS device, * FROM host_lanes)"
GAPS = "(SELECT device, 0::BIGINT AS lane, cause AS kind, NULL::INTEGER AS name_id, start_ns, end_ns - start_ns AS dur_ns, owner FROM gaps)"
SEGMENTS = "(SELECT device, 0::BIGINT AS lane, owner AS kind, NULL::INTEGER AS name_id, start_ns, end_ns - start_ns AS dur_ns, owner FROM segments)"

_HOST_LANES = """
INSERT INTO d.host_lanes
SELECT thread_id * 3 + CASE kind WHEN 'annotation' THEN 0 ELSE 1 END AS lane, kind, name_id, start_ns, dur_ns FROM cpu_ops
    WHERE (kind = 'annotation' AND name_id NOT IN (SELECT name_id FROM names WHERE starts_with(name, 'ProfilerStep')))
    OR (kind = 'op' AND (parent_id IS NULL OR parent_id IN (SELECT cpu_op_id FROM cpu_ops WHERE kind = 'annotation')))
UNION ALL
SELECT thread_id * 3 + 2, c.kind, name_id, start_ns, dur_ns FROM runtime_calls JOIN (SELECT name_id, CASE
    WHEN name ILIKE '%synchronize%' THEN 'sync' WHEN name ILIKE '%malloc%' OR name ILIKE '%free%' THEN 'allocator'
    WHEN name ILIKE '%memcpy%' OR name ILIKE '%memset%' THEN 'copy' WHEN name ILIKE '%launch%' THEN 'launch' ELSE 'call' END AS kind
    FROM names) c USING (name_id)
ORDER BY start_ns"""

SUMS = """SELECT '{source}' AS source, device, lane, kind, {owner} AS owner, ((start_ns - {origin}) // {cell})::INTEGER AS cell,
    sum(dur_ns)::BIGINT AS busy_ns, count(*) AS operations FROM {rows} WHERE dur_ns < {cell} GROUP BY ALL"""
_NAME_SUMS = """SELECT '{source}' AS source, device, name_id, kind, ((start_ns - {origin}) // {cell})::INTEGER AS cell,
    sum(dur_ns)::BIGINT AS busy_ns, count(*) AS operations, max(dur_ns) AS longest_ns FROM {rows} WHERE dur_ns < {cell} GROUP BY ALL"""


def store(con: duckdb.DuckDBPyConnection) -> None:
    """Fill ``host_lanes`` and the sums of the derived file that ``con`` sees as ``d``; all else that it holds must be there."""
    con.execute(_HOST_LANES)
    first, last = con.execute("SELECT coalesce(first_ns, 0), coalesce(last_ns, 1) FROM recording").fetchall()[0]
    for source, rows in (("gpu", GPU), ("host", HOST), ("gaps", GAPS), ("segments", SEGMENTS)):
        owner = "owner" if source in ("gaps", "segments") else "NULL"
        sums = SUMS.format(source=source, owner=owner, origin=first, cell=cell_ns(last - first), rows=rows)
        con.execute(f"INSERT INTO d.lane_sums BY NAME {sums} ORDER BY device, lane, cell")
    for source, rows in (("gpu", GPU), ("host", HOST)):
        sums = _NAME_SUMS.format(source=source, origin=first, cell=cell_ns(last - first, NAME_CELLS), rows=rows)
        con.execute(f"INSERT INTO d.name_sums BY NAME {sums} ORDER BY device, cell")


def cell_ns(recording_ns: int, cells: int = CELLS) -> int:
    """Return the width of a cell for a recording as long as this."""
    return max(-(-recording_ns // cells), 1)


def parts_in_view(
    rows: str, sums: str, keys: str, where: str, origin_ns: int, cell: int, start_ns: int, end_ns: int, longest: bool = False
) -> str:
    """Return the SELECT of what lies between two times: ``keys``, busy_ns (the parts in view), operations and, if wanted, longest_ns.

    ``sums`` holds what of ``rows`` is shorter than a cell, by the cell in which it starts. Cells whose pieces must all end in view are
    taken from there; the pieces themselves are read at the view's two borders, and those as long as a cell, wherever they are.
    """
    first, behind = -(-(start_ns - origin_ns) // cell), (end_ns - origin_ns) // cell - 1
    low, high = (origin_ns + first * cell, origin_ns + behind * cell) if behind > first else (end_ns, end_ns)
    part = f"least(start_ns + dur_ns, {end_ns}) - greatest(start_ns, {start_ns})"
    read = f"SELECT {keys}, {part} AS busy_ns, 1::BIGINT AS operations{', dur_ns AS longest_ns' if longest else ''} FROM {rows} s WHERE {where}"
    short = f"dur_ns < {cell} AND start_ns + dur_ns > {start_ns}"  # hence it starts less than a cell before the view
    return f"""SELECT {keys}, busy_ns, operations{", longest_ns" if longest else ""} FROM {sums} s WHERE {where}
            AND cell >= {first} AND cell < {behind}
        UNION ALL {read} AND dur_ns >= {cell} AND start_ns < {end_ns} AND start_ns + dur_ns > {start_ns}
        UNION ALL {read} AND {short} AND start_ns > {start_ns - cell} AND start_ns < {low}
        UNION ALL {read} AND {short} AND start_ns >= {high} AND start_ns < {end_ns}"""

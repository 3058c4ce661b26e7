"""How a derived file is laid out: the sums that only screens read are tables where adding up takes long, and views where the recording is small.

Thousands of ranks come as small recordings that hardly anyone opens: to store these sums would take a third of their derivation.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from sawtooth.analysis.derive import rollups
from sawtooth.analysis.derive import timeline_sums as timeline_store

DERIVED_SQL = Path(__file__).with_name("derived.sql")
FEW_EVENTS = 100_000  # of host and GPU: a screen adds them up in milliseconds

_COLUMN = re.compile(r"(\w+) ([A-Z]+)(?: NOT NULL)?(?:,|$)")


def events_of(place: str = "") -> str:
    """Return how many events of host and GPU a recording has, as SQL; ``place`` stands before its tables' names."""
    return " + ".join(
        f"(SELECT count(*) FROM {place}{table})" for table in ("cpu_ops", "gpu_ops", "runtime_calls", "python_calls")
    )


def layout_of(events: int) -> str:
    """Return the statements that lay out the derived file of a recording of so many events; its tables ``r`` must be attached."""
    return _with_views() if events <= FEW_EVENTS else DERIVED_SQL.read_text(encoding="utf-8")


@cache
def _with_views() -> str:
    sql = DERIVED_SQL.read_text(encoding="utf-8")
    views = {"launched": rollups.LAUNCHED, "flop_work": rollups.FLOP_WORK, **timeline_store.views()}
    return sql + "\n".join(_view(sql, name, select) for name, select in views.items())


def _view(sql: str, table: str, select: str) -> str:
    """Return the statements that put a view with the same columns, types and comments in the place of ``table``."""
    definition = re.search(rf"CREATE TABLE {table} \((.*?)\);", sql, re.DOTALL)
    assert definition is not None, table
    columns = _COLUMN.findall(" ".join(definition[1].split()))
    names, typed = ", ".join(name for name, _ in columns), ", ".join(f"{name}::{kind} AS {name}" for name, kind in columns)
    comments = "\n".join(re.findall(rf"^COMMENT ON (?:TABLE|COLUMN) {table}\b.*;$", sql, re.MULTILINE))
    view = f"DROP TABLE {table};\nCREATE VIEW {table} AS SELECT {typed} FROM ({select}) AS made({names});\n"
    return view + comments.replace(f"ON TABLE {table}", f"ON VIEW {table}")

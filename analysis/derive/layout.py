"""How a derived file is laid out: the sums that only screens read are views, for which a large recording has tables in a file beside it (``sums``).

No first answer reads these sums, and to store them takes a third of a derivation. Thousands of ranks come as small recordings that hardly anyone opens.
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


def summed() -> dict[str, str]:
    """Return of each table of sums the SELECT that gives its rows, each after those that it reads."""
    return {"launched": rollups.LAUNCHED, "flop_work": rollups.FLOP_WORK, **timeline_store.selects()}


@cache
def derived_layout() -> str:
    """Return the statements that lay out a derived file; the recording's tables must be attached."""
    sql = DERIVED_SQL.read_text(encoding="utf-8")
    return sql + "\n".join(_view(sql, name, select) for name, select in summed().items())


@cache
def sums_layout() -> str:
    """Return the statements that lay out a file of sums."""
    sql = DERIVED_SQL.read_text(encoding="utf-8")
    return "\n".join(f"CREATE TABLE {name} ({_columns(sql, name)});\n{_comments(sql, name)}" for name in summed())


def _view(sql: str, table: str, select: str) -> str:
    """Return the statements that put a view with the same columns, types and comments in the place of ``table``."""
    columns = _COLUMN.findall(" ".join(_columns(sql, table).split()))
    names, typed = ", ".join(name for name, _ in columns), ", ".join(f"{name}::{kind} AS {name}" for name, kind in columns)
    view = f"DROP TABLE {table};\nCREATE VIEW {table} AS SELECT {typed} FROM ({select}) AS made({names});\n"
    return view + _comments(sql, table).replace(f"ON TABLE {table}", f"ON VIEW {table}")


def _columns(sql: str, table: str) -> str:
    definition = re.search(rf"CREATE TABLE {table} \((.*?)\);", sql, re.DOTALL)
    assert definition is not None, table
    return definition[1]


def _comments(sql: str, table: str) -> str:
    return "\n".join(re.findall(rf"^COMMENT ON (?:TABLE|COLUMN) {table}\b.*;$", sql, re.MULTILINE))

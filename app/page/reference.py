"""The content of the Reference screen.

The texts of rules are their docstrings; those of columns are the comments of both schemas.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import duckdb

from sawtooth.analysis.derive.layout import derived_layout
from sawtooth.analysis.findings import rules as rules_folder
from sawtooth.app.format import count
from sawtooth.ingest.schema import schema_sql

HEADINGS = ("What it checks", "Why it costs time", "What to do", "When it is wrong", "References")

KINDS = (("metric", "metrics"), ("owner or cause", "owners and causes"), ("rule", "rules"), ("column", "columns"))

Row = TypeVar("Row", bound=tuple[str, ...])
_COLUMNS = "SELECT table_name, column_name, data_type, coalesce(comment, '') FROM duckdb_columns() WHERE NOT internal ORDER BY table_oid, column_index"


@dataclass(frozen=True)
class Column:
    """A column of a recording or of a derived file."""

    file: str
    table: str
    column: str
    type: str
    comment: str


@dataclass(frozen=True)
class RuleDocumentation:
    """A rule's documentation.

    ``text`` is the docstring of its module, and ``title`` the first sentence of it.
    """

    slug: str
    title: str
    text: str

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The pairs of heading and text, in the order of the docstring."""
        pieces = re.split(rf"^({'|'.join(HEADINGS)})\s*:?\s*(?:\n-+\s*)?$", self.text, flags=re.MULTILINE)
        pairs = [(pieces[i], pieces[i + 1].strip()) for i in range(1, len(pieces) - 1, 2)]
        return pairs or [("What it checks", self.text.strip())]


@lru_cache(maxsize=1)
def columns() -> list[Column]:
    """Return every column of both schemas, in the order of their declaration."""
    listed: dict[tuple[str, str], Column] = {}
    with duckdb.connect(":memory:") as con:
        for file, sql in (("recording", schema_sql()), ("derived", derived_layout())):
            con.execute(sql)
            views = dict(con.execute("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal").fetchall())
            for table, name, kind, comment in con.execute(_COLUMNS).fetchall():
                # A column of a view without a comment has the comment of the column that the view reads.
                read = re.findall(r"\w+", views.get(table, "").rpartition("FROM")[2])
                inherited = (listed[source, name].comment for source in read if (source, name) in listed)
                listed.setdefault((table, name), Column(file, table, name, kind, comment or next(inherited, "")))
    return list(listed.values())


@lru_cache(maxsize=1)
def rules() -> list[RuleDocumentation]:
    """Return the documentation of every rule module, sorted by title."""
    documented = []
    for info in pkgutil.iter_modules(rules_folder.__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"sawtooth.analysis.findings.rules.{info.name}")
            text = (module.__doc__ or "").strip()
            documented.append(RuleDocumentation(info.name.replace("_", "-"), text.split("\n")[0].rstrip("."), text))
    return sorted(documented, key=lambda rule: rule.title)


def matching(rows: Sequence[Row], searched: str) -> list[Row]:
    """Return the rows whose cells contain every word of ``searched``, ignoring case."""
    words = searched.lower().split()
    return [row for row in rows if all(any(word in cell.lower() for cell in row) for word in words)]


def found_in(searched: str, counts: Iterable[int]) -> str:
    """Return where ``searched`` is found, such as "“exposed” is in 3 metrics and 5 rules".

    ``counts`` are the numbers of hits in the order of ``KINDS``.
    """
    places = [f"{count(n)} {singular if n == 1 else plural}" for n, (singular, plural) in zip(counts, KINDS, strict=True) if n]
    if not places:
        return f"Nothing here contains “{searched}”"
    *first_places, last = places
    before = f"{', '.join(first_places)} and " if first_places else ""
    return f"“{searched}” is in {before}{last}"

"""What the Reference screen prints: rules from their docstrings, columns from the two schemas' comments."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import analysis
import analysis.rules
from ingest.schema import SCHEMA_SQL

DERIVED_SQL = Path(analysis.__file__).with_name("derived.sql")
HEADINGS = ("What it checks", "Why it costs time", "What to do", "When it is wrong", "References")

_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?)\n?\);", re.DOTALL)
_COMMENT = re.compile(r"COMMENT ON COLUMN (\w+)\.(\w+) IS '((?:[^']|'')*)'")


@dataclass(frozen=True)
class Column:
    """A column of a recording or of a derived file."""

    file: str
    table: str
    column: str
    type: str
    comment: str


@dataclass(frozen=True)
class Rule:
    """A rule's documentation: its first sentence and its sections by heading."""

    slug: str
    title: str
    text: str

    @property
    def sections(self) -> list[tuple[str, str]]:
        """Heading and text, in the order of the docstring."""
        found = re.split(rf"^({'|'.join(HEADINGS)})\s*:?\s*(?:\n-+\s*)?$", self.text, flags=re.MULTILINE)
        pairs = [(found[i], found[i + 1].strip()) for i in range(1, len(found) - 1, 2)]
        return pairs or [("What it checks", self.text.strip())]


@lru_cache(maxsize=1)
def columns() -> list[Column]:
    """Return every column of both schemas, in the order they are declared."""
    found = []
    for file, path in (("recording", SCHEMA_SQL), ("derived", DERIVED_SQL)):
        sql = path.read_text(encoding="utf-8")
        comments = {(table, column): text.replace("''", "'") for table, column, text in _COMMENT.findall(sql)}
        for table, body in _TABLE.findall(sql):
            for part in re.split(r",(?![^()]*\))", body):
                name, kind = part.split()[:2]
                found.append(Column(file, table, name, kind, comments.get((table, name), "")))
    return found


@lru_cache(maxsize=1)
def rules() -> list[Rule]:
    """Return every rule module's documentation, by slug."""
    found = []
    for info in pkgutil.iter_modules(analysis.rules.__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"analysis.rules.{info.name}")
            text = (module.__doc__ or "").strip()
            found.append(Rule(info.name.replace("_", "-"), text.split("\n")[0].rstrip("."), text))
    return sorted(found, key=lambda rule: rule.slug)


def matching(rows: Sequence[tuple[str, ...]], wanted: str) -> list[tuple[str, ...]]:
    """Return the rows that hold every word of ``wanted`` in any cell, whatever its case."""
    words = wanted.lower().split()
    return [row for row in rows if all(any(word in cell.lower() for cell in row) for word in words)]

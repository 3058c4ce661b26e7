"""Every sampled quantity, found by column or by a source's name of it, and the check of its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.ingest.quantities.board import BOARD
from sawtooth.ingest.quantities.counters import COUNTERS
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.quantity import Quantity, Source

QUANTITIES: tuple[Quantity, ...] = BOARD + COUNTERS
BY_COLUMN: Mapping[str, Quantity] = {quantity.column: quantity for quantity in QUANTITIES + HOST}
SAMPLE_COLUMNS = tuple(quantity.column for quantity in QUANTITIES)  # the value columns of ``samples``, in its order
HOST_COLUMNS = tuple(quantity.column for quantity in HOST)  # those of ``host_samples``
INTEGER_COLUMNS = frozenset(quantity.column for quantity in QUANTITIES if quantity.whole)
GAP_PERIODS = 3  # more than three periods without a sample is a hole that nobody may draw a line across


def names_in(*sources: Source) -> dict[str, tuple[str, float]]:
    """Return a source's name → (column, factor to the column's unit), of each of ``sources``."""
    return {
        name: (quantity.column, factor)
        for quantity in QUANTITIES
        for source in sources
        for name, factor in quantity.names.get(source, {}).items()
    }


def possible(column: str, value: float) -> float | None:
    """Return a value of a column, None where it is no number or outside what the quantity can be."""
    limits = BY_COLUMN[column].range
    return value if limits.low <= value <= limits.high and not isinstance(value, bool) else None


def possible_ones(column: str, values: Sequence[float | None]) -> tuple[list[float | None], int]:
    """Return the values of a column with None for those that ``possible`` refuses, and how many those are."""
    kept = [None if value is None else possible(column, value) for value in values]
    return kept, kept.count(None) - list(values).count(None)


def samples_sql(table: str = "samples", quantities: Sequence[Quantity] = QUANTITIES) -> tuple[str, str]:
    """Return what a table of samples declares for its quantities: columns, and their comments."""
    columns = ",\n    ".join(f"{q.column} {'BIGINT' if q.whole else 'DOUBLE'}" for q in quantities)
    comments = [f"COMMENT ON COLUMN {table}.{q.column} IS '{q.about.replace(chr(39), 2 * chr(39))}';" for q in quantities]
    return columns, "\n".join(comments)

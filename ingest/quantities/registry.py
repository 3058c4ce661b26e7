"""All sampled quantities by column or by a source's name, and the check of their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.ingest.quantities.board import BOARD
from sawtooth.ingest.quantities.counters import COUNTERS
from sawtooth.ingest.quantities.health import HEALTH
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.quantity import Quantity, Source

QUANTITIES: tuple[Quantity, ...] = BOARD + COUNTERS + HEALTH
BY_COLUMN: Mapping[str, Quantity] = {quantity.column: quantity for quantity in QUANTITIES + HOST}
SAMPLE_COLUMNS = tuple(quantity.column for quantity in QUANTITIES)  # the value columns of ``samples``, in its order
HOST_COLUMNS = tuple(quantity.column for quantity in HOST)  # those of ``host_samples``
INTEGER_COLUMNS = frozenset(quantity.column for quantity in QUANTITIES if quantity.whole)
GAP_PERIODS = 3  # more than three periods without a sample are a telemetry gap, across which no line is drawn


def names_in(*sources: Source) -> dict[str, tuple[str, float]]:
    """Return a source's name → (column, factor to the column's unit) for each of ``sources``."""
    return {
        name: (quantity.column, factor)
        for quantity in QUANTITIES
        for source in sources
        for name, factor in quantity.names.get(source, {}).items()
    }


def possible(column: str, value: float) -> float | None:
    """Return a value of a column; None if it is not a number or outside the quantity's range."""
    limits = BY_COLUMN[column].range
    return value if limits.low <= value <= limits.high and not isinstance(value, bool) else None


def possible_ones(column: str, values: Sequence[float | None]) -> tuple[list[float | None], int]:
    """Return a column's values with None for impossible ones, and the number of these."""
    kept = [None if value is None else possible(column, value) for value in values]
    return kept, kept.count(None) - list(values).count(None)


def samples_sql(table: str = "samples", quantities: Sequence[Quantity] = QUANTITIES) -> tuple[str, str]:
    """Return the declarations of a table of samples for its quantities: columns, and their comments."""
    columns = ",\n    ".join(f"{q.column} {'BIGINT' if q.whole else 'DOUBLE'}" for q in quantities)
    comments = [f"COMMENT ON COLUMN {table}.{q.column} IS '{q.about.replace(chr(39), 2 * chr(39))}';" for q in quantities]
    return columns, "\n".join(comments)

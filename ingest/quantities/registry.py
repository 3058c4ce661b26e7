"""All sampled quantities, by column or by a source's name, and the check of their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.ingest.quantities.board import BOARD
from sawtooth.ingest.quantities.counters import COUNTERS
from sawtooth.ingest.quantities.health import HEALTH
from sawtooth.ingest.quantities.host import HOST
from sawtooth.ingest.quantities.quantity import Quantity, Source

QUANTITIES: tuple[Quantity, ...] = BOARD + COUNTERS + HEALTH
BY_COLUMN: Mapping[str, Quantity] = {quantity.column: quantity for quantity in QUANTITIES + HOST}
SAMPLE_COLUMNS = tuple(quantity.column for quantity in QUANTITIES)  # The value columns of ``samples``, in its order.
HOST_COLUMNS = tuple(quantity.column for quantity in HOST)  # These are the value columns of ``host_samples``.
INTEGER_COLUMNS = frozenset(quantity.column for quantity in QUANTITIES if quantity.is_integer)
GAP_PERIODS = 3  # More than three periods without a sample are a telemetry gap. Charts draw no line across it.


def names_in(*sources: Source) -> dict[str, tuple[str, float]]:
    """Return the column, and the factor to the column's unit, by each name of a quantity in ``sources``."""
    return {
        name: (quantity.column, factor)
        for quantity in QUANTITIES
        for source in sources
        for name, factor in quantity.names.get(source, {}).items()
    }


def possible_value(column: str, value: float) -> float | None:
    """Return ``value``; None if it is not a number, or outside the range of the column's quantity."""
    limits = BY_COLUMN[column].range
    return value if limits.low <= value <= limits.high and not isinstance(value, bool) else None


def possible_ones(column: str, values: Sequence[float | None]) -> tuple[list[float | None], int]:
    """Return ``values`` with None for impossible values, and the number of impossible values."""
    valid = [None if value is None else possible_value(column, value) for value in values]
    return valid, valid.count(None) - list(values).count(None)


def samples_sql(table: str = "samples", quantities: Sequence[Quantity] = QUANTITIES) -> tuple[str, str]:
    """Return SQL for a table of samples: declarations of the columns, and statements for their comments."""
    columns, comments = [], []
    for quantity in quantities:
        columns.append(f"{quantity.column} {'BIGINT' if quantity.is_integer else 'DOUBLE'}")
        quoted = quantity.about.replace("'", "''")
        comments.append(f"COMMENT ON COLUMN {table}.{quantity.column} IS '{quoted}';")
    return ",\n    ".join(columns), "\n".join(comments)

"""The interface of a telemetry format: its name, how to recognize it, and how to read it into columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.errors import ImportDiagnostic
from sawtooth.ingest.quantities.registry import INTEGER_COLUMNS

INTEGERS = INTEGER_COLUMNS | {"device", "time_ns"}


class SampleGap(NamedTuple):
    """A row of ``sample_gaps``: a time range without samples of ``device``."""

    device: int
    start_ns: int
    end_ns: int
    reason: str | None = None


@dataclass
class TelemetryTables:
    """The result of a reader.

    ``columns`` has arrays of equal length, by column of the table ``samples``. ``device`` and ``time_ns`` are required. The columns of
    INTEGERS are int64, with NULL for missing values. Other columns are float64, with NaN for missing values.

    ``devices`` and ``diagnostics`` are rows of the tables with these names. ``host_columns`` has the columns of the table
    ``host_samples``. ``gaps`` are the telemetry gaps that the reader knows. If ``gaps_complete`` is false, further gaps are inferred from
    the times of all rows, which fails for columns with different sampling rates.
    """

    columns: dict[str, NDArray[Any]]
    devices: list[dict[str, Any]] = field(default_factory=list)
    host: str | None = None
    metadata: str = "{}"
    truncated: bool = False
    clock: str = "unix"
    diagnostics: list[ImportDiagnostic] = field(default_factory=list)
    gaps: list[SampleGap] = field(default_factory=list)
    host_columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    gaps_complete: bool = False


@dataclass(frozen=True)
class Reader:
    """One telemetry format.

    ``sniff`` gets the first uncompressed bytes, ``read`` the lines of the whole source. ``takes_dates`` says that ``read`` accepts lines
    with only a date. Such a date is the time of the following samples if they have no times.
    """

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Iterator[bytes]], TelemetryTables]
    takes_dates: bool = False


def column(values: list[Any], name: str) -> NDArray[Any]:
    """Return ``values`` (numbers or None) as the array that column ``name`` needs."""
    if name in INTEGERS:
        return np.array([NULL if value is None or abs(value) >= 1 << 63 else round(value) for value in values], np.int64)
    return np.array([np.nan if value is None else value for value in values], np.float64)

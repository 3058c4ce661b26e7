"""What a telemetry format is: a name, how to know it, and how to read it into columns of the store's ``samples``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.quantities.registry import INTEGER_COLUMNS

INTEGERS = INTEGER_COLUMNS | {"device", "time_ns"}


@dataclass
class Telemetry:
    """What a reader returns.

    ``columns`` holds equally long arrays by the names of table ``samples``: int64 with NULL (sawtooth.ingest.decode.NULL) for
    INTEGERS, else float64 with NaN, for what was not recorded; ``device`` and ``time_ns`` are required. ``devices``
    are rows of table ``devices``; ``host_columns`` columns of table ``host_samples``; ``diagnostics`` rows of that table; ``gaps`` rows of ``sample_gaps`` the source names itself.
    """

    columns: dict[str, NDArray[Any]]
    devices: list[dict[str, Any]] = field(default_factory=list)
    host: str | None = None
    metadata: str = "{}"
    truncated: bool = False
    clock: str = "unix"
    diagnostics: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    host_columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    gaps_complete: bool = False  # the reader found every hole itself: rows of several rates hide or feign them


@dataclass(frozen=True)
class Reader:
    """One telemetry format. ``sniff`` looks at the first uncompressed bytes; ``read`` gets the lines of the whole source."""

    name: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Iterator[bytes]], Telemetry]


def column(values: list[Any], name: str) -> NDArray[Any]:
    """Return ``values`` (numbers or None) as the array that column ``name`` needs."""
    if name in INTEGERS:
        return np.array([NULL if v is None or abs(v) >= 1 << 63 else round(v) for v in values], np.int64)
    return np.array([np.nan if v is None else v for v in values], np.float64)

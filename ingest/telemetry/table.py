"""The common table of all telemetry formats: rows of ``samples``, devices, gaps and diagnostics."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.errors import ImportDiagnostic
from sawtooth.ingest.quantities.registry import (
    BY_COLUMN,
    GAP_PERIODS,
    HOST_COLUMNS,
    INTEGER_COLUMNS,
    SAMPLE_COLUMNS,
    possible_value,
)
from sawtooth.ingest.telemetry.reader import SampleGap, TelemetryTables

BUFFER_GAP_NS = 3_000_000_000  # A longer gap in a driver's buffer means that a read failed. Polled values fill the gap.
MIN_GAP_NS = 1_000_000  # Shorter gaps are jitter.
MAX_DEVICES = 4096  # Larger device numbers are damage, because hosts have at most some dozens of GPUs.
END_NS = 1 << 62  # This time is in the year 2116. Later times are impossible.
# The key, severity and sentence of the diagnostic for impossible values. DCGM writes "not measured" as numbers near 2^31, 2^47 or 2^63.
BLANK_NOTE = "blank_value", "info", "Blank or impossible values were left out as not recorded."
UNREADABLE = "Lines that are not whole samples were left out."


class Series:
    """Times and values of one column of one device, in order of arrival. A value takes 16 bytes."""

    def __init__(self) -> None:
        self.times = array("q")
        self.values = array("d")

    def add(self, time_ns: int, value: float) -> None:
        """Append one value."""
        self.times.append(time_ns)
        self.values.append(value)

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return times and values, sorted by time. Of several values with one time, the first is returned."""
        times, values = np.array(self.times, np.int64), np.array(self.values, np.float64)
        if (np.diff(times) > 0).all():
            return times, values
        times, first = np.unique(times, return_index=True)
        return times, values[first]


@dataclass
class SampleTable:
    """Values in any order; ``columns`` sorts them and removes duplicates.

    * ``clock`` is 'unix', 'local' or 'unknown'.
    * ``devices`` has rows of the table ``devices``, as dicts.
    * ``polled`` has the values that a tool read at its interval, by (device, column).
    * ``buffered`` has the values of a driver's buffer, by (device, column). They have denser times and replace polled values.
    * ``host_series`` has the host's values by column.
    * ``places`` has for each device the host, and the device's number or UUID on this host.
    """

    clock: str = "unix"
    host: str | None = None
    driver_version: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)
    polled: dict[tuple[int, str], Series] = field(default_factory=dict)
    buffered: dict[tuple[int, str], Series] = field(default_factory=dict)
    host_series: dict[str, Series] = field(default_factory=dict)
    gaps: list[SampleGap] = field(default_factory=list)
    diagnostics: dict[str, ImportDiagnostic] = field(default_factory=dict)
    places: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, device: int, time_ns: int, values: dict[str, float | None]) -> None:
        """Add values of one device and time.

        None means not recorded. Impossible values are left out and counted.
        """
        if not self._is_possible(device, time_ns):
            return
        for column, value in values.items():
            if value is not None:
                self._append(self.polled, (device, column), time_ns, column, value)

    def add_buffered(self, device: int, time_ns: int, column: str, value: float) -> None:
        """Add a value of a driver's buffer. Impossible values are left out and counted."""
        if self._is_possible(device, time_ns):
            self._append(self.buffered, (device, column), time_ns, column, value)

    def _is_possible(self, device: object, time_ns: object) -> bool:
        """Return whether device and time are possible; if not, note the line as unreadable."""
        if isinstance(device, int) and isinstance(time_ns, int) and 0 <= device < MAX_DEVICES and 0 <= time_ns < END_NS:
            return True
        self.note("line_unreadable", "data_loss", UNREADABLE, example=f"device {device}, {time_ns} ns")
        return False

    def add_host(self, time_ns: int, values: dict[str, Any]) -> None:
        """Add values of the host.

        Columns outside HOST_COLUMNS come from a later version and are ignored.
        """
        for column, value in values.items():
            if column in HOST_COLUMNS and value is not None and 0 <= time_ns < END_NS:
                self._append(self.host_series, column, time_ns, column, value)

    def _append(self, store: dict[Any, Series], key: Any, time_ns: int, column: str, value: float) -> None:
        if (valid := possible_value(column, value)) is None:
            self.note(*BLANK_NOTE, example=f"{column} = {value!r}")
            return
        if key not in store:
            store[key] = Series()
        store[key].add(time_ns, valid)

    def note(self, key: str, severity: str, sentence: str, *, example: str | None = None, count: int = 1) -> None:
        """Add a diagnostic, or add ``count`` to an existing diagnostic with this ``key``."""
        if key in self.diagnostics:
            self.diagnostics[key].count += count
        else:
            self.diagnostics[key] = ImportDiagnostic(key, severity, sentence, count, example[:200] if example else None)

    def is_empty(self) -> bool:
        """Return whether the table has no value."""
        return not self.polled and not self.buffered and not self.host_series

    def device_numbers(self) -> list[int]:
        """Return the devices that have values or a description."""
        described = {device for device in self.devices if 0 <= device < MAX_DEVICES}
        return sorted(described | {device for device, _ in self.polled} | {device for device, _ in self.buffered})

    def series(self, device: int, column: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return times and values of a column; the arrays are empty without values.

        If the column has buffered values, polled values are used only before and after them, and in gaps of the buffer.
        """
        times, values = self.polled.get((device, column), Series()).arrays()
        if (device, column) not in self.buffered:
            return times, values
        fine_times, fine_values = self.buffered[device, column].arrays()
        after = np.searchsorted(fine_times, times)
        inside = (after > 0) & (after < len(fine_times))
        in_gap = np.zeros(len(times), bool)
        in_gap[inside] = (fine_times[after[inside]] - fine_times[after[inside] - 1]) > BUFFER_GAP_NS
        keep = ~inside | in_gap
        merged = np.concatenate([fine_times, times[keep]])
        order, first = np.unique(merged, return_index=True)
        return order, np.concatenate([fine_values, values[keep]])[first]

    def telemetry(self) -> TelemetryTables:
        """Return the table as a reader's result.

        Telemetry gaps are found in the times of all columns together, so that a rarely read column has no gaps.
        """
        columns = self.columns()
        for name in INTEGER_COLUMNS:
            is_known = np.isfinite(columns[name])
            columns[name] = np.where(is_known, np.where(is_known, columns[name], 0).round().astype(np.int64), NULL)
        columns["device"] = columns["device"].astype(np.int64)
        if len({host for host, _ in self.places.values()}) > 1:
            self.metadata["places"] = {str(n): f"{host} GPU {own}" for n, (host, own) in self.places.items()}
        gaps = list(self.gaps)
        for device in self.device_numbers():
            for start, end in find_gaps(self.polled_times(device)):
                if not any(gap.device == device and gap.start_ns <= end and gap.end_ns >= start for gap in self.gaps):
                    gaps.append(SampleGap(device, start, end))
        return TelemetryTables(
            columns,
            devices=[{"device": n, "driver": self.driver_version, **self.devices.get(n, {})} for n in self.device_numbers()],
            host=self.host,
            metadata=json.dumps(self.metadata, default=str),
            truncated="truncated" in self.diagnostics,
            clock=self.clock,
            diagnostics=list(self.diagnostics.values()),
            gaps=gaps,
            gaps_complete=True,
            host_columns=host_columns(self.host_series),
        )

    def polled_times(self, device: int) -> NDArray[np.int64]:
        """Return the distinct times at which any value of a device was read, in order."""
        times_of_columns = [np.array(s.times, np.int64) for (d, _), s in self.polled.items() if d == device]
        return _distinct_times(times_of_columns)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns, sorted by device and time.

        They are ``device`` (int32), ``time_ns`` (int64) and every column of SAMPLE_COLUMNS (float64, NaN where not recorded).
        """
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("device", "time_ns", *SAMPLE_COLUMNS)}
        for device in self.device_numbers():
            series_by_column = {column: self.series(device, column) for column in SAMPLE_COLUMNS}
            device_times = _distinct_times([times for times, _ in series_by_column.values()])
            parts["time_ns"].append(device_times)
            parts["device"].append(np.full(len(device_times), device, np.int32))
            for column, (times, values) in series_by_column.items():
                parts[column].append(_place_values(device_times, times, values))
        types = {"device": np.int32, "time_ns": np.int64}
        return {
            name: np.concatenate(arrays) if arrays else np.empty(0, types.get(name, np.float64))
            for name, arrays in parts.items()
        }


def _place_values(all_times: NDArray[np.int64], times: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``values`` at their ``times`` among ``all_times``, and NaN at other times."""
    column = np.full(len(all_times), np.nan)
    column[np.searchsorted(all_times, times)] = values
    return column


def _distinct_times(times_of_columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    # Most columns have the times of the first column, because they are read together. Skipping them saves memory.
    first = times_of_columns[:1]
    distinct = [times for times in times_of_columns if len(times) and not np.array_equal(times, times_of_columns[0])]
    all_times = np.concatenate([*first, *distinct]) if times_of_columns else np.empty(0, np.int64)
    return all_times if (np.diff(all_times) > 0).all() else np.unique(all_times)


def host_columns(series: dict[str, Series]) -> dict[str, NDArray[Any]]:
    """Return the columns time_ns and HOST_COLUMNS of ``host_samples``; {} without samples.

    Missing values are NaN, or NULL in columns of integers.
    """
    arrays = {column: values.arrays() for column, values in series.items()}
    if not arrays:
        return {}
    all_times = np.unique(np.concatenate([times for times, _ in arrays.values()]))
    columns: dict[str, NDArray[Any]] = {"time_ns": all_times}
    for name in HOST_COLUMNS:
        column = _place_values(all_times, *arrays[name]) if name in arrays else np.full(len(all_times), np.nan)
        integers = np.where(np.isfinite(column), np.nan_to_num(column).round(), NULL).astype(np.int64)
        columns[name] = integers if BY_COLUMN[name].is_integer else column
    return columns


def find_gaps(time_ns: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the last sample before and the first after each telemetry gap; ``time_ns`` is sorted.

    A gap is longer than GAP_PERIODS median periods.
    """
    if len(time_ns) < 3:
        return []
    steps = np.diff(time_ns)
    median_period = float(np.median(steps[steps > 0])) if np.any(steps > 0) else 0.0
    last_before_gap = np.flatnonzero(steps > max(GAP_PERIODS * median_period, MIN_GAP_NS))
    return [(int(time_ns[row]), int(time_ns[row + 1])) for row in last_before_gap]

"""Collect rows of samples by device, and repair their times."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.telemetry.reader import TelemetryTables
from sawtooth.ingest.telemetry.table import MAX_DEVICES, SampleTable, Series
from sawtooth.ingest.telemetry.timestamps import Timestamps, with_corrected_days
from sawtooth.ingest.telemetry.values import CountedTimes

I64 = NDArray[np.int64]
SECOND_NS = 1_000_000_000
MIN_SET_CLOCK_NS = 946_684_800 * SECOND_NS  # This time is 2000-01-01. A host with an earlier date has not set its clock yet.
MAX_CLOCK_STEPS = 3  # If times go back more often, the rows are unordered, and no clock was set.
# The end of summer time sets a local clock back by an hour. SUMMER_TIME_SLACK allows for the time between two samples.
HOUR, SUMMER_TIME_SLACK = 3600 * SECOND_NS, 300 * SECOND_NS
# If at most this many rows are too early after a step back, lines were swapped. A clock that is set back affects more rows.
MAX_SWAPPED_ROWS = 2
CLOCK_STEP_NOTE = "The clock was set while sampling. The sample times were corrected."
SHARED_SHARE = 0.2  # If at least this share of timestamps belongs to several rows, timestamps are coarser than the sampling.


class SampleRows:
    """Values by device in order of arrival; ``store`` puts them into a SampleTable.

    NaN means not recorded. ``columns`` are the columns of ``samples``, in the order of the values that ``add`` takes.
    """

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self._times: dict[int, array[int]] = {}
        self._values: dict[int, list[array[float]]] = {}

    def add(self, device: int, time_ns: int, values: list[float]) -> None:
        """Append one row."""
        if device not in self._times:
            self._times[device] = array("q")
            self._values[device] = [array("d") for _ in self.columns]
        self._times[device].append(time_ns)
        for column, value in zip(self._values[device], values, strict=True):
            column.append(value)

    def extend(self, devices: I64, times: I64, values: Sequence[NDArray[np.float64]]) -> None:
        """Append rows; ``values`` has an array per column."""
        for device in np.unique(devices).tolist():
            mask = devices == device
            if device not in self._times:
                self._times[device] = array("q")
                self._values[device] = [array("d") for _ in self.columns]
            self._times[device].frombytes(times[mask].tobytes())
            for column, new_values in zip(self._values[device], values, strict=True):
                column.frombytes(new_values[mask].tobytes())

    def store(self, table: SampleTable, days: Mapping[int, int] | None = None) -> None:
        """Add all rows to ``table``, with repaired times; ``days`` is the result of ``Timestamps.finish``."""
        for device, stamps in self._times.items():
            times = repair_times(with_corrected_days(np.array(stamps, np.int64), dict(days or {})), table)
            table.devices.setdefault(device, {})
            for column, values in zip(self.columns, self._values[device], strict=True):
                is_known = np.isfinite(np.array(values, np.float64))
                if not is_known.any():
                    continue
                series = table.polled.setdefault((device, column), Series())
                series.times.frombytes(times[is_known].tobytes())
                series.values.frombytes(np.array(values, np.float64)[is_known].tobytes())


class PrintoutTimes:
    """Times of printouts that contain no times, from the date lines between the printouts.

    A printout has the time of the date line before it. A printout without a date line is one interval after the previous printout. If no
    date line precedes the first printout, the printouts are counted from 0.
    """

    def __init__(self, table: SampleTable, tool: str, interval_ns: int = SECOND_NS) -> None:
        self.stamps = Timestamps(table)
        self._table, self._tool, self._interval_ns = table, tool, interval_ns
        self._counted_times: CountedTimes | None = None
        self._date: int | None = None
        self._index, self._time_ns = -1, 0

    def set_if_date(self, line: str) -> bool:
        """Return whether ``line`` is a date; if so, use the date as the time of the next printout."""
        if self._counted_times is not None or ":" not in line or not any(map(str.isdigit, line)):
            return False
        date = self.stamps.ns(line.strip("= \t"))
        self._date = date or self._date
        return date is not None

    def ns(self, index: int) -> int:
        """Return the time of printout ``index``. Call this method before the lines of the next printout."""
        if index == self._index:
            return self._time_ns
        if self._date is not None:
            self._time_ns, self._date = self._date, None
        elif self._index < 0 or self._counted_times is not None:
            self._counted_times = self._counted_times or CountedTimes(self._interval_ns, self._table, self._tool)
            self._time_ns = self._counted_times.ns(index)
        else:
            self._time_ns += self._interval_ns
        self._index = index
        return self._time_ns


class Printouts:
    """Samples of a tool that prints all GPUs repeatedly, with or without date lines."""

    def __init__(self, columns: list[str], tool: str) -> None:
        self.table = SampleTable()
        self._times, self._rows = PrintoutTimes(self.table, tool), SampleRows(columns)
        self.set_if_date = self._times.set_if_date
        self.count = 0

    def begin(self) -> None:
        """Begin a printout."""
        self.count += 1
        self._times.ns(self.count - 1)

    def add(self, device: int, values: list[float]) -> None:
        """Add a GPU's values of this printout; ``NaN`` means not recorded."""
        if 0 <= device < MAX_DEVICES:
            self._rows.add(device, self._times.ns(self.count - 1), values)

    def telemetry(self) -> TelemetryTables:
        """Return the table of all printouts."""
        self._rows.store(self.table, self._times.stamps.finish())
        return self.table.telemetry()


def repair_times(times: I64, table: SampleTable) -> I64:
    """Return the times of one device's rows, corrected for a clock that was set while sampling.

    ``times`` are in order of arrival. Rows with the same coarse timestamp are spread over its second. Changes are noted in ``table``.
    """
    if len(times) < 2:
        return times
    times = _move_rows_after_backward_step(_move_rows_before_first_date(times, table), table)
    return _spread(times, table)


def _move_rows_before_first_date(times: I64, table: SampleTable) -> I64:
    """Move rows from before the host's clock was set to just before the first row with a true date."""
    wrong = times < MIN_SET_CLOCK_NS
    first = int(wrong.argmin())  # The first row with a true date.
    if not wrong[0] or wrong.all() or wrong[first:].any() or table.clock == "unknown":
        return times
    period = _median_period(times[:first] if first > 2 else times[first:])
    table.note("clock_step", "info", CLOCK_STEP_NOTE)
    moved = times.copy()
    moved[:first] += times[first] - period - times[first - 1]
    return moved


def _move_rows_after_backward_step(times: I64, table: SampleTable) -> I64:
    """Move the rows after a step back of the clock to one median period after the row before the step."""
    last_before_step = np.flatnonzero(np.diff(times) < 0)
    if not len(last_before_step) or len(last_before_step) > MAX_CLOCK_STEPS:
        return times
    period, moved = _median_period(times), times.copy()
    for row in last_before_step.tolist():
        step_ns = int(moved[row] - moved[row + 1])
        too_early = moved[row + 1 :] <= moved[row]
        summer_time_ends = table.clock == "local" and abs(step_ns - HOUR) < SUMMER_TIME_SLACK
        overlaps = moved[row + 1 :].max() >= moved[: row + 1].min()
        if not summer_time_ends and (int(too_early.sum()) <= MAX_SWAPPED_ROWS or not overlaps):
            continue  # Lines were swapped, or an older log was appended to a newer log.
        moved[row + 1 :] += step_ns + period
        table.note("clock_step", "info", CLOCK_STEP_NOTE)
    return moved


def _median_period(times: I64) -> int:
    """Return the median time between rows with different times; a second if all times are equal."""
    steps = np.diff(times)
    return int(np.median(steps[steps > 0])) if (steps > 0).any() else SECOND_NS


def _spread(times: I64, table: SampleTable) -> I64:
    """Spread rows with the same timestamp in whole seconds evenly until the next timestamp."""
    same = np.diff(times) == 0
    if not same.any() or (times % SECOND_NS).any():
        return times
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1])
    counts = np.diff(np.concatenate([starts, [len(times)]]))
    if (counts > 1).mean() < SHARED_SHARE:
        return times
    until_next = np.diff(np.concatenate([times[starts], [times[-1] + SECOND_NS]]))
    width = np.clip(until_next, 0, SECOND_NS)
    group = np.repeat(np.arange(len(starts)), counts)
    index_in_group = np.arange(len(times)) - starts[group]
    table.note(
        "coarse_times",
        "info",
        "Several samples share each timestamp. They were spread evenly over the second.",
        count=int(same.sum()),
    )
    spread: I64 = times + index_in_group * width[group] // counts[group]
    return spread

"""Rows of a table of samples, collected by device, with their times repaired."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.telemetry.reader import TelemetryTables
from sawtooth.ingest.telemetry.table import MOST_DEVICES, SampleTable, Series
from sawtooth.ingest.telemetry.timestamps import Timestamps, moved_days
from sawtooth.ingest.telemetry.values import Clockless

I64 = NDArray[np.int64]
SECOND = 1_000_000_000
CLOCK_WAS_SET = 946_684_800 * SECOND  # 2000-01-01: a host that shows an earlier date has not set its clock yet
MOST_STEPS = 3  # times that a clock goes back; with more, the rows are merely in another order
HOUR, SLACK = 3600 * SECOND, 300 * SECOND  # the end of summer time sets a local clock back by an hour
FEW_ROWS = 2  # rows behind a later one: two lines that changed places, no clock that was set back
REPEATED = 0.2  # share of the timestamps that several rows share: then the stamps are coarser than the sampling


class SampleRows:
    """Values by device in order of arrival; ``store`` puts them into a SampleTable.

    ``NaN`` means not recorded. ``columns`` are the columns of ``samples`` in the order of the values of ``add``.
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
            own = devices == device
            if device not in self._times:
                self._times[device] = array("q")
                self._values[device] = [array("d") for _ in self.columns]
            self._times[device].frombytes(times[own].tobytes())
            for column, of_column in zip(self._values[device], values, strict=True):
                column.frombytes(of_column[own].tobytes())

    def store(self, table: SampleTable, days: Mapping[int, int] | None = None) -> None:
        """Add all rows to ``table``, with repaired times; ``days`` are those of ``Timestamps.finish``."""
        for device, stamps in self._times.items():
            arrived = moved_days(np.array(stamps, np.int64), dict(days or {}))
            times = repaired(arrived, table)
            table.devices.setdefault(device, {})
            for column, values in zip(self.columns, self._values[device], strict=True):
                known = np.isfinite(np.array(values, np.float64))
                if not known.any():
                    continue
                series = table.polled.setdefault((device, column), Series())
                series.times.frombytes(times[known].tobytes())
                series.values.frombytes(np.array(values, np.float64)[known].tobytes())


class Printouts:
    """Samples of a tool that prints all GPUs again and again, with or without a dated line before.

    Without a date before the first printout, the printouts are counted from 0, a second apart.
    """

    def __init__(self, columns: list[str], tool: str) -> None:
        self.table = SampleTable()
        self._tool = tool
        self._times, self._rows = Timestamps(self.table), SampleRows(columns)
        self._clockless: Clockless | None = None
        self._stamp: int | None = None
        self.count = 0

    def take_if_date(self, line: str) -> None:
        """Use ``line`` as the time of the next printout if it is a date."""
        if self._clockless is None and ":" in line and any(map(str.isdigit, line)):
            self._stamp = self._times.ns(line) or self._stamp

    def begin(self) -> None:
        """Begin a printout."""
        if self._stamp is None and self._clockless is None:
            self._clockless = Clockless(SECOND, self.table, self._tool)
        self.count += 1

    def add(self, device: int, values: list[float]) -> None:
        """Add a GPU's values of this printout; ``NaN`` means not recorded."""
        time_ns = self._clockless.ns(self.count - 1) if self._clockless is not None else self._stamp
        if time_ns is not None and 0 <= device < MOST_DEVICES:
            self._rows.add(device, time_ns, values)

    def telemetry(self) -> TelemetryTables:
        """Return the table of all printouts."""
        self._rows.store(self.table, self._times.finish())
        return self.table.telemetry()


def repaired(times: I64, table: SampleTable) -> I64:
    """Return the times of one device's rows in order of arrival, without steps of a set clock.

    Rows that share a coarse timestamp are spread over its second. What was changed is noted in ``table``.
    """
    if len(times) < 2:
        return times
    times = _without_steps(_after_the_clock_was_set(times, table), table)
    return _spread(times, table)


def _after_the_clock_was_set(times: I64, table: SampleTable) -> I64:
    """Move rows from before a host's clock was set to directly before the first row with a true date."""
    wrong = times < CLOCK_WAS_SET
    first = int(wrong.argmin())  # the first true row
    if not wrong[0] or wrong.all() or wrong[first:].any() or table.clock == "unknown":
        return times
    usual = _usual(times[:first] if first > 2 else times[first:])
    table.note("clock_step", "info", "The clock was set while sampling; samples stayed in place.")
    moved = times.copy()
    moved[:first] += times[first] - usual - times[first - 1]
    return moved


def _without_steps(times: I64, table: SampleTable) -> I64:
    """Let times rise where a clock was set back: the rows after that continue one usual period later."""
    back = np.flatnonzero(np.diff(times) < 0)
    if not len(back) or len(back) > MOST_STEPS:
        return times
    usual, moved = _usual(times), times.copy()
    for at in back.tolist():
        behind = moved[at + 1 :] <= moved[at]
        summer_time_ends = table.clock == "local" and abs(int(moved[at] - moved[at + 1]) - HOUR) < SLACK
        covered = moved[at + 1 :].max() >= moved[: at + 1].min()
        if not summer_time_ends and (int(behind.sum()) <= FEW_ROWS or not covered):
            continue  # lines out of order, or an earlier log behind a later one
        moved[at + 1 :] += moved[at] - moved[at + 1] + usual
        table.note("clock_step", "info", "The clock was set while sampling; samples stayed in place.")
    return moved


def _usual(times: I64) -> int:
    steps = np.diff(times)
    return int(np.median(steps[steps > 0])) if (steps > 0).any() else SECOND


def _spread(times: I64, table: SampleTable) -> I64:
    """Spread consecutive rows with one timestamp in whole seconds evenly until the next timestamp."""
    same = np.diff(times) == 0
    if not same.any() or (times % SECOND).any():
        return times
    starts = np.concatenate([[0], np.flatnonzero(~same) + 1])
    counts = np.diff(np.concatenate([starts, [len(times)]]))
    if (counts > 1).mean() < REPEATED:
        return times
    after = np.diff(np.concatenate([times[starts], [times[-1] + SECOND]]))
    width = np.clip(after, 0, SECOND)
    which = np.repeat(np.arange(len(starts)), counts)
    place = np.arange(len(times)) - starts[which]
    table.note(
        "coarse_times",
        "info",
        "Several samples share each timestamp; they were spread evenly over its second.",
        count=int(same.sum()),
    )
    spread: I64 = times + place * width[which] // counts[which]
    return spread

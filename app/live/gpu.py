"""One GPU of a live session: its series, its sawtooth, and its alerts."""

from __future__ import annotations

from dataclasses import dataclass, field

from sawtooth.analysis.telemetry.signal.dropouts import ALWAYS_ABOVE_0, COUNTERS
from sawtooth.analysis.telemetry.signal.dropouts import BUSY_PCT as WORKS_PCT
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.summary import ACTIVITY, SHARES_AT_WORK, UtilizationSignal
from sawtooth.analysis.units import in_memory, percent
from sawtooth.app.live.series import LiveSeries
from sawtooth.ingest.quantities.registry import SAMPLE_COLUMNS, possible_value
from sawtooth.ingest.quantities.throttling import holding_reasons
from sawtooth.ingest.telemetry.session import is_time

MAX_PROCESSES = 16  # At most this many processes of a GPU are stored. A training has fewer.
MEMORY_NEAR = 0.95  # Share of the GPU's memory. If more is in use, a larger batch or fragmentation can end the run.
CLOCK_LIMITED = 0.95  # Share of the session's highest SM clock. A clock above this share hardly matters.
BUSY_PCT = 20.0  # Utilization in percent. A GPU with less work lowers its clocks without being throttled.


@dataclass
class LiveGpu:
    """One GPU of a session, with its series by column."""

    device: int
    name: str
    memory_bytes: float | None
    series: dict[str, LiveSeries] = field(default_factory=dict)
    lost: bool = False
    processes: list[tuple[str, float | None]] = field(default_factory=list)  # Name and memory, largest first.
    sawtooth: Sawtooth | None = None
    sawtooth_at_ns: int = 0
    sawtooth_quantity: str = "activity"  # Label of the quantity in which a sawtooth was searched.

    def latest(self, column: str) -> float | None:
        """Return the newest value of a quantity."""
        series = self.series.get(column)
        return series.latest() if series else None

    @property
    def at_work_column(self) -> str | None:
        """The column that shows how much of the time the GPU works; None if none was sampled."""
        return next((column for column in SHARES_AT_WORK if column in self.series), None)

    @property
    def signal(self) -> UtilizationSignal | None:
        """The quantity that shows most clearly when the GPU works; None if none was sampled."""
        return next((activity for activity in ACTIVITY if activity.column in self.series), None)

    def add(self, column: str, time_ns: int, value: float) -> None:
        """Add a sample; impossible values and unknown quantities are ignored, as anybody may have sent them."""
        if column in SAMPLE_COLUMNS and possible_value(column, value) is not None and is_time(time_ns):
            self.series.setdefault(column, LiveSeries()).add(time_ns, value)

    def measured(self, values: dict[str, float]) -> dict[str, float]:
        """Return the values of a tick without dropouts: counters that read 0 although the GPU works."""
        before, now = self.latest("util_pct"), values.get("util_pct")
        counter_values = [values[column] for column in ALWAYS_ABOVE_0 if column in values]
        counted_before = any((series := self.series.get(column)) and series.peak for column in ALWAYS_ABOVE_0)
        if (
            counter_values
            and not any(counter_values)
            and counted_before
            and before is not None
            and now is not None
            and min(before, now) >= WORKS_PCT
        ):
            return {column: value for column, value in values.items() if column not in COUNTERS}
        return values

    def alerts(self) -> list[str]:
        """Return one sentence for each alert: GPU lost, memory nearly full, clocks throttled."""
        alerts = []
        if self.lost:
            alerts.append(f"GPU {self.device} no longer answers: the driver has lost it.")
        used, total = self.latest("mem_used_bytes"), self.memory_bytes
        if used is not None and total and used > MEMORY_NEAR * total:
            alerts.append(
                f"GPU {self.device} has {percent(used / total)} of its memory in use: "
                f"{in_memory(total - used)} of {in_memory(total)} are left."
            )
        clocks = self.series.get("clock_sm_mhz")
        clock, fastest = (clocks.latest(), clocks.peak) if clocks else (None, None)
        busy = self.latest(self.at_work_column) if self.at_work_column else None
        reasons = [reason.label for reason in holding_reasons(int(self.latest("clock_event_mask") or 0))]
        if reasons and clock is not None and fastest and clock < CLOCK_LIMITED * fastest and (busy is None or busy >= BUSY_PCT):
            alerts.append(
                f"GPU {self.device} is throttled by {' and '.join(reasons)}: its SM clock is {clock:.0f} MHz "
                f"and has been {fastest:.0f} MHz in this session."
            )
        return alerts

"""The troughs of the sawtooth: the trace's causes inside them, or the number of steps per period.

Under the profile, a trough's idle time has exact causes. Outside it, only the period gives information: if it is as long as a
whole number of steps, there is one wait in that number of steps. If the profiled steps are not representative, the run's step
time is too uncertain for this. Then the work of one period (period × share of time at work) is divided by the kernel time of a
step, which profiling does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import Intervals, overlaps, union
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.clock import SampleClock
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.signal.steady import weights_ns
from sawtooth.analysis.telemetry.summary import DeviceTelemetry, load_series
from sawtooth.analysis.units import percent

MAX_ERROR = 0.05  # Step times are known to 5 %, so a ratio this close to a whole number counts as that number.
MAX_ERROR_BY_WORK = 0.15  # Larger, because activity has whole percents and its windows count short work too much.
# Above this number of steps, the error ranges of neighbouring whole numbers overlap.
MAX_STEPS = 9
MAX_STEPS_BY_WORK = 3


@dataclass(frozen=True)
class Troughs:
    """What a trace shows about the troughs of a sawtooth.

    ``causes`` are (cause, ns) of the GPU's lost time inside ``count`` troughs under the profile. ``steps`` is the number of steps
    per period, None if it is not a whole number within the error. ``by_work`` is true if ``steps`` comes from kernel time.
    """

    count: int = 0
    causes: tuple[tuple[str, int], ...] = ()
    steps: int | None = None
    by_work: bool = False

    @property
    def lost_ns(self) -> int:
        """Lost time of the profile inside troughs."""
        return sum(ns for _, ns in self.causes)

    def notes(self) -> tuple[str, ...]:
        """Return the sentences for a report, with the ledger's names of causes."""
        notes = []
        if self.causes:
            cause, ns = self.causes[0]
            notes.append(
                f"Of the lost time in the {self.count} troughs under the profile, {percent(ns / self.lost_ns)} is {cause}."
            )
        if self.steps is not None:
            subject = "the work of one period is the kernel time of" if self.by_work else "it takes as long as"
            notes.append(f"By the length of the sawtooth period, {subject} {self.steps} step{'s' if self.steps > 1 else ''}.")
        return tuple(notes)


def link(
    library: Library,
    telemetry: DeviceTelemetry,
    clock: SampleClock,
    trace: tuple[str, int] | None,
    step_ms: float | None,
    kernel_ms: float | None,
) -> Troughs | None:
    """Link the sawtooth of a device's telemetry to its trace (recording, device).

    ``trace`` is None if the clocks differ. ``step_ms`` and ``kernel_ms`` are as in ``steps_of``. None if there is no sawtooth.
    """
    if telemetry.signal_column is None or telemetry.sawtooth.period_s is None:
        return None
    steps = steps_of(telemetry.sawtooth, telemetry.works_pct, step_ms, kernel_ms)
    if trace is None:
        return Troughs(steps=steps[0], by_work=steps[1])
    with library.open(telemetry.recording_id, derived=False) as recording:
        times, values = load_series(recording, telemetry.device, telemetry.signal_column, clock)
    with library.open(trace[0]) as recording:
        cursor = recording.cursor
        windows = cursor.execute("SELECT start_ns, end_ns FROM windows WHERE device = ?", [trace[1]]).fetchnumpy()
        gaps = cursor.execute("SELECT start_ns, end_ns, cause FROM gaps WHERE device = ?", [trace[1]]).fetchnumpy()
    count, inside = troughs_of(telemetry.sawtooth, times, values, union(windows["start_ns"], windows["end_ns"]))
    causes = causes_in(inside, gaps["start_ns"], gaps["end_ns"], list(gaps["cause"]))
    return Troughs(count, causes, *steps)


def troughs_of(
    sawtooth: Sawtooth, time_ns: NDArray[np.int64], value: NDArray[np.float64], windows: Intervals
) -> tuple[int, Intervals]:
    """Return the number of troughs in ``windows``, and the times of the troughs inside them.

    A trough is a sequence of samples below the middle of the sawtooth's range.
    """
    if sawtooth.period_s is None or sawtooth.low is None or sawtooth.high is None or not len(time_ns):
        return 0, union([], [])
    low = value <= (sawtooth.low + sawtooth.high) / 2
    runs = union((time_ns - weights_ns(time_ns))[low], time_ns[low])
    starts, ends, window_of, _ = overlaps(runs, windows)
    return len(np.unique(window_of)), union(starts, ends)


def causes_in(
    troughs: Intervals, gap_starts: NDArray[np.int64], gap_ends: NDArray[np.int64], causes: list[str]
) -> tuple[tuple[str, int], ...]:
    """Return the nanoseconds of each cause inside the troughs, largest first; gaps must not overlap."""
    starts, ends, trough_of, _ = overlaps(Intervals(gap_starts, gap_ends), troughs)
    lost_ns: dict[str, int] = {}
    for length, gap in zip((ends - starts).tolist(), trough_of.tolist(), strict=True):
        lost_ns[causes[gap]] = lost_ns.get(causes[gap], 0) + length
    return tuple(sorted(lost_ns.items(), key=lambda item: (-item[1], item[0])))


def steps_of(
    sawtooth: Sawtooth, works_pct: float | None, step_ms: float | None, kernel_ms: float | None
) -> tuple[int | None, bool]:
    """Return the number of steps per period, and whether it comes from kernel time.

    ``step_ms`` is None if the run's step time is uncertain; ``works_pct`` is the share of time in which the GPU works.
    """
    if sawtooth.period_s is None:
        return None, False
    if step_ms:
        return _whole_steps(sawtooth.period_s * 1e3 / step_ms, MAX_ERROR, MAX_STEPS), False
    if kernel_ms and works_pct:
        return _whole_steps(sawtooth.period_s * 1e3 * works_pct / 100 / kernel_ms, MAX_ERROR_BY_WORK, MAX_STEPS_BY_WORK), True
    return None, False


def _whole_steps(ratio: float, close: float, most_steps: int) -> int | None:
    steps = round(ratio)
    return steps if 1 <= steps <= most_steps and abs(ratio - steps) <= close * steps else None

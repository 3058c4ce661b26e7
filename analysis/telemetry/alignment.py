"""The shift between telemetry's clock and a trace's clock, from matching activity.

The trace shows exactly how busy the GPU was at any time, so it predicts the value of each telemetry window for a given shift.
All shifts that put the trace inside the telemetry are compared. The one with the highest correlation is the result if it is clear:
all shifts that explain the samples nearly as well must be within one window of it. Activity that repeats exactly fits at every
period, and telemetry of another time fits nowhere clearly. In both cases there is no result.
For unrelated series with n independent samples and correlation r, (n − 2) / 2 · ln(1 / (1 − r²)) has an exponential tail with
mean 1. So among many shifts of unrelated telemetry, the best exceeds the next by more than CLEAR_MARGIN once in about
e^CLEAR_MARGIN = 1,100 times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import union
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.clock import SampleClock
from sawtooth.analysis.telemetry.signal.sawtooth import renewal
from sawtooth.analysis.telemetry.summary import load_series
from sawtooth.analysis.units import significant

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

CLEAR_MARGIN = 7.0  # Difference in log-likelihood. The module's docstring derives it.
MIN_CORRELATION = 0.7  # Below it, half of the samples' variance has another reason.
MIN_WINDOWS = 12  # With fewer windows, a match may be chance.
MIN_SPREAD = 0.03  # Least spread of the predicted busy share. Equally busy windows fit every shift.
SHIFTS_PER_WINDOW = 4  # Shifts are a quarter of a window apart, which is the best precision that the windows allow.
GAP_WINDOWS = 3.5  # In windows. A longer distance between samples is a telemetry gap, as for the sawtooth.
SIGNALS = ("gr_active_pct", "sm_active_pct", "util_pct", "power_w")  # Most direct first. The first clear one is used.
# Hosts without time synchronisation drift by seconds per day, so two minutes take weeks.
MAX_CLOCK_DIFFERENCE_NS = 120 * 10**9
ZONE_NS = 15 * 60 * 10**9  # Time zones differ from UTC by multiples of 15 minutes,.
ZONES = range(-12 * 4, 14 * 4 + 1)  # Time zones in quarters of an hour, from −12 to +14 hours.
MAX_SHIFTS = 400_000  # A day at ten samples per second has more; then only the smallest shifts are tried.
CHUNK_VALUES = 4_000_000  # At most this many values are in memory at a time.


@dataclass(frozen=True)
class KernelActivity:
    """GPU activity in a trace.

    It has the ordered (start, end) of the union of the kernels, and the trace's (first, last) time.
    """

    starts_ns: I64
    ends_ns: I64
    first_ns: int
    last_ns: int


@dataclass(frozen=True)
class Alignment:
    """The result of an alignment.

    ``shift_ns`` is added to the telemetry's times to convert them to the trace's clock. If it is None, ``why_none`` says why.
    ``within_ns`` bounds the error. ``correlation`` is the highest one, even if it is not clear.
    """

    shift_ns: int | None
    why_none: str | None
    within_ns: int | None = None
    correlation: float | None = None
    windows: int = 0


def align_recordings(library: Library, trace: tuple[str, int], sampled: tuple[str, int], clock: SampleClock) -> Alignment:
    """Find the shift between a trace's device and a sampled device, both as (recording, device).

    ``clock`` has converted the telemetry's times as far as possible. For absolute times, shifts of up to two minutes are tried; for
    others, all shifts that put the trace inside the telemetry. Raises NotFoundError if a recording is missing.
    """
    with library.open(trace[0], derived=False) as recording:
        work = recording.cursor.execute(
            "SELECT start_ns, start_ns + dur_ns AS end_ns FROM gpu_ops WHERE device = ? AND kind = 'kernel'", [trace[1]]
        ).fetchnumpy()
    busy = union(work["start_ns"], work["end_ns"])
    if not len(busy.starts):
        return Alignment(None, "the trace has no kernels")
    activity = KernelActivity(busy.starts, busy.ends, int(busy.starts[0]), int(busy.ends[-1]))
    alignments: list[Alignment] = []
    with library.open(sampled[0], derived=False) as recording:
        for column in SIGNALS:
            times, values = load_series(recording, sampled[1], column, clock)
            if len(times):
                alignments.append(
                    align(activity, times, values, most_shift_ns=MAX_CLOCK_DIFFERENCE_NS if clock.known else None)
                )
                if alignments[-1].shift_ns is not None:
                    return alignments[-1]
    return alignments[0] if alignments else Alignment(None, "no signal that shows GPU activity was sampled")


def zones_that_fit(trace: tuple[int, int], sampled: tuple[int, int]) -> list[int]:
    """Return the time zones (minutes from UTC) that put a trace inside telemetry with local times.

    Both are given as (first, last) times.
    """
    fits = []
    for quarters in ZONES:
        shift = quarters * ZONE_NS  # Local time is UTC + shift.
        if sampled[0] - shift <= trace[0] and trace[1] <= sampled[1] - shift:
            fits.append(quarters * 15)
    return fits


def align(trace: KernelActivity, time_ns: I64, value: F64, *, most_shift_ns: int | None = None) -> Alignment:
    """Find the shift of one sampled signal; ``most_shift_ns`` limits it in both directions.

    ``time_ns`` is in order.
    """
    finite = np.isfinite(value)
    times, values = time_ns[finite], np.asarray(value, np.float64)[finite]
    if len(times) < MIN_WINDOWS:
        return Alignment(None, f"{len(times)} samples are too few")
    window = int(np.median(np.diff(times))) * renewal(values)
    count = (trace.last_ns - trace.first_ns) // max(window, 1)
    if count < MIN_WINDOWS:
        seconds = (trace.last_ns - trace.first_ns) / 1e9
        return Alignment(
            None, f"the trace's {significant(seconds, 2)} s cover {count} windows of the telemetry; {MIN_WINDOWS} are needed"
        )
    edges = trace.first_ns + window * np.arange(count + 1)
    predicted = np.diff(_busy(trace, edges)) / window
    if predicted.std() < MIN_SPREAD:
        return Alignment(None, "the trace's activity is uniform, so there is nothing to align", windows=int(count))
    shifts = _shifts(trace, times, window, most_shift_ns)
    if not len(shifts):
        return Alignment(None, "the trace is longer than the telemetry" if most_shift_ns is None else "the two do not overlap")
    log_likelihood, r = _log_likelihood(
        predicted=predicted, edges=edges, shifts=shifts, times=times, values=values, window=window
    )
    return _decide(shifts, log_likelihood, r, window, int(count))


def _busy(trace: KernelActivity, at: I64) -> F64:
    """Return the nanoseconds of work up to each time."""
    earlier_ns = np.concatenate([[0], np.cumsum(trace.ends_ns - trace.starts_ns)])
    index = np.searchsorted(trace.starts_ns, at, side="right")
    current_ns = np.zeros(len(at), np.int64)
    inside = index > 0
    last = index[inside] - 1
    current_ns[inside] = np.minimum(at[inside], trace.ends_ns[last]) - trace.starts_ns[last]
    return (earlier_ns[np.maximum(index - 1, 0)] + current_ns).astype(np.float64)


def _shifts(trace: KernelActivity, times: I64, window: int, most_shift_ns: int | None) -> I64:
    low, high = trace.last_ns - int(times[-1]), trace.first_ns - int(times[0]) + window
    if most_shift_ns is not None:
        low, high = max(low, -most_shift_ns), min(high, most_shift_ns)
    if high < low:
        return np.empty(0, np.int64)
    step = max(window // SHIFTS_PER_WINDOW, 1)
    shifts = np.arange(low, high + 1, step, dtype=np.int64)
    if len(shifts) > MAX_SHIFTS:
        shifts = np.sort(shifts[np.argsort(np.abs(shifts), kind="stable")[:MAX_SHIFTS]])
    return shifts


def _log_likelihood(predicted: F64, edges: I64, shifts: I64, times: I64, values: F64, window: int) -> tuple[F64, F64]:
    """Return the log-likelihood and the correlation of each shift; see the module's docstring.

    The log-likelihood is −inf where samples are missing.
    """
    spans = np.diff(times, prepend=times[0] - window)
    is_gap = spans > GAP_WINDOWS * window
    spans = np.where(is_gap, window, spans)
    area = np.concatenate([[0.0], np.cumsum(values * spans)])
    bounds = np.concatenate([[times[0] - spans[0]], times])
    origin = int(bounds[0])
    log_likelihood, correlations = np.empty(len(shifts)), np.empty(len(shifts))
    rows = max(1, CHUNK_VALUES // len(edges))
    centred = predicted - predicted.mean()
    for begin in range(0, len(shifts), rows):
        part = shifts[begin : begin + rows]
        at = (edges[None, :] - part[:, None] - origin).astype(np.float64)
        observed = np.diff(np.interp(at, (bounds - origin).astype(np.float64), area), axis=1) / window
        observed -= observed.mean(axis=1, keepdims=True)
        spread = np.sqrt((observed**2).sum(axis=1) * (centred**2).sum())
        r = np.divide(observed @ centred, spread, out=np.zeros(len(part)), where=spread > 0)
        n = _independent(centred, observed)
        log_likelihood[begin : begin + rows] = np.where(r > 0, (n - 2) / 2 * -np.log1p(-(np.minimum(r, 0.9999) ** 2)), 0.0)
        correlations[begin : begin + rows] = r
    for i in np.flatnonzero(is_gap):  # The mean over a telemetry gap is unknown.
        touched = (edges[0] - shifts < times[i]) & (edges[-1] - shifts > times[i - 1])
        log_likelihood[touched] = -np.inf
    return log_likelihood, correlations


def _independent(a: F64, b: F64) -> F64:
    """Return the number of independent pairs in two series (Bartlett): similar neighbours count less."""
    n = len(a)
    lags = np.arange(1, max(2, n // 4))
    autocorrelation = np.array([(a[k:] * a[:-k]).sum() for k in lags]) / (a**2).sum()
    power = np.maximum((b**2).sum(axis=1), 1e-12)
    joint = np.zeros(len(b))
    for k, rho in zip(lags, autocorrelation, strict=True):
        joint += rho * (b[:, k:] * b[:, :-k]).sum(axis=1) / power
    return np.clip(n / np.maximum(1 + 2 * joint, 1e-3), 3, n)


def _decide(shifts: I64, log_likelihood: F64, r: F64, window: int, count: int) -> Alignment:
    best = int(log_likelihood.argmax())
    correlation = float(r[best])
    if not np.isfinite(log_likelihood[best]) or correlation < MIN_CORRELATION:
        return Alignment(None, f"no shift fits: the best correlation is {max(correlation, 0):.2f}", None, correlation, count)
    plausible = shifts[log_likelihood >= log_likelihood[best] - CLEAR_MARGIN]
    low, high = int(plausible.min()), int(plausible.max())
    if high - low > 2 * window:
        distance_s = max(high - shifts[best], shifts[best] - low) / 1e9
        return Alignment(
            None,
            f"it fits as well {significant(distance_s)} s away, because the activity is periodic",
            None,
            correlation,
            count,
        )
    weights = np.exp(log_likelihood - log_likelihood[best]) * ((shifts >= low) & (shifts <= high))
    shift = round(float((weights * (shifts - shifts[best])).sum() / weights.sum())) + int(shifts[best])
    error_ns = max(high - shift, shift - low, window // SHIFTS_PER_WINDOW)
    return Alignment(shift, None, error_ns, correlation, count)

"""The step time from utilization: NVML counts a kernel from its dispatch to its drain, CUPTI leaves both out of its duration.

Over a window of steady training, utilization × step = kernel time of a step + dispatch × kernels of a step. A trace knows the right side (the
profiler changes neither), anybody can record utilization, so the step time of the run follows without the profiler having run in it. On
54 recordings of an H200 90 % were within 8 %, where the replay of the trace alone was within 40 %. It holds for a GPU that waits for
nobody: NCCL kernels that wait for other ranks count as busy, so that with collectives only a lower bound is left.
"""

from __future__ import annotations

from sawtooth.analysis.knowledge.hardware import GRAPH_DISPATCH
from sawtooth.analysis.metrics.witness import StepWork, Witness
from sawtooth.analysis.telemetry.signal.means import Mean
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.units import in_words

COUNTS_KERNELS = "util_pct"
WITHOUT_COPIES = "gr_active_pct"
COPIES_SHARE = 0.05  # of the busy time: above it GPM, which counts no copies, though it undercounts short bursts
STEADIER = 2.0  # times: NVML holds a reading for 0.2 s and lags, which scatters where the load comes in bursts
LEAST_SAMPLES = 10  # fewer utilization windows (1/6 to 1 s each) are moments, not a run
LEAST_UTIL_PCT = 1.0  # a whole percentage: below, its rounding alone moves the step time by half
KERNELS = 0.05  # of the step time: the run's kernels and the profiled ones, where the GPU never waits
HOST = 0.06  # of the time that it waits, over ENOUGH_S of training: short bursts count too much or too little, and hosts drift
FREQUENT_S, ENOUGH_S = 0.25, 4.0  # between samples (5 Hz and jitter), and of training
BOUND_OFF = 0.08  # of the step time that ranks which wait for each other bound from below
ROUNDING_PCT = 0.3  # of utilization, which the driver gives in whole points
SUSTAINED = 1.08  # under a power cap kernels of the run may take this much longer than the profiled ones
NO_COLLECTIVES = 0.01  # of kernel time: below, waiting for other ranks cannot be what keeps the GPU busy
NAMES = {COUNTS_KERNELS: "NVML utilization", WITHOUT_COPIES: "GPU activity (GPM)"}


def by_telemetry(work: StepWork, sampled: DeviceTelemetry) -> Witness | str:
    """Return what the telemetry of a device says of its step time, or the sentence why it says nothing."""
    if work.kernel_ns <= 0:
        return "There is no step to compare telemetry with."
    column = _signal(work, sampled)
    if column is None or sampled.steady.start_ns is None:
        return sampled.steady.why_none or "The telemetry does not say how much of the time the GPU works."
    mean = sampled.at_work[column]
    if mean.samples < LEAST_SAMPLES:
        return f"Only {mean.samples} samples show the training outside the profile."
    if mean.value < LEAST_UTIL_PCT:
        return f"{NAMES[column]} outside the profile is {mean.value:.1f} %: too low to tell a step time from."
    if work.communication_ns > NO_COLLECTIVES * work.kernel_ns:
        return _bound(work, mean, column)
    in_part = work.pageable_ns + work.allocating_ns if column == COUNTS_KERNELS else 0.0
    step = (work.resident_ns + in_part / 2) / mean.value / 1e4
    low, high = interval(work, mean, sampled.period_s.get(column, 1.0), in_part)
    low, high = step * low, step * high
    notes = [
        f"Kernels and their dispatch take {in_words(work.resident_ns / 1e6, 4)} of a step, and {NAMES[column]} is {mean.value:.3g} % over {mean.seconds:.1f} s of "
        f"training outside the profile: a step takes {in_words(step, 4)}."
    ]
    if in_part > COPIES_SHARE * work.occupied_ns:
        what = "the pageable copies" if work.pageable_ns > work.allocating_ns else "what the driver does for new memory"
        notes.append(f"Utilization counts part of {what}; nobody knows which, so the interval is wider.")
    other = sampled.at_work.get(WITHOUT_COPIES if column == COUNTS_KERNELS else COUNTS_KERNELS)
    if other is not None and other.value >= LEAST_UTIL_PCT and not _beside_kernels(work):  # then they differ by right
        by_other = work.resident_ns / other.value / 1e4
        if not low <= by_other <= high:
            notes.append(
                f"{NAMES[WITHOUT_COPIES if column == COUNTS_KERNELS else COUNTS_KERNELS]} says {in_words(by_other, 4)}: the interval holds both."
            )
        low, high = min(low, by_other), max(high, by_other)
    if sampled.capped:
        high = max(high, step * (1 + ((high / step - 1) ** 2 + (SUSTAINED - 1) ** 2) ** 0.5))
        notes.append("The power cap held clocks down: the run's kernels may take longer than the profiled ones.")
    return Witness("telemetry", step, low, high, tuple(notes))


def _beside_kernels(work: StepWork) -> bool:
    """Tell whether what NVML counts in part, and GPM does not, is worth minding: copies, and what the driver does for new memory."""
    more = work.copies_ns + work.allocating_ns
    return more > COPIES_SHARE * (work.occupied_ns + more)


def _signal(work: StepWork, sampled: DeviceTelemetry) -> str | None:
    """Return the column that says best how much of the time kernels run: NVML's utilization, but GPM where there is much beside kernels or it is far steadier."""
    util, activity = (sampled.at_work.get(c) for c in (COUNTS_KERNELS, WITHOUT_COPIES))
    if util is None or activity is None:
        return COUNTS_KERNELS if util is not None else WITHOUT_COPIES if activity is not None else None
    return WITHOUT_COPIES if _beside_kernels(work) or far_steadier(activity, util) else COUNTS_KERNELS


def far_steadier(activity: Mean, util: Mean) -> bool:
    """Tell whether GPM, which counts all of the time, scatters far less than NVML, which looks at parts of it: then the load comes in a rhythm near NVML's own."""
    return _scatter(util) > STEADIER * _scatter(activity)


def _scatter(mean: Mean) -> float:
    return (mean.high - mean.low) / mean.value if mean.value else float("inf")


def interval(
    work: StepWork, mean: Mean, period_s: float, in_part_ns: float, *, kernels: float = KERNELS
) -> tuple[float, float]:
    """Return the ends of the 90 % interval as shares of the step time: independent errors in quadrature.

    How far utilization scatters over the training is measured (``mean``); what it cannot show are ``kernels``, and what the host does: HOST of the time that the GPU waits.
    """
    resident = work.resident_ns
    seen_s = mean.seconds * min(FREQUENT_S / period_s, 1.0)
    waits = HOST * (1 - mean.value / 100) * max(ENOUGH_S / seen_s, 1.0) ** 0.5
    copies = in_part_ns / 2 / (resident + in_part_ns / 2)
    dispatch, graphs = work.dispatched / resident, work.in_graphs / resident
    both = (kernels, waits, ROUNDING_PCT / mean.value, copies)
    lower = (
        dispatch * (work.dispatch.ns - work.dispatch.low_ns),
        graphs * (GRAPH_DISPATCH.ns - GRAPH_DISPATCH.low_ns),
        (work.occupied_ns - work.least_ns) / resident,
        1 - mean.value / max(mean.high, mean.value),
    )
    upper = (
        dispatch * (work.dispatch.high_ns - work.dispatch.ns),
        graphs * (GRAPH_DISPATCH.high_ns - GRAPH_DISPATCH.ns),
        mean.value / max(mean.low, 0.1 * mean.value) - 1,
    )
    down, up = (sum(part**2 for part in (*both, *parts)) ** 0.5 for parts in (lower, upper))
    return max(1 - down, 0.05), 1 + up


def _bound(work: StepWork, mean: Mean, column: str) -> Witness:
    """Return the lower bound that is left where the GPU waits in collectives: its own work at the utilization it shows."""
    own = work.occupied_ns - work.communication_ns
    low = own / mean.value / 1e4 * (1 - BOUND_OFF)
    note = (
        f"The GPU waits for others inside collectives, which {NAMES[column]} counts as busy: its own {in_words(own / 1e6, 4)} of a step at "
        f"{mean.value:.3g} % bound the step from below only."
    )
    return Witness("telemetry", None, low, None, (note,))

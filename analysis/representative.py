"""Do the profiled steps speak for the run? Telemetry from outside the profile tells what a step seems to take without it.

A profile of a few steps may find a prefetch queue full that the run keeps empty. The kernels of a step take the same time in both, so
kernel time per step ÷ mean utilization is the step time that the run seems to have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.intervals import union
from analysis.metrics import Reading

NOT_REPRESENTATIVE = (
    1.25  # of 54 runs with telemetry both unrepresentative ones lie above (1.7, 4.9), 51 below and one at 1.254
)
LEAST_SAMPLES = 10  # fewer utilization windows (1/6 to 1 s each) are moments, not a run
LEAST_UTIL_PCT = 2.0  # utilization is a whole percentage: below 2 % its rounding alone moves the step time by more than 25 %
SHORT_KERNEL_NS = (
    20_000  # utilization counts a window busy while kernels shorter than 20 µs follow each other: it reads too high
)
HOLE_PERIODS = 3.0  # a distance of more than three sampling periods is a hole, not a sample
PAUSE_FACTOR, PAUSE_SLACK_S = (
    1.5,
    0.3,
)  # a pause longer than the longest in the middle of the telemetry by this is before or after the run


@dataclass(frozen=True)
class Representativeness:
    """``represents`` is None where telemetry cannot tell, with the reason in ``sentence``. ``step_ns`` is the step telemetry suggests."""

    represents: bool | None
    step_ns: float | None
    utilization: float | None
    sentence: str

    def reading(self) -> Reading | None:
        """Return telemetry's step time in ms where the profiled steps do not represent the run, else None: the profile is the better number."""
        if self.represents is not False or self.step_ns is None:
            return None
        return Reading(
            self.step_ns / 1e6,
            trust="caution",
            notes=(self.sentence, "From telemetry alone a step time is good to 10 % at best."),
        )


def judge(
    time_ns: npt.ArrayLike,
    util_pct: npt.ArrayLike,
    profile_ns: tuple[int, int] | None,
    kernel_ns_per_step: float,
    kernels_per_step: float,
    estimate_ns: float | None,
) -> Representativeness:
    """Compare the estimate of the unprofiled step with telemetry.

    ``time_ns`` and ``util_pct`` are one device's samples (NaN where utilization is missing); those within ``profile_ns`` are left out (None: clocks
    cannot be compared, all count). ``kernel_ns_per_step`` is the union of kernels only: utilization does not count copies.
    """
    if estimate_ns is None or kernel_ns_per_step <= 0:
        return Representativeness(None, None, None, "There is no step to compare telemetry with.")
    share = mean_utilization(time_ns, util_pct, profile_ns)
    if share is None:
        return Representativeness(None, None, None, f"Fewer than {LEAST_SAMPLES} utilization samples lie outside the profile.")
    if share * 100 < LEAST_UTIL_PCT:
        return Representativeness(
            None, None, share, f"Utilization outside the profile is {share:.1%}: too low to tell a step time from."
        )
    step = kernel_ns_per_step / share
    ratio = step / estimate_ns
    seems = f"Kernels take {kernel_ns_per_step / 1e6:.3g} ms of a step, and the GPU is {share:.0%} busy outside the profile: a step seems to take {step / 1e6:.3g} ms"
    if ratio > NOT_REPRESENTATIVE:
        return Representativeness(
            False, step, share, f"{seems}, {ratio:.2g} times the {estimate_ns / 1e6:.3g} ms estimated from the profile. The profiled steps do not represent the run."
        )  # fmt: skip
    short = (
        " (kernels are so short that utilization reads too high)"
        if kernel_ns_per_step < SHORT_KERNEL_NS * kernels_per_step
        else ""
    )
    return Representativeness(
        True, step, share, f"{seems}{short}, in line with the {estimate_ns / 1e6:.3g} ms estimated from the profile."
    )


def mean_utilization(
    time_ns: npt.ArrayLike, util_pct: npt.ArrayLike, leave_out_ns: tuple[int, int] | None = None
) -> float | None:
    """Return the time-weighted mean utilization (0 to 1) of the run's steady part, None with fewer than LEAST_SAMPLES samples.

    A sample stands for the time since the one before; holes in sampling are left out, and so are the idle time before and after
    the run, ``leave_out_ns``, and what follows it where at least LEAST_SAMPLES come before.
    """
    time, util = np.asarray(time_ns, np.int64), np.asarray(util_pct, np.float64)
    order = np.argsort(time, kind="stable")
    time, util = time[order], util[order]
    keep = np.concatenate([[True], np.diff(time) > 0])[: len(time)]
    time, util = time[keep], util[keep]
    if len(time) < LEAST_SAMPLES + 1:
        return None
    span = np.diff(time)
    period = float(np.median(span))
    value = util[1:]
    valid = np.isfinite(value) & (span <= HOLE_PERIODS * period)
    first, last = _running(time, np.where(np.isfinite(value), value, 0) > 0)
    valid[:first] = False
    valid[last:] = False
    if leave_out_ns is not None:
        before, after = valid & (time[1:] <= leave_out_ns[0]), valid & (time[:-1] >= leave_out_ns[1])
        # What hooks the driver's calls stays in place when the profile has ended, and slows the host further on.
        valid = before if before.sum() >= LEAST_SAMPLES else before | after
    if valid.sum() < LEAST_SAMPLES:
        return None
    return float((value * span)[valid].sum() / span[valid].sum() / 100)


def _running(time: npt.NDArray[np.int64], busy: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return the range of samples between the pauses, around the middle, that are longer than any pause in the middle half."""
    idle = union(time[:-1][~busy], time[1:][~busy])
    lengths = idle.ends - idle.starts
    low, high = (int(np.quantile(time, q)) for q in (0.25, 0.75))
    inner = (idle.starts >= low) & (idle.ends <= high)
    longest = int(lengths[inner].max()) if inner.any() else 0
    limit = PAUSE_FACTOR * longest + PAUSE_SLACK_S * 1e9
    middle = int(np.median(time))
    before = idle.ends[(lengths > limit) & (idle.ends <= middle)]
    after = idle.starts[(lengths > limit) & (idle.starts >= middle)]
    first = int(np.searchsorted(time[:-1], before[-1])) if len(before) else 0
    last = int(np.searchsorted(time[1:], after[0], side="right")) if len(after) else len(busy)
    return first, last

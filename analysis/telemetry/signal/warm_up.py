"""Leading steps of a loop that differ from its later ones.

They are warm-up, or steps of a host that fills the GPU's queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.pauses import REASONS
from sawtooth.analysis.metrics.step_time_evidence import HOST_SPEED_FACTOR
from sawtooth.ingest.loop.step_parts import StepSpan

MIN_STEPS = 10  # If there are fewer steps, all of them may be warm-up.
WARM_UP_SHARE = 0.10  # Leading steps that differ from the later median by more than this share are warm-up.
DRIFT_STEPS = 3  # At least this many slow leading steps can be a change of the host's speed; fewer are warm-up.
MIN_LEAD = 0.3  # Steps. While a host fills the GPU's queue, it gets ahead of the GPU by at least this much.
MIN_LEAD_SIGMAS = 4.0  # The lead is at least this many standard deviations of a sum of so many steps.
MIN_SHORTER = 0.02  # Steps that are shorter by a smaller share may have other reasons than a queue that fills.
# The first evaluation or checkpoint loads kernels and allocates memory. It is warm-up if it takes this many times as long as each
# later one: with 12 batches on an H200 it took 0.62 s, and 0.11 to 0.15 s later.
FIRST_TIME_RATIO, MIN_LATER_TIMES = 2.0, 3
MAD_TO_SIGMA = 1.4826  # Ratio of standard deviation to median absolute deviation for normally distributed values.

F64 = npt.NDArray[np.float64]


def without_warm_up(*parts: F64) -> list[F64]:
    """Return each part without leading steps that differ from the later half of all steps.

    Warm-up steps are slower than later ones, or faster while the host fills the GPU's queue. Several leading steps that differ only
    as much as a host's speed varies are not warm-up. In a loop with bursts, few steps are close to the median, so this test would
    remove most steps. If it would remove more than half, nothing is removed.
    """
    settled = _without_leading(_warm_up_steps, parts)
    return settled if sum(map(len, settled)) >= sum(map(len, parts)) / 2 else list(parts)


def slow_first_spans(spans: Sequence[StepSpan]) -> list[StepSpan]:
    """Return the first span of each phase in REASONS, if it takes much longer than all later ones."""
    first_spans: list[StepSpan] = []
    for phase in REASONS:
        of_phase = [span for span in spans if span.phase == phase]
        if len(of_phase) > MIN_LATER_TIMES and of_phase[0].ns > FIRST_TIME_RATIO * max(span.ns for span in of_phase[1:]):
            first_spans.append(of_phase[0])
    return first_spans


def _warm_up_steps(shares: F64) -> int:
    """Return how many leading steps are warm-up; ``shares`` are the steps as shares of the usual one."""
    first = _first_true(np.abs(shares - 1) <= WARM_UP_SHARE)
    return 0 if first >= DRIFT_STEPS and abs(np.median(shares[:first]) - 1) <= HOST_SPEED_FACTOR - 1 else first


def without_queue_filling(*parts: F64) -> list[F64]:
    """Return each part without leading steps that are a little shorter.

    A host takes such steps while it fills the GPU's queue, or if it was faster at first. Step marks cannot tell the two apart.
    """
    return _without_leading(_steps_ahead, parts)


def _without_leading(count: Callable[[F64], int], parts: Sequence[F64]) -> list[F64]:
    """Return each part without its first ``count(shares)`` steps.

    ``shares`` are its steps as shares of the usual step, the median of the later half of all steps. If there are too few steps, all
    of them stay.
    """
    ns = np.concatenate(parts)
    if len(ns) < MIN_STEPS:
        return list(parts)
    median_ns = float(np.median(ns[len(ns) // 2 :]))
    return [part[count(part / median_ns) :] for part in parts]


def _steps_ahead(shares: F64) -> int:
    """Return the number of leading steps until the host's lead is largest.

    Only the first half of the steps counts. 0 if the lead may be chance.
    """
    first, later = np.split(shares, [len(shares) // 2])
    if not len(first):
        return 0
    lead = np.cumsum(1 - first)
    count = int(lead.argmax()) + 1
    spread = float(np.median(np.abs(later - np.median(later)))) * MAD_TO_SIGMA
    is_significant = lead[count - 1] > max(MIN_LEAD, MIN_LEAD_SIGMAS * spread * np.sqrt(count))
    return count if is_significant and np.median(first[:count]) < (1 - MIN_SHORTER) * np.median(later) else 0


def _first_true(mask: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first true value, or the length if there is none."""
    return int(np.argmax(mask)) if mask.any() else len(mask)

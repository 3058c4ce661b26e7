"""Why a GPU takes longer for the same kernels, from its telemetry against its peers': a lower clock, or the power limit that lowers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sawtooth.analysis.run.model import Straggler
from sawtooth.analysis.telemetry.summary import DeviceTelemetry

CLOCK = "clock_sm_mhz"
EXPLAINED = 0.5  # of how much longer the kernels take: those that wait for memory follow the SMs' clock in part only


Sampled = Sequence[DeviceTelemetry | None]


def with_reason(late: Straggler, sampled: Sampled, peers: Sequence[Sequence[int]]) -> Straggler:
    """Return ``late`` with the reason "clock" or "power" where telemetry shows it of all its ranks; ``sampled`` and ``peers`` are by position."""
    if late.kernel_ratio is None or late.reason is not None:
        return late
    reasons = {_reason(late.kernel_ratio, p, sampled, [q for q in peers[p] if q not in late.positions]) for p in late.positions}
    return replace(late, reason=reasons.pop()) if len(reasons) == 1 else late


def _reason(ratio: float, position: int, sampled: Sampled, peers: Sequence[int]) -> str | None:
    mine = sampled[position]
    others = [t for peer in peers if (t := sampled[peer]) is not None and CLOCK in t.means]
    if mine is None or CLOCK not in mine.means or not mine.means[CLOCK] or not others:
        return None
    usual = float(np.median([other.means[CLOCK] for other in others]))
    if usual / mine.means[CLOCK] - 1 < EXPLAINED * (ratio - 1):
        return None
    return "power" if mine.capped and not _mostly_capped(others) else "clock"


def _mostly_capped(others: Sequence[DeviceTelemetry]) -> bool:
    return 2 * sum(other.capped for other in others) > len(others)

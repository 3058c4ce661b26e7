"""The reasons for lower clocks: NVML's clocks event reasons, one row per reason.

Bits are those of nvml.h, nvmlClocksEventReasons. DCGM's field 112 (and dcgm-exporter, and ``dcgmi dmon``'s DVCCTR) has the same
bits. This module uses the standard library only, like ``sawtooth.ingest.quantities``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ReasonKind = Literal["power", "heat", "hardware", "other GPU", "chosen"]


@dataclass(frozen=True)
class ThrottleReason:
    """One reason; ``label`` is for users, ``kind`` says who can act.

    ``nvidia_smi`` is its column after ``clocks_event_reasons.``, if it has one.
    """

    bit: int
    label: str
    kind: ReasonKind
    nvidia_smi: str | None


THROTTLE_REASONS = (
    ThrottleReason(0x1, "idle", "chosen", "gpu_idle"),
    ThrottleReason(0x2, "application clocks", "chosen", "applications_clocks_setting"),
    ThrottleReason(0x4, "power cap", "power", "sw_power_cap"),
    ThrottleReason(0x8, "hardware slowdown", "hardware", "hw_slowdown"),
    ThrottleReason(0x10, "sync boost", "other GPU", "sync_boost"),
    ThrottleReason(0x20, "software thermal slowdown", "heat", "sw_thermal_slowdown"),
    ThrottleReason(0x40, "hardware thermal slowdown", "heat", "hw_thermal_slowdown"),
    ThrottleReason(0x80, "hardware power brake", "hardware", "hw_power_brake_slowdown"),
    ThrottleReason(0x100, "display clocks", "chosen", None),
)

# Reasons that keep a busy GPU below its possible clock. An idle GPU, or clocks that a user set, are not a problem. Sync boost is
# one of these reasons, because the slowest GPU of its group sets the clock.
HOLDING = tuple(reason for reason in THROTTLE_REASONS if reason.kind != "chosen")
HOLDING_BITS = sum(reason.bit for reason in HOLDING)
BY_LABEL: Mapping[str, ThrottleReason] = {reason.label: reason for reason in THROTTLE_REASONS}


def bits_of(kind: ReasonKind) -> int:
    """Return the bits of all reasons of one kind."""
    return sum(reason.bit for reason in THROTTLE_REASONS if reason.kind == kind)


def holding(mask: int) -> list[ThrottleReason]:
    """Return the reasons in a mask that reduce the clocks."""
    return [reason for reason in HOLDING if mask & reason.bit]

"""The reasons for lower clocks: NVML's clocks event reasons, one row per reason.

The bits are nvmlClocksEventReasons of nvml.h. DCGM's field 112 (in dcgm-exporter, and DVCCTR in ``dcgmi dmon``) has the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ReasonKind = Literal["power", "heat", "hardware", "other GPU", "chosen"]


@dataclass(frozen=True)
class ThrottleReason:
    """One reason; ``label`` is the name for users, and ``kind`` is the type of the cause.

    ``nvidia_smi`` is the name of the field after ``clocks_event_reasons.``, or None without a field.
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

# Reasons that keep a busy GPU below its possible clock, without idleness and clocks that a user has set (kind "chosen"). Sync boost is
# included, because the slowest GPU of a group determines the clock.
HOLDING = tuple(reason for reason in THROTTLE_REASONS if reason.kind != "chosen")
HOLDING_BITS = sum(reason.bit for reason in HOLDING)
BY_LABEL: Mapping[str, ThrottleReason] = {reason.label: reason for reason in THROTTLE_REASONS}


def bits_of(kind: ReasonKind) -> int:
    """Return the bits of all reasons of one kind."""
    return sum(reason.bit for reason in THROTTLE_REASONS if reason.kind == kind)


def holding_reasons(mask: int) -> list[ThrottleReason]:
    """Return the reasons in ``mask`` that keep a busy GPU below its possible clock."""
    return [reason for reason in HOLDING if mask & reason.bit]

"""The result of a diagnosis from samples: the finding, its GPUs, its certainty, and a next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "thermal-throttling",
    "power-throttling",
    "hardware-throttling",
    "low-clock",
    "gpu-unlike-peers",
    "utilization-trend",
    "memory-growth",
    "utilization-sawtooth",
    "irregular-dips",
    "several-jobs",
    "host-memory",
    "idle-stretch",
    "low-activity",
    "memory-bound",
    "narrow-pcie-link",
    "memory-errors",
    "xid-error",
    "gpu-lost",
    "several-processes",
]
MOST_NAMED = 4  # GPUs that a sentence names; further ones are counted


@dataclass(frozen=True)
class Observation:
    """One thing that samples show.

    ``size`` is the number in the title, in the unit that ``measure`` names. ``start_ns`` and ``end_ns`` enclose the time in which
    it was seen, and ``share`` is its share of the sampled time. ``seen`` says in sentences what the samples show, and ``basis``
    on how many samples, over which time and with which holes that is based.
    """

    kind: Kind
    devices: tuple[int, ...]
    severity: Literal["critical", "warning", "info"]
    confidence: Literal["high", "medium", "low"]
    measure: str
    size: float
    share: float
    start_ns: int
    end_ns: int
    title: str
    seen: str
    action: tuple[str, str, str]  # verb, object, and how
    record_next: str
    details: dict[str, Any] = field(default_factory=dict)
    basis: str = ""


def named(devices: Sequence[int], of: int) -> str:
    """Name GPUs in a sentence: "GPU 5" or "GPUs 0, 1 and 2", or "the GPU" if a run has only one."""
    if len(devices) == of:
        return "The GPU" if of == 1 else f"All {of} GPUs"
    if len(devices) == 1:
        return f"GPU {devices[0]}"
    if len(devices) > MOST_NAMED:
        return f"{len(devices)} of {of} GPUs"
    return f"GPUs {', '.join(map(str, devices[:-1]))} and {devices[-1]}"


def lowered(name: str) -> str:
    """Return the name for the middle of a sentence."""
    return name if name.startswith("GPU") else name[0].lower() + name[1:]


def duration(seconds: float) -> str:
    """Return a length of time for a sentence, such as "45 s", "12 min" or "3.1 h"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.1f} h"


def samples_of(count: int, of: int) -> str:
    """Return "80 of 120 samples", or "all 120 samples"."""
    return f"all {of:,} samples" if count == of else f"{count:,} of {of:,} samples"


def verb(devices: Sequence[int], one: str, many: str) -> str:
    """Return the verb form for the number of GPUs."""
    return one if len(devices) == 1 else many

"""One observation made from samples, with its GPUs, certainty and next step; and words for sentences."""

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
MAX_GPUS_NAMED = 4  # If there are more, a sentence counts them instead of naming them.


@dataclass(frozen=True)
class Observation:
    """One observation from the samples.

    ``value`` is the number in the title, in ``unit``. ``start_ns`` and ``end_ns`` enclose the time in which it was observed, and
    ``time_share`` is its share of the sampled time. ``evidence`` says in sentences what the samples show. ``sampling`` is a
    sentence on the number of samples, their time range and telemetry gaps.
    """

    kind: Kind
    devices: tuple[int, ...]
    severity: Literal["critical", "warning", "info"]
    confidence: Literal["high", "medium", "low"]
    unit: str
    value: float
    time_share: float
    start_ns: int
    end_ns: int
    title: str
    evidence: str
    action: tuple[str, str, str]  # Verb, object and detail of an Action.
    record_next: str
    details: dict[str, Any] = field(default_factory=dict)
    sampling: str = ""


def gpus_in_words(devices: Sequence[int], total: int) -> str:
    """Return the GPUs in words: "The GPU", "All 8 GPUs", "GPU 5", "GPUs 0, 1 and 2" or "5 of 8 GPUs"."""
    if len(devices) == total:
        return "The GPU" if total == 1 else f"All {total} GPUs"
    if len(devices) == 1:
        return f"GPU {devices[0]}"
    if len(devices) > MAX_GPUS_NAMED:
        return f"{len(devices)} of {total} GPUs"
    return f"GPUs {', '.join(map(str, devices[:-1]))} and {devices[-1]}"


def mid_sentence(name: str) -> str:
    """Return the name for the middle of a sentence."""
    return name if name.startswith("GPU") else name[0].lower() + name[1:]


def duration(seconds: float) -> str:
    """Return a length of time for a sentence, such as "45 s", "12 min" or "3.1 h"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 10_800 else f"{seconds / 3600:.1f} h"


def count_of_samples(count: int, total: int) -> str:
    """Return "80 of 120 samples", or "all 120 samples"."""
    return f"all {total:,} samples" if count == total else f"{count:,} of {total:,} samples"


def is_or_are(devices: Sequence[int]) -> str:
    """Return the verb form for the number of GPUs."""
    return "is" if len(devices) == 1 else "are"

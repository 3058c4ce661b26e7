"""What a diagnosis cannot say for lack of samples, and what the tools of each maker record more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, LEAST_NS, LEAST_SAMPLES, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Kind, Observation, duration

# Kinds of observations, the columns of which one is enough for them, what is lacking, and how to record it with each maker's tools.
NEEDS: tuple[tuple[Kind, tuple[str, ...], str, dict[str, str]], ...] = (
    ("thermal-throttling", ("clock_event_mask", "thermal_violation_pct"), "reasons for lower clocks",
     {"nvidia": "add clocks_event_reasons.active, clocks.sm and clocks.max.sm to nvidia-smi --query-gpu",
      "amd": "record amd-smi metric --throttle --clock", "jetson": "tegrastats has none"}),
    ("utilization-trend", BUSY, "utilization", {"nvidia": "add utilization.gpu", "amd": "record amd-smi metric --usage"}),
    ("memory-growth", ("mem_used_bytes",), "memory in use", {"nvidia": "add memory.used", "amd": "record amd-smi metric --mem-usage"}),
    ("low-activity", ("sm_active_pct", "tensor_active_pct", "power_limit_w"), "activity of SMs and tensor cores",
     {"nvidia": "record it with sawtooth sample or dcgmi dmon -e 1002,1004,1005", "jetson": "a profile of nsys has it"}),
    ("narrow-pcie-link", ("pcie_width", "pcie_gen"), "PCIe link",
     {"nvidia": "add pcie.link.width.current and pcie.link.width.max", "amd": "record amd-smi metric --pcie"}),
    ("memory-errors", ("ecc_uncorrected_count",), "ECC counters",
     {"nvidia": "add ecc.errors.uncorrected.volatile.total", "amd": "record amd-smi metric --ecc"}),
    ("xid-error", ("xid_last",), "Xid errors", {"nvidia": "DCGM has them, and the kernel's log (dmesg)"}),
)  # fmt: skip
# What the GPUs of a maker do not have.
ABSENT: dict[str, tuple[Kind, ...]] = {
    "jetson": ("narrow-pcie-link", "memory-errors", "xid-error"),
    "amd": ("low-activity", "xid-error"),
    "other": ("low-activity", "xid-error"),
}
# What to record next with the tools of other makers, where NVIDIA's are named for its own GPUs.
RECORD_NEXT: dict[str, dict[Kind, str]] = {
    "amd": {
        "thermal-throttling": "amd-smi metric --throttle --clock --temperature while it happens",
        "hardware-throttling": "amd-smi metric --throttle --clock --power while it happens",
        "power-throttling": "amd-smi metric --power --clock, to see how near the draw is to the limit",
        "low-clock": "amd-smi metric --throttle --clock --temperature --power",
        "narrow-pcie-link": "amd-smi metric --pcie while the GPU works",
        "memory-errors": "amd-smi metric --ecc --ecc-blocks",
        "several-processes": "amd-smi process",
        "gpu-lost": "the kernel's log (dmesg), and amd-smi list",
    },
    "other": {"gpu-lost": "the kernel's log (dmesg)"},
}
NOT_THEIRS = "what the tools of this GPU's maker show while it happens"
OF_NVIDIA = ("nvidia-smi", "dcgmi", "clocks_event_reasons", "enforced.power.limit")
LISTED = {"amd": "amd-smi list"}  # the command that lists the GPUs
MAKERS = (("jetson", "jetson"), ("amd", "amd"), ("instinct", "amd"), ("radeon", "amd"), ("intel", "other"), ("npu", "other"))


class Unseen(NamedTuple):
    """A kind of observation that the samples cannot show, and the reason."""

    kind: Kind
    because: str


def unseen(gpus: Sequence[DeviceSamples]) -> tuple[Unseen, ...]:
    """Return what the samples of a host's GPUs cannot show."""
    if gpus and not any(gpu.enough for gpu in gpus):
        most = max(len(gpu.times) for gpu in gpus)
        seconds = max(int(gpu.times[-1] - gpu.times[0]) for gpu in gpus) / 1e9
        because = f"{most} samples over {duration(seconds)} are too few: it needs {LEAST_SAMPLES} over {LEAST_NS / 1e9:.0f} s"
        return tuple(Unseen(kind, because) for kind, *_ in NEEDS)
    maker = _maker(gpus)
    lacking = [
        (kind, f"the samples have no {lacks}{f': {how[maker]}' if maker in how else ''}")
        for kind, columns, lacks, how in NEEDS
        if kind not in ABSENT.get(maker, ()) and not any(column in gpu for gpu in gpus for column in columns)
    ]
    return tuple(Unseen(kind, because) for kind, because in lacking)


def with_tools(one: Observation, gpus: Sequence[DeviceSamples]) -> Observation:
    """Return the observation with tools of its GPU's maker instead of NVIDIA's."""
    maker = _maker([gpu for gpu in gpus if gpu.device in one.devices])
    if maker == "nvidia":
        return one
    verb, of, how = one.action
    if "dcgmi" in how:
        how = ": a profile (sawtooth run) has the kernels."
    how = how.replace("nvidia-smi -L", LISTED.get(maker, "its maker's tool"))
    record = one.record_next
    if any(tool in record for tool in OF_NVIDIA):
        record = RECORD_NEXT.get(maker, {}).get(one.kind, NOT_THEIRS)
    return replace(one, action=(verb, of, how), record_next=record)


def _maker(gpus: Sequence[DeviceSamples]) -> str:
    """Return whose tools record more of these GPUs, by their names."""
    names = " ".join(gpu.name or "" for gpu in gpus).lower()
    return next((maker for word, maker in MAKERS if word in names), "nvidia")

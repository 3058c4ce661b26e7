"""Observations that cannot be made because samples or columns are missing, and how to record more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, MIN_NS, MIN_SAMPLES, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Kind, Observation, duration


class _Need(NamedTuple):
    """What a kind of observation needs: at least one of ``columns``.

    ``missing`` names the data if none of the columns is recorded. ``how_to_record`` is by tool family.
    """

    kind: Kind
    columns: tuple[str, ...]
    missing: str
    how_to_record: dict[str, str]


NEEDS = (
    _Need("thermal-throttling", ("clock_event_mask", "thermal_violation_pct"), "reasons for lower clocks",
          {"nvidia": "add clocks_event_reasons.active, clocks.sm and clocks.max.sm to nvidia-smi --query-gpu",
           "amd": "record amd-smi metric --throttle --clock", "jetson": "tegrastats does not report them"}),
    _Need("utilization-trend", BUSY, "utilization", {"nvidia": "add utilization.gpu", "amd": "record amd-smi metric --usage"}),
    _Need("memory-growth", ("mem_used_bytes",), "memory in use", {"nvidia": "add memory.used", "amd": "record amd-smi metric --mem-usage"}),
    _Need("low-activity", ("sm_active_pct", "tensor_active_pct", "power_limit_w"), "activity of SMs and tensor cores",
          {"nvidia": "record it with sawtooth sample or dcgmi dmon -e 1002,1004,1005", "jetson": "a profile of nsys contains it"}),
    _Need("narrow-pcie-link", ("pcie_width", "pcie_gen"), "PCIe link",
          {"nvidia": "add pcie.link.width.current and pcie.link.width.max", "amd": "record amd-smi metric --pcie"}),
    _Need("memory-errors", ("ecc_uncorrected_count",), "ECC counters",
          {"nvidia": "add ecc.errors.uncorrected.volatile.total", "amd": "record amd-smi metric --ecc"}),
    _Need("xid-error", ("xid_last",), "column of Xid errors", {"nvidia": "record them with DCGM, or read the kernel's log (dmesg)"}),
)  # fmt: skip
# Observations that do not apply to the GPUs of a tool family; they are not reported as missing.
NOT_APPLICABLE: dict[str, tuple[Kind, ...]] = {
    "jetson": ("narrow-pcie-link", "memory-errors", "xid-error"),
    "amd": ("low-activity", "xid-error"),
    "other": ("low-activity", "xid-error"),
}
# What to record next with other tool families, for observations that name NVIDIA's tools.
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
OTHER_RECORD_NEXT = "what the tools of this GPU's maker show while it happens"
NVIDIA_TOOLS = ("nvidia-smi", "dcgmi", "clocks_event_reasons", "enforced.power.limit")
LIST_COMMANDS = {"amd": "amd-smi list"}  # These commands of a vendor's tools list the GPUs.
# Parts of GPU names, and the family of tools that records these GPUs.
TOOLS_BY_NAME = (
    ("jetson", "jetson"),
    ("amd", "amd"),
    ("instinct", "amd"),
    ("radeon", "amd"),
    ("intel", "other"),
    ("npu", "other"),
)


class NotObservable(NamedTuple):
    """A kind of observation that the samples cannot show, and the reason."""

    kind: Kind
    reason: str


def not_observable(gpus: Sequence[DeviceSamples]) -> tuple[NotObservable, ...]:
    """Return what the samples of a host's GPUs cannot show."""
    if gpus and not any(gpu.enough for gpu in gpus):
        longest = max(gpus, key=lambda gpu: len(gpu.times))
        seconds = int(longest.times[-1] - longest.times[0]) / 1e9
        reason = (
            f"{'1 sample is' if len(longest.times) == 1 else f'{len(longest.times)} samples over {duration(seconds)} are'} too few; "
            f"at least {MIN_SAMPLES} samples over {MIN_NS / 1e9:.0f} s are needed"
        )
        return tuple(NotObservable(need.kind, reason) for need in NEEDS)
    tools = _tool_family(gpus)
    return tuple(
        NotObservable(
            need.kind, ": ".join(filter(None, [f"the samples have no {need.missing}", need.how_to_record.get(tools)]))
        )
        for need in NEEDS
        if need.kind not in NOT_APPLICABLE.get(tools, ()) and not any(column in gpu for gpu in gpus for column in need.columns)
    )


def with_tools(observation: Observation, gpus: Sequence[DeviceSamples]) -> Observation:
    """Return the observation with the tools of its GPUs instead of NVIDIA's."""
    tools = _tool_family([gpu for gpu in gpus if gpu.device in observation.devices])
    if tools == "nvidia":
        return observation
    verb, object_text, detail = observation.action
    if "dcgmi" in detail:
        detail = ": a profile (sawtooth run) has the kernels."
    detail = detail.replace("nvidia-smi -L", LIST_COMMANDS.get(tools, "its maker's tool"))
    record_next = observation.record_next
    if any(tool in record_next for tool in NVIDIA_TOOLS):
        record_next = RECORD_NEXT.get(tools, {}).get(observation.kind, OTHER_RECORD_NEXT)
    return replace(observation, action=(verb, object_text, detail), record_next=record_next)


def _tool_family(gpus: Sequence[DeviceSamples]) -> str:
    """Return the family of tools for these GPUs ("nvidia", "amd", "jetson" or "other"), from their names."""
    names = " ".join(gpu.name or "" for gpu in gpus).lower()
    return next((tools for name, tools in TOOLS_BY_NAME if name in names), "nvidia")

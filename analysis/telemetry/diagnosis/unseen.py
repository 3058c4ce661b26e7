"""What a diagnosis cannot say for lack of samples or quantities, and how to record them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, LEAST_NS, LEAST_SAMPLES, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Kind

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
        because = f"{most} samples over {seconds:.3g} s are too few: it needs {LEAST_SAMPLES} over {LEAST_NS / 1e9:.0f} s"
        return tuple(Unseen(kind, because) for kind, *_ in NEEDS)
    maker = _maker(gpus)
    lacking = [
        (kind, f"the samples have no {lacks}{f': {how[maker]}' if maker in how else ''}")
        for kind, columns, lacks, how in NEEDS
        if kind not in ABSENT.get(maker, ()) and not any(column in gpu for gpu in gpus for column in columns)
    ]
    return tuple(Unseen(kind, because) for kind, because in lacking)


def _maker(gpus: Sequence[DeviceSamples]) -> str:
    """Return whose tools record more of these GPUs, by their names."""
    names = " ".join(gpu.name or "" for gpu in gpus).lower()
    return next((maker for word, maker in MAKERS if word in names), "nvidia")

"""What a diagnosis cannot say for lack of samples or quantities, and how to record them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sawtooth.analysis.telemetry.diagnosis.device_samples import BUSY, LEAST_NS, LEAST_SAMPLES, DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Kind

# Kinds of observations, the columns of which one is enough for them, and what a reader is told without any.
NEEDS: tuple[tuple[Kind, tuple[str, ...], str], ...] = (
    ("thermal-throttling", ("clock_event_mask", "thermal_violation_pct"),
     "the samples have no reasons for lower clocks: add clocks_event_reasons.active, clocks.sm and clocks.max.sm to nvidia-smi --query-gpu"),
    ("utilization-trend", BUSY, "the samples have no utilization: add utilization.gpu"),
    ("memory-growth", ("mem_used_bytes",), "the samples have no memory in use: add memory.used"),
    ("low-activity", ("sm_active_pct", "tensor_active_pct", "power_limit_w"),
     "the samples have no activity of SMs and tensor cores: record it with sawtooth sample or dcgmi dmon -e 1002,1004,1005"),
    ("narrow-pcie-link", ("pcie_width", "pcie_gen"), "the samples have no PCIe link: add pcie.link.width.current and pcie.link.width.max"),
    ("memory-errors", ("ecc_uncorrected_count",), "the samples have no ECC counters: add ecc.errors.uncorrected.volatile.total"),
    ("xid-error", ("xid_last",), "the samples have no Xid errors: DCGM has them, and the kernel's log (dmesg)"),
)  # fmt: skip


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
    return tuple(
        Unseen(kind, because)
        for kind, columns, because in NEEDS
        if not any(column in gpu for gpu in gpus for column in columns)
    )

"""Work that keeps the GPU in use but not busy: few SMs, no tensor cores, or memory as the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples
from sawtooth.analysis.telemetry.diagnosis.observation import Observation, gpus_in_words
from sawtooth.analysis.units import percent

IN_USE_PCT = 85.0  # Utilization above which the GPU counts as busy.
FEW_SMS_PCT = 50.0  # Mean SM activity. Below it, more than half of the SMs have nothing to do.
NO_TENSOR_PCT = 5.0  # Mean tensor-core activity. Below it, almost no kernel uses tensor cores.
MEMORY_PCT = 60.0  # HBM reaches some 90 % of its peak at best.
LOW_POWER_SHARE = 0.5  # Below this share of its power limit, a GPU does no dense work.
MIN_SHARE = 0.1  # Less busy time says little about a run.


def efficiency(gpus: Sequence[DeviceSamples]) -> Iterator[Observation]:
    """Yield GPUs that are in use while their counters show little work."""
    by_kind: dict[str, list[tuple[DeviceSamples, float, dict[str, float]]]] = {}
    for gpu in gpus:
        if (limit := _limit(gpu)) is not None:
            kind, size, means = limit
            by_kind.setdefault(kind, []).append((gpu, size, means))
    for kind, rows in by_kind.items():
        yield _observation(kind, rows, len(gpus))


def _limit(gpu: DeviceSamples) -> tuple[str, float, dict[str, float]] | None:
    """Return what limits the work, the activity and all means; None if nothing does."""
    counters = [c for c in ("gr_active_pct", "util_pct") if c in gpu]
    busy = np.nan_to_num(gpu.values[counters[0]]) >= IN_USE_PCT if counters else gpu.at_work
    if gpu.share(busy) < MIN_SHARE:
        return None
    columns = ("sm_active_pct", "tensor_active_pct", "dram_active_pct", "power_w", "power_limit_w")
    means = {c: m for c in columns if (m := gpu.mean(c, busy)) is not None}
    sm, tensor, dram = (means.get(c) for c in columns[:3])
    if not counters and sm is None:
        return None
    if dram is not None and dram >= MEMORY_PCT:
        return "memory-bound", dram, means
    if counters and sm is not None and sm < FEW_SMS_PCT:
        return "low-activity", sm, means
    if tensor is not None and tensor < NO_TENSOR_PCT and sm is not None:
        return "no-tensor", tensor, means
    if sm is None and "power_limit_w" in means and means.get("power_w", 1e9) < LOW_POWER_SHARE * means["power_limit_w"]:
        return "low-power", means["power_w"] / means["power_limit_w"], means
    return None


def _observation(kind: str, rows: Sequence[tuple[DeviceSamples, float, dict[str, float]]], total: int) -> Observation:
    devices = tuple(gpu.device for gpu, *_ in rows)
    size = float(np.mean([row[1] for row in rows]))
    gpu_names = gpus_in_words(devices, total)
    works, draws = ("uses", "draws") if len(devices) == 1 else ("use", "draw")
    dram = [row[2]["dram_active_pct"] for row in rows if "dram_active_pct" in row[2]]
    memory = f" (memory bandwidth {np.mean(dram):.0f} %)" if dram else ""
    title, evidence, action, severity, confidence = {
        "memory-bound": (
            f"{gpu_names} {works} {size:.0f} % of the memory bandwidth",
            f"That is the mean while utilization is above {IN_USE_PCT:.0f} %. At most about 90 % can be reached, so memory limits most kernels.",
            ("Reduce", "memory traffic", ": fuse elementwise operations (torch.compile), use 16-bit types, or larger batches for small products."),
            "info", "high",
        ),
        "low-activity": (
            f"{gpu_names} {works} only {size:.0f} % of the SMs while utilization is above {IN_USE_PCT:.0f} %",
            f"Utilization counts the time in which any kernel runs, however small{memory}.",
            ("Give", "each kernel more work", ": larger batches, fused operations, or fewer small kernels."),
            "warning", "high",
        ),
        "no-tensor": (
            f"{gpu_names} {works} the tensor cores {size:.1f} % of the time",
            f"That is the mean while utilization is above {IN_USE_PCT:.0f} %.",
            ("Use", "16-bit or TF32 products", ", if the model multiplies matrices: autocast, or torch.set_float32_matmul_precision('high')."),
            "info", "medium",
        ),
        "low-power": (
            f"{gpu_names} {draws} {percent(size)} of the power limit while utilization is above {IN_USE_PCT:.0f} %",
            "Dense work draws most of the limit. Small kernels draw less, and so do waits for memory: samples of SM activity would show which.",
            ("Record", "SM and memory activity", ": dcgmi dmon -e 1002,1004,1005, or sawtooth sample."),
            "info", "low",
        ),
    }[kind]  # fmt: skip
    gpu = rows[0][0]
    return Observation(
        kind="memory-bound" if kind == "memory-bound" else "low-activity",
        devices=devices,
        severity="warning" if severity == "warning" else "info",
        confidence="high" if confidence == "high" else "medium" if confidence == "medium" else "low",
        unit="percent" if kind != "low-power" else "share of the power limit",
        value=size,
        time_share=1.0,
        start_ns=int(gpu.times[0]),
        end_ns=int(gpu.times[-1]),
        title=title,
        evidence=evidence,
        action=(action[0], action[1], action[2]),
        record_next="a profile with shapes (sawtooth run), which names the kernels",
        details={key: float(np.mean([row[2][key] for row in rows if key in row[2]])) for key in rows[0][2]},
    )

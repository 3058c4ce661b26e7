"""A log of ``nvidia-smi --query-gpu --format=csv`` from generated samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from sawtooth.analysis.telemetry.diagnosis.device_samples import DeviceSamples

COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "util_pct": ("utilization.gpu [%]", lambda v: f"{v:.0f} %"),
    "clock_sm_mhz": ("clocks.current.sm [MHz]", lambda v: f"{v:.0f} MHz"),
    "clock_event_mask": ("clocks_event_reasons.active", lambda v: f"0x{int(v):016x}"),
    "temp_c": ("temperature.gpu", lambda v: f"{v:.0f}"),
    "mem_used_bytes": ("memory.used [MiB]", lambda v: f"{v / 2**20:.0f} MiB"),
    "power_w": ("power.draw [W]", lambda v: f"{v:.2f} W"),
}


def smi_log(path: Path, gpus: Sequence[DeviceSamples], columns: Sequence[str] = tuple(COLUMNS), hole: tuple[int, int] = (0, 0)) -> Path:  # fmt: skip
    """Write the samples as nvidia-smi does, GPU by GPU, without the samples numbered in ``hole``."""
    lines = [", ".join(["timestamp", "index", *(COLUMNS[column][0] for column in columns)])]
    for number, time_ns in enumerate(gpus[0].times.tolist()):
        if hole[0] <= number < hole[1]:
            continue
        stamp = datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        for gpu in gpus:
            cells = [COLUMNS[column][1](float(np.nan_to_num(gpu.values[column][number]))) for column in columns]
            lines.append(", ".join([stamp, str(gpu.device), *cells]))
    path.write_text("\n".join(lines) + "\n")
    return path

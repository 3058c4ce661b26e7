"""Write what NVML and GPM say about one GPU as JSON lines until the standard input closes.

Runs as a process of its own, so that the training loop's interpreter neither delays the samples nor is delayed by them.
First line: the device. Every other line: one sample, `t_ns` in Unix nanoseconds, shares in percent, memory in bytes, PCIe in MiB/s.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any

import pynvml as nvml

GPM = {
    "gpm_graphics": 1,
    "gpm_sm": 2,
    "gpm_occupancy": 3,
    "gpm_integer": 4,
    "gpm_tensor_any": 5,
    "gpm_tensor_hmma": 7,
    "gpm_tensor_imma": 9,
    "gpm_dram_bw": 10,
    "gpm_fp64": 11,
    "gpm_fp32": 12,
    "gpm_fp16": 13,
    "gpm_pcie_tx": 20,
    "gpm_pcie_rx": 21,
}
PERIOD_S = 0.1  # GPM answers for windows of 100 ms and more


class GpmWindow:
    """The GPM metrics of the window between two calls of `read`."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.last, self.next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self.last)

    def read(self) -> dict[str, float]:
        """Metrics since the last call; one that the GPU does not answer is left out."""
        nvml.nvmlGpmSampleGet(self.handle, self.next)
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2, request.numMetrics = self.last, self.next, len(GPM)
        for index, metric in enumerate(GPM.values()):
            request.metrics[index].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        self.last, self.next = self.next, self.last
        answers = zip(GPM, request.metrics, strict=False)
        return {name: round(answer.value, 3) for name, answer in answers if answer.nvmlReturn == nvml.NVML_SUCCESS}


def sample(handle: Any, gpm: GpmWindow | None) -> dict[str, float]:
    """One sample."""
    busy, memory = nvml.nvmlDeviceGetUtilizationRates(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        "t_ns": time.time_ns(),
        "gpu_util": busy.gpu,
        "mem_util": busy.memory,
        "mem_used": memory.used,
        "mem_total": memory.total,
        "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "temp_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "sm_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "mem_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "throttle": nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        **(gpm.read() if gpm else {}),
    }


def main() -> None:
    """`python nvml_log.py OUT.jsonl [GPU]`: sample at 10 Hz until the standard input closes."""
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    has_gpm = bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    device = {"name": nvml.nvmlDeviceGetName(handle), "driver": nvml.nvmlSystemGetDriverVersion()}
    with open(sys.argv[1], "w", buffering=1) as out:  # noqa: PTH123 - line-buffered, a kill loses at most one line
        out.write(json.dumps({"meta": True, **device, "gpm": has_gpm, "hz": round(1 / PERIOD_S)}) + "\n")
        gpm, due = GpmWindow(handle) if has_gpm else None, time.monotonic() + PERIOD_S
        while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            out.write(json.dumps(sample(handle, gpm)) + "\n")
            due += PERIOD_S


if __name__ == "__main__":
    main()

# ruff: noqa: N802, N815 - the names are pynvml's
"""A fake pynvml with scripted GPUs, values and failing calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"scripted error {value}")
        self.value = value


class FakeClock:
    """A clock that advances only while code waits on it, or by the scripted cost of an NVML call."""

    def __init__(self, wall_ns: int = 1_800_000_000_000_000_000) -> None:
        self.m = 5_000_000_000
        self.offset = wall_ns - self.m
        self.cpu = 0

    def advance(self, seconds: float) -> None:
        self.m += int(seconds * 1e9)

    def clock(self) -> Any:
        from sawtooth.ingest.sampler.clock import SamplerClock

        def wait(event: threading.Event, seconds: float) -> bool:
            if not event.is_set():
                self.m += max(1, int(seconds * 1e9))
            return event.is_set()

        return SamplerClock(
            wall_ns=lambda: self.m + self.offset, monotonic_ns=lambda: self.m, cpu_ns=lambda: self.cpu, wait=wait
        )


class FakeNvml:
    """A scripted NVML.

    ``fail[(call, uuid or None)] = code`` makes a call fail. ``gpm[uuid]`` and ``util[uuid]`` are functions of the monotonic
    time.
    """

    NVMLError = NVMLError
    nvmlMemory_v2 = 2
    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, time: FakeClock, uuids: tuple[str, ...] = ("GPU-a", "GPU-b"), *, gpm: bool = True) -> None:
        self.time = time
        self.uuids = list(uuids)
        self.gpm_supported = gpm
        self.fail: dict[tuple[str, str | None], int] = {}
        self.cost_s: dict[str, float] = {}
        self.calls: list[str] = []
        self.buffer: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self.mig: list[tuple[str, int]] = []
        self.gpm_requests: list[list[int]] = []

    def _called(self, name: str, uuid: str | None = None) -> None:
        self.calls.append(name)
        self.time.advance(self.cost_s.get(name, 0))
        for key in ((name, uuid), (name, None), ("*", uuid), ("*", None)):
            if key in self.fail and not (key[0] == "*" and name in ("nvmlShutdown",)):
                raise NVMLError(self.fail[key])

    def nvmlInit(self) -> None:
        self._called("nvmlInit")

    def nvmlShutdown(self) -> None:
        self._called("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetNVMLVersion(self) -> str:
        return "13.580"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        self._called("nvmlDeviceGetHandleByIndex", self.uuids[index])
        return self.uuids[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200" + (" MIG 1g.18gb" if handle.startswith("MIG") else "")

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:
        return SimpleNamespace(busId=b"00000000:19:00.0")

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        return 1980

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int) -> Any:
        self._called("nvmlDeviceGetMemoryInfo", handle)
        return SimpleNamespace(total=150_754_820_096, used=5_146_279_936)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        self._called("nvmlDeviceGetUtilizationRates", handle)
        return SimpleNamespace(gpu=71, memory=13)

    def nvmlDeviceGetFieldValues(self, handle: str, ids: list[int]) -> list[Any]:
        self._called("nvmlDeviceGetFieldValues", handle)
        value = {186: 506_727, 82: 61}[ids[0]]
        return [
            SimpleNamespace(
                nvmlReturn=self.fail.get((f"field {ids[0]}", handle), 0), valueType=1, value=SimpleNamespace(uiVal=value)
            )
        ]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self._called("nvmlDeviceGetPowerUsage", handle)
        return 480_000

    def nvmlDeviceGetTemperatureV(self, handle: str, sensor: int) -> int:
        self._called("nvmlDeviceGetTemperatureV", handle)
        return 50

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 50

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        self._called("nvmlDeviceGetClockInfo", handle)
        return 1980 if kind == 1 else 3201

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        self._called("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return 4

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        self._called("nvmlDeviceGetTotalEnergyConsumption", handle)
        return self.time.m // 2_000_000  # 500 W

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        self._called("nvmlDeviceGetTotalEccErrors", handle)
        return 7 if kind == 0 else 0

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 650_000

    def nvmlDeviceGetSamples(self, handle: str, kind: int, last_us: int) -> tuple[int, list[Any]]:
        self._called("nvmlDeviceGetSamples", handle)
        rows = [r for r in self.buffer.get((handle, kind), []) if r[0] > last_us]
        if not rows:
            raise NVMLError(6)
        return 1, [SimpleNamespace(timeStamp=t, sampleValue=SimpleNamespace(uiVal=v)) for t, v in rows]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        self._called("nvmlDeviceGetComputeRunningProcesses", handle)
        return [SimpleNamespace(pid=4_000_000_000, usedGpuMemory=None)]

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        return (1, 1) if self.mig else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, slot: int) -> str:
        if slot >= len(self.mig):
            raise NVMLError(6)
        return self.mig[slot][0]

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return dict(self.mig)[handle]

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> Any:
        return SimpleNamespace(isSupportedDevice=int(self.gpm_supported))

    def nvmlGpmSampleAlloc(self) -> Any:
        return SimpleNamespace(m=None, handle=None)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        self.calls.append("nvmlGpmSampleFree")

    def nvmlGpmSampleGet(self, handle: str, sample: Any) -> None:
        self._called("nvmlGpmSampleGet", handle)
        sample.m, sample.handle = self.time.m, handle

    def nvmlGpmMigSampleGet(self, parent: str, instance: int, sample: Any) -> None:
        self._called("nvmlGpmMigSampleGet", parent)
        sample.m, sample.handle = self.time.m, f"{parent}/{instance}"

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(40)])

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        """Set every metric to its own id in percent.

        Tensor activity is NaN in the first window, and NVLink is not supported.
        """
        assert request.sample2.m > request.sample1.m
        self.time.advance(self.cost_s.get("a GPM metric", 0) * request.numMetrics + self.cost_s.get("nvmlGpmMetricsGet", 0))
        self.gpm_requests.append([request.metrics[i].metricId for i in range(request.numMetrics)])
        for i in range(request.numMetrics):
            metric = request.metrics[i]
            metric.nvmlReturn = 3 if metric.metricId in (60, 61) else 0
            metric.value = float(metric.metricId)
            if metric.metricId == 10 and request.sample1.m <= 5_000_000_000:
                metric.value = float("nan")

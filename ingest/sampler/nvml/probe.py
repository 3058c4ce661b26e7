"""Find GPUs and MIG instances, and probe which values each can report and why others are missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.nvml.fields import BUFFERS, COLUMNS, GPM, SOURCES
from sawtooth.ingest.sampler.nvml.gpm import SLOW_METRIC, WHY_LEFT_OUT, GpmReader
from sawtooth.ingest.sampler.nvml.gpu import SampledGpu, ScheduledRead

# Error codes of NVML (nvmlReturn_t in nvml.h).
UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIBRARY_DIFFERS = 1, 9, 12, 18
NO_PERMISSION, NOT_FOUND, NO_DATA = 4, 6, 21
GPU_LOST, RESET_REQUIRED, GPU_NOT_FOUND = 15, 16, 28
DRIVER_CODES = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIBRARY_DIFFERS})
LOST_CODES = frozenset({GPU_LOST, RESET_REQUIRED, GPU_NOT_FOUND})


class Probe:
    """Probes each GPU by making every call once.

    With ``buffers``, the driver's ring buffers are probed too. With ``every_tick``, all GPM metrics will be read at every tick.
    """

    def __init__(self, nvml: Any, clock: SamplerClock, *, buffers: bool, every_tick: bool) -> None:
        self.nvml = nvml
        self.clock = clock
        self._buffers = buffers
        self._every_tick = every_tick

    def find(self, index: int) -> list[SampledGpu]:
        """Return the GPU with this index and its MIG instances. Raises the bindings' NVMLError."""
        nvml = self.nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpu = SampledGpu(
            0, text(nvml.nvmlDeviceGetUUID(handle)) or f"index-{index}", text(nvml.nvmlDeviceGetName(handle)) or "", handle
        )
        gpu.facts = self._facts(handle) | {"index": index}
        self._probe(gpu)
        return [gpu, *self._instances(gpu)]

    def _facts(self, handle: Any) -> dict[str, Any]:
        nvml = self.nvml
        calls: dict[str, Callable[[], Any]] = {
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).total),
            "compute_capability": lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
            "pci_bus": lambda: text(nvml.nvmlDeviceGetPciInfo(handle).busId),
            "power_limit_w": lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000,
            "max_clock_sm_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, 1),
        }
        facts: dict[str, Any] = {}
        for key, call in calls.items():
            try:
                facts[key] = call()
            except (nvml.NVMLError, AttributeError):
                facts[key] = None
        return facts

    def _instances(self, gpu: SampledGpu) -> list[SampledGpu]:
        nvml = self.nvml
        instances = []
        try:
            if nvml.nvmlDeviceGetMigMode(gpu.handle)[0] != 1:
                return []
            slots = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu.handle)
        except (nvml.NVMLError, AttributeError):
            return []
        for slot in range(slots):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu.handle, slot)
                instance = SampledGpu(
                    0, text(nvml.nvmlDeviceGetUUID(handle)) or "", text(nvml.nvmlDeviceGetName(handle)) or "", handle
                )
                instance.parent, instance.instance = gpu.handle, nvml.nvmlDeviceGetGpuInstanceId(handle)
            except nvml.NVMLError:
                continue  # The slot is empty.
            instance.facts = {"parent_uuid": gpu.uuid, "gpu_instance": instance.instance, "index": gpu.facts["index"]}
            self._probe(instance)
            instances.append(instance)
        return instances

    def alive(self, gpu: SampledGpu) -> bool:
        """Return whether a GPU is still present."""
        try:
            self.nvml.nvmlDeviceGetMemoryInfo(gpu.handle, self.nvml.nvmlMemory_v2)
        except self.nvml.NVMLError as error:
            return error.value not in LOST_CODES
        return True

    def _probe(self, gpu: SampledGpu) -> None:
        gpu.capabilities = {column: {"source": None, "reason": "not offered by this driver"} for column in COLUMNS}
        for source in SOURCES:
            if gpu.capabilities[source.columns[0]]["source"] is not None:
                continue  # An earlier source of the same column works.
            if gpu.instance is not None and not source.on_mig:
                reason: str | None = "NVML does not report it for a MIG instance. See the parent GPU"
            else:
                reason = self._reason(source.read, gpu.handle)
            gpu.note(source.columns, None if reason else source.call, reason)
            if reason is None:
                gpu.sources.append(ScheduledRead(source))
        for buffer in BUFFERS if self._buffers and gpu.instance is None else ():
            read_buffer = partial(_read_samples, sampling_type=buffer.sampling_type)
            if self._reason(read_buffer, gpu.handle) is None:
                gpu.buffers.append(ScheduledRead(buffer))
                gpu.capabilities[buffer.column]["buffer"] = "nvmlDeviceGetSamples"
        self._probe_gpm(gpu)

    def _reason(self, read: Any, handle: Any) -> str | None:
        """Return why a call does not work; None if it works. Raises NVMLError for a lost GPU or driver."""
        try:
            read(self.nvml, handle)
        except self.nvml.NVMLError as error:
            if error.value in DRIVER_CODES or error.value in LOST_CODES:
                raise
            if error.value == NO_DATA:  # There is no data yet, but the call works.
                return None
            return f"NVML code {error.value}: {error}"
        except AttributeError:
            return "these NVML bindings do not have the call"
        return None

    def _probe_gpm(self, gpu: SampledGpu) -> None:
        nvml = self.nvml
        columns = tuple(metric.column for metric in GPM)
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(gpu.parent or gpu.handle).isSupportedDevice:
                gpu.note(columns, None, "GPM needs a GPU of the Hopper generation or newer")
                return
            gpu.gpm = GpmReader(nvml, self.clock, gpu.parent or gpu.handle, gpu.instance, self._every_tick)
            gpu.gpm.open()
        except (nvml.NVMLError, AttributeError) as error:
            gpu.note(columns, None, f"GPM: {error}")
            gpu.free()
            return
        gpu.note(columns, "GPM", None)
        if not self._every_tick:
            gpu.note((SLOW_METRIC,), None, WHY_LEFT_OUT)


def _read_samples(nvml: Any, handle: Any, sampling_type: int) -> Any:
    return nvml.nvmlDeviceGetSamples(handle, sampling_type, 0)


def text(value: Any) -> str | None:
    """Return ``value`` as text. Some bindings return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value

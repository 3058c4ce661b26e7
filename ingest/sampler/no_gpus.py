"""Driver for hosts without GPUs, so that the host itself can be sampled."""

from __future__ import annotations

from typing import Any

from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.nvml.driver import NvmlDriver
from sawtooth.ingest.sampler.nvml.gpu import SampledGpu
from sawtooth.ingest.sampler.nvml.probe import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND

NO_DRIVER_CODES = (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)
ONLY_THE_HOST = "This machine has no working NVIDIA driver. Only its cores, memory, disks and network are sampled."


class NoGpus(NvmlDriver):
    """Driver for a host without devices, which never calls NVML."""

    def __init__(self, clock: SamplerClock) -> None:
        no_nvml: Any = None
        super().__init__(no_nvml, clock, processes=False)

    def open(self) -> list[SampledGpu]:
        """Return an empty list."""
        return []

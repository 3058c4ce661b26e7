"""Table of the sampler's NVML calls, with their columns in the table ``samples`` and their periods.

The metrics of GPM are defined in ``sawtooth.ingest.quantities``. ``nvml`` is the module pynvml, or a fake in tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sawtooth.ingest.quantities.registry import QUANTITIES

Value = float | int | None

TEMPERATURE_GPU = 0  # The value of NVML_TEMPERATURE_GPU.
CLOCK_SM, CLOCK_MEM = 1, 2  # Values of NVML_CLOCK_SM and NVML_CLOCK_MEM.
FIELD_MEMORY_TEMP = 82  # The value of NVML_FI_DEV_MEMORY_TEMP.
# NVML_FI_DEV_POWER_INSTANT. nvmlDeviceGetPowerUsage is a one-second mean on most GPUs since Ampere.
FIELD_POWER_INSTANT = 186
CORRECTED, UNCORRECTED, SINCE_LOADED = 0, 1, 0  # Values of nvmlMemoryErrorType_t and nvmlEccCounterType_t.
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # The members of nvmlValueType_t in its order.


def typed_value(value_type: int, value: Any) -> float:
    """Return the member of an ``nvmlValue_t`` that ``value_type`` names."""
    return float(getattr(value, VALUE_MEMBERS[value_type]))


def field_value(nvml: Any, handle: Any, field_id: int) -> float:
    """Read one NVML field. Raises the binding's NVMLError for the field's own return code."""
    entry = nvml.nvmlDeviceGetFieldValues(handle, [field_id])[0]
    if entry.nvmlReturn != 0:
        raise nvml.NVMLError(entry.nvmlReturn)
    return typed_value(entry.valueType, entry.value)


def _utilization(nvml: Any, handle: Any) -> tuple[Value, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _memory(nvml: Any, handle: Any) -> tuple[Value, ...]:
    return (int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used),)


def _power_instant(nvml: Any, handle: Any) -> tuple[Value, ...]:
    return (round(field_value(nvml, handle, FIELD_POWER_INSTANT) / 1000, 3),)


def _power_mean(nvml: Any, handle: Any) -> tuple[Value, ...]:
    return (round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000, 3),)


def _memory_temperature(nvml: Any, handle: Any) -> tuple[Value, ...]:
    return (field_value(nvml, handle, FIELD_MEMORY_TEMP),)


def _link(nvml: Any, handle: Any) -> tuple[Value, ...]:
    return nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)


def _best_link(nvml: Any, handle: Any) -> tuple[Value, ...]:
    return nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)


@dataclass(frozen=True)
class NvmlCall:
    """One NVML call, the columns that it fills, and its period.

    The call returns one integer, which is divided by ``divisor``. If it returns something else, ``read_values`` makes the call.

    If several calls fill one column, they are tried in order at the start, and the first call that works is used.
    On an H200 at ten calls per second, utilization, power and memory take 50 to 100 µs each, clocks, reasons and temperature 10 to 20 µs,
    and energy 4 ms. The periods follow how often a value changes and how often it is needed.
    """

    columns: tuple[str, ...]
    call: str
    period_s: float  # 0 means every tick.
    longest_period_s: float = 10.0  # Longest period, even if the call is slow.
    read_values: Callable[[Any, Any], tuple[Value, ...]] | None = None
    arguments: tuple[int, ...] = ()
    divisor: int = 1
    on_mig: bool = False  # Whether NVML supports the call for a MIG instance.

    def read(self, nvml: Any, handle: Any) -> tuple[Value, ...]:
        """Return the values of the columns."""
        if self.read_values is not None:
            return self.read_values(nvml, handle)
        value = int(getattr(nvml, self.call)(handle, *self.arguments))
        return (value if self.divisor == 1 else value / self.divisor,)


SOURCES = (
    NvmlCall(("util_pct", "mem_busy_pct"), "nvmlDeviceGetUtilizationRates", 0.2, 1.0, _utilization),
    NvmlCall(("mem_used_bytes",), "nvmlDeviceGetMemoryInfo", 0.5, 5.0, _memory, on_mig=True),
    NvmlCall(("power_w",), "NVML_FI_DEV_POWER_INSTANT", 0.5, 1.0, _power_instant),
    NvmlCall(("power_w",), "nvmlDeviceGetPowerUsage (a one-second mean)", 0.5, 1.0, _power_mean),
    NvmlCall(("temp_c",), "nvmlDeviceGetTemperatureV", 1.0, arguments=(TEMPERATURE_GPU,)),
    NvmlCall(("temp_c",), "nvmlDeviceGetTemperature", 1.0, arguments=(TEMPERATURE_GPU,)),
    NvmlCall(("clock_sm_mhz",), "nvmlDeviceGetClockInfo", 0.5, 2.0, arguments=(CLOCK_SM,)),
    NvmlCall(("clock_event_mask",), "nvmlDeviceGetCurrentClocksEventReasons", 0.5, 2.0),
    NvmlCall(("clock_event_mask",), "nvmlDeviceGetCurrentClocksThrottleReasons", 0.5, 2.0),
    NvmlCall(("clock_mem_mhz",), "nvmlDeviceGetClockInfo", 5.0, 30.0, arguments=(CLOCK_MEM,)),
    NvmlCall(("mem_temp_c",), "NVML_FI_DEV_MEMORY_TEMP", 5.0, 30.0, _memory_temperature),
    NvmlCall(("energy_j",), "nvmlDeviceGetTotalEnergyConsumption", 5.0, 30.0, divisor=1000),
    NvmlCall(("ecc_corrected_count",), "nvmlDeviceGetTotalEccErrors", 10.0, 30.0, arguments=(CORRECTED, SINCE_LOADED)),
    NvmlCall(("ecc_uncorrected_count",), "nvmlDeviceGetTotalEccErrors", 10.0, 30.0, arguments=(UNCORRECTED, SINCE_LOADED)),
    NvmlCall(("pcie_gen", "pcie_width"), "nvmlDeviceGetCurrPcieLinkGeneration", 10.0, 30.0, _link),
    NvmlCall(("pcie_max_gen", "pcie_max_width"), "nvmlDeviceGetMaxPcieLinkGeneration", 30.0, 120.0, _best_link),
    NvmlCall(("power_limit_w",), "nvmlDeviceGetEnforcedPowerLimit", 30.0, 120.0, divisor=1000),
    NvmlCall(("clock_sm_max_mhz",), "nvmlDeviceGetMaxClockInfo", 30.0, 120.0, arguments=(CLOCK_SM,)),
)


@dataclass(frozen=True)
class Buffer:
    """A ring buffer of timestamped samples in the driver, which are denser than ticks but slower to read."""

    column: str
    sampling_type: int
    scale: float
    period_s: float = 1.0
    longest_period_s: float = 10.0


BUFFERS = (
    Buffer("util_pct", 1, 1.0, 10.0),  # NVML_GPU_UTILIZATION_SAMPLES. An H200 has one per 200 ms over 14 s. A call takes 2 ms.
    Buffer("power_w", 0, 1e-3, longest_period_s=2.0),  # NVML_TOTAL_POWER_SAMPLES. There is one per 20 ms, but only over 2.4 s.
)


@dataclass(frozen=True)
class GpmMetric:
    """A GPM metric. It is in percent (scale 1), or scaled from MiB/s to bytes per second."""

    column: str
    metric_id: int
    scale: float = 1.0

    def scaled(self, value: float) -> float | None:
        """Return the scaled value; None for NaN, which can occur in the first window."""
        return round(value * self.scale, 3) if math.isfinite(value) else None


GPM = tuple(
    GpmMetric(quantity.column, quantity.gpm_id, quantity.gpm_scale)
    for quantity in sorted(QUANTITIES, key=lambda q: q.gpm_id or 0)
    if quantity.gpm_id is not None
)

_CALL_COLUMNS = [column for source in SOURCES for column in source.columns]
COLUMNS = tuple(dict.fromkeys([*_CALL_COLUMNS, *(metric.column for metric in GPM)]))

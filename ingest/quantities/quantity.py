"""The type of a sampled quantity, with factors of units and ranges of possible values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Source = Literal[
    "nvml_jsonl",
    "nvidia_smi",
    "nvidia_smi_dmon",
    "dcgmi",
    "dcgm_exporter",
    "nvitop",
    "sawtooth_exporter",
    "wandb",
    "mlflow",
    "nsight_systems",
    "cuspy",
    "table",  # Titles of CSV tables of any tool, in the plain form of sawtooth.ingest.telemetry.headers.
    "gpustat",
]
Names = Mapping[str, float]  # A source's name of the quantity → the factor from its unit to the column's unit.

MIB = float(1 << 20)
MHZ = 1e-6  # Factor from hertz to megahertz.
RATIO = 100.0  # Factor from a share between 0 and 1 to percent.


@dataclass(frozen=True)
class ValueRange:
    """The range of possible values, from ``low`` to ``high`` inclusive. Other values are blanks or damage."""

    low: float
    high: float


# In a short window, a share can be slightly above 100 %, because its two counters use different clocks. More than 110 % is not a measurement.
PERCENT = ValueRange(0, 110)
MEMORY = ValueRange(0, 2.0**44)  # 16 TiB is about fifty times the largest GPU. DCGM's blank values are larger.
TEMPERATURE = ValueRange(0, 150)  # In °C. GPUs switch off near 100 °C.
POWER = ValueRange(0, 10_000)  # A board of several GPUs draws 3 kW. A value in milliwatts is larger.
ENERGY = ValueRange(0, 1e12)  # In joules. This is 1 kW over thirty years.
SM_CLOCK = ValueRange(0, 10_000)  # GPUs reach about 3 GHz.
MEMORY_CLOCK = ValueRange(0, 50_000)  # Effective rates of GDDR7 reach 15 GHz.
MASK = ValueRange(0, 2.0**53 - 1)  # A float represents these integers exactly. DCGM's blank values are larger.
COUNT = ValueRange(0, 2.0**53 - 1)  # A float represents these integers exactly.
PCIE_GENERATION = ValueRange(1, 15)  # The link's registers store the generation in four bits.
PCIE_LANES = ValueRange(1, 32)  # The PCIe specification allows at most 32 lanes.
XID = ValueRange(0, 100_000)  # Documented numbers are below 200.
TRAFFIC = ValueRange(0, 1e13)  # In bytes per second. 10 TB/s is several times the speed of the fastest NVLink.


@dataclass(frozen=True)
class Quantity:
    """One sampled quantity.

    * ``column``: the column of ``samples`` or ``host_samples``. ``about``: the column's comment, also in the sampler's Prometheus text.
    * ``panel``: the chart panel that draws the quantity; None if no chart draws it.
    * ``mean``: whether the mean over a run is meaningful.
    * ``gpm_id``: NVML's id of the GPM metric. ``gpm_scale``: the factor from GPM's unit to the column's unit.
    * ``is_integer``: whether the column stores integers.
    """

    column: str
    unit: str
    label: str
    about: str
    range: ValueRange
    names: Mapping[Source, Names]
    panel: str | None = None
    mean: bool = False
    gpm_id: int | None = None
    gpm_scale: float = 1.0
    is_integer: bool = False

"""What a row of the registry says of a sampled quantity; units and possible ranges."""

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
    "nsight_systems",
]
Names = Mapping[str, float]  # a source's name of the quantity → what its unit is multiplied with to give the column's

MIB = float(1 << 20)
MHZ = 1e-6  # of hertz
RATIO = 100.0  # from 0 to 1, in percent


@dataclass(frozen=True)
class Range:
    """The values that are possible, both ends included. Beyond them is a tool's sign for "blank", or damage."""

    low: float
    high: float


# Counters of two clocks divide to a little more than 100 % of a short window; a tenth more is no measurement.
PERCENT = Range(0, 110)
MEMORY = Range(0, 2.0**44)  # 16 TiB, some fifty times the largest GPU; DCGM's blanks, given in MiB, lie beyond
TEMPERATURE = Range(0, 150)  # GPUs switch off near 100 °C
POWER = Range(0, 10_000)  # a board of several GPUs draws 3 kW; a value in milliwatts lies beyond
ENERGY = Range(0, 1e12)  # 1 kW over thirty years
SM_CLOCK = Range(0, 10_000)
MEMORY_CLOCK = Range(0, 50_000)  # effective rates of GDDR7 reach 15 GHz
MASK = Range(0, 2.0**53 - 1)  # what a float tells apart; DCGM's blanks lie beyond
TRAFFIC = Range(0, 1e13)  # 10 TB/s, several times the fastest NVLink


@dataclass(frozen=True)
class Quantity:
    """One sampled quantity.

    ``column`` is that of ``samples``, ``about`` its comment there and in the sampler's Prometheus text. ``panel`` names the panel of
    the charts that draws it, None where it is only stored. ``mean``: its mean over a run says something. ``gpm_id`` is NVML's id of the
    GPM metric, ``gpm_scale`` from GPM's unit to the column's. ``whole``: stored as an integer.
    """

    column: str
    unit: str
    label: str
    about: str
    range: Range
    names: Mapping[Source, Names]
    panel: str | None = None
    mean: bool = False
    gpm_id: int | None = None
    gpm_scale: float = 1.0
    whole: bool = False

"""What a loader's workers give, by what a sample costs: the law that the benchmark, the capture helper and the findings share.

Standard library only: it is part of the recorder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

COMPUTES, WAITS = 0.8, 0.5  # share of a sample's time on a core: above it computing limits, below it waiting
BEYOND_CORES = 4  # workers for each core, at most: those that mostly wait share one
NORMAL_90 = 1.645
SHARED_CORE = 0.65  # of a core's speed where two threads of the hardware share it; which do, a virtual machine does not tell
# of its speed that a core has on average once several workers compute: clocks, caches and memory are shared too. From one worker to 4, 8, 12 and 14 it
# was 0.72 to 0.89 on two hosts of 16 virtual cores (an H100's and an H200's).
SEVERAL_CORES = 0.82
FEW = 2  # workers that compute: so many have a core each for themselves
BETWEEN_STEPS = 0.8  # of a worker's speed that the training process has, at the least, which loads between its own steps: 0.79 to 0.99 on three hosts
TRAINING = 1  # core that the training's own threads keep busy: they launch, collect batches and pin them
MODEL_OFF = 0.10  # handing batches over and starting late cost what the model does not know


@dataclass(frozen=True)
class SampleCost:
    """Seconds of one sample: ``wall_s`` with ``error_s`` (standard error), ``cpu_s`` of it on a core; ``collate_s`` a batch of ``batch`` samples.

    ``first_s`` is the wall time where nothing had read the sample before, None where that was not seen; ``pin_s`` what one thread of the training takes to
    pin a batch, 0 where none does.
    """

    wall_s: float
    error_s: float
    cpu_s: float
    collate_s: float
    batch: int
    first_s: float | None = None
    pin_s: float = 0.0

    @property
    def computes(self) -> float:
        """Share of the time on a core."""
        return min(self.cpu_s / self.wall_s, 1.0) if self.wall_s else 1.0

    @property
    def limit(self) -> Literal["computing", "waiting"] | None:
        """What a sample's time goes to; None where both count."""
        return "computing" if self.computes >= COMPUTES else "waiting" if self.computes < WAITS else None


@dataclass(frozen=True)
class Rate:
    """Samples a second with ``workers`` (0: in the training process), between ``low`` and ``high``."""

    workers: int
    value: float
    low: float
    high: float


def predict(cost: SampleCost, workers: int, cores: int, seen: int = 1) -> Rate:
    """Return what ``workers`` give: each is busy for a sample's whole time, all together compute on ``cores`` less the training's own, and one thread pins
    their batches.

    ``cost`` was measured with ``seen`` workers. More that compute share what few had for themselves, and few have for themselves what more shared. The
    interval reaches from cores that two workers share to cores that are whole, the training's too.
    """
    off = min(NORMAL_90 * cost.error_s / cost.wall_s + MODEL_OFF, 0.9)
    middle = least = most = 1.0
    share, shared = _busy(cost, workers) > FEW, _busy(cost, seen) > FEW  # then, and when the sample was timed
    if workers > max(seen, 1):
        middle = SEVERAL_CORES if share and not shared else 1.0
        least = SHARED_CORE / SEVERAL_CORES if shared else SHARED_CORE
        most = 1 / BETWEEN_STEPS if not seen else 1.0
    elif workers < seen and shared:
        middle = 1.0 if share else 1 / SEVERAL_CORES
        most = SEVERAL_CORES / SHARED_CORE if share else 1 / SHARED_CORE
    beside = max(cores - TRAINING, cores / 2)
    value, low = (_rate(cost, workers, beside, speed) for speed in (middle, least))
    high = _rate(cost, workers, cores, most)
    return Rate(workers, value, low * (1 - off), high * (1 + off))


def pinning_limits(cost: SampleCost, workers: int, cores: int) -> bool:
    """Tell whether one thread pins the batches of ``workers``, with which ``cost`` was measured, no quicker than they make them."""
    made = replace(cost, pin_s=0.0)
    return cost.pin_s > 0 and workers > 0 and cost.batch / cost.pin_s <= predict(made, workers, cores, workers).value


Stage = Literal["sample", "collate", "pinning"]


def slowest_stage(cost: SampleCost, workers: int, cores: int) -> Stage:
    """Return the stage of loading a batch that limits it, as ``cost`` was measured with ``workers``.

    Each worker makes samples and collates them, so the longer of both counts. One thread of the training pins; without workers it is the loop's own.
    """
    if pinning_limits(cost, workers, cores):
        return "pinning"
    stages: dict[Stage, float] = {"sample": cost.batch * cost.wall_s, "collate": cost.collate_s}
    if not workers:
        stages["pinning"] = cost.pin_s
    return max(stages, key=lambda stage: stages[stage])


def _busy(cost: SampleCost, workers: int) -> float:
    """Return how many of the workers compute at a time."""
    return workers * cost.computes


def _rate(cost: SampleCost, workers: int, cores: float, speed: float) -> float:
    """Return samples a second where a core has ``speed`` of what it had when the sample was timed."""
    computing = cost.cpu_s + cost.collate_s / cost.batch
    each = (
        cost.wall_s + cost.collate_s / cost.batch + min(computing, cost.wall_s + cost.collate_s / cost.batch) * (1 / speed - 1)
    )
    if workers == 0:
        return 1 / (each + cost.pin_s / cost.batch)
    limits = [
        workers / each,
        cores * speed / computing if computing else math.inf,
        cost.batch / cost.pin_s if cost.pin_s else math.inf,
    ]
    return min(limits)


def least_workers(cost: SampleCost, wanted: float, cores: int, most: int, seen: int = 1, *, sure: bool = True) -> int | None:
    """Return the smallest number of workers, up to ``most``, whose rate is ``wanted`` samples a second, ``sure`` or likely; None where none is."""
    rates = (predict(cost, n, cores, seen) for n in range(1, most + 1))
    return next((rate.workers for rate in rates if (rate.low if sure else rate.value) >= wanted), None)

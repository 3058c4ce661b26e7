"""Model of a loader's throughput, from the cost of a sample and the number of workers.

The benchmark, the capture helper and the findings all use this model.
Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

COMPUTING_SHARE = 0.8  # Computing limits a loader if at least this share of a sample's time is spent on a core.
WAITING_SHARE = 0.5  # Waiting limits a loader if less than this share of a sample's time is spent on a core.
MAX_WORKERS_PER_CORE = 4  # Workers that mostly wait can share a core.
NORMAL_90 = 1.645  # Half-width of a 90 % confidence interval in standard errors, for normally distributed values.
# Relative speed of a virtual core that shares a physical core with another virtual core. Virtual machines do not show which virtual cores
# share a physical core.
SHARED_CORE = 0.65
# Relative average speed of a core if several workers compute, because they also share clocks, caches and memory. With 4, 8, 12 and 14
# workers instead of one, it was 0.72 to 0.89 on two hosts with 16 virtual cores (one with an H100, one with an H200).
SEVERAL_CORES = 0.82
UNSHARED_WORKERS = 2  # Up to this many computing workers have a core each.
# The training process loads at this speed relative to a worker, because it loads between its steps. Measured on three hosts: 0.79 to 0.99.
TRAINING_PROCESS_SPEED = 0.8
TRAINING_CORES = 1  # Cores used by the training's own threads, which launch kernels, collect batches and pin them.
MODEL_ERROR = 0.10  # Relative error of the model, which ignores the transfer of batches and late starts of workers.


@dataclass(frozen=True)
class SampleCost:
    """Measured cost of loading one sample and one batch, in seconds.

    ``wall_s``: time for a sample. ``error_s``: standard error of ``wall_s``.
    ``cpu_s``: the part of ``wall_s`` on a core.
    ``collate_s``: time to collate a batch of ``batch`` samples.
    ``first_s``: time for a sample that was never read before, None if not measured.
    ``pin_s``: time for one training thread to pin a batch, 0 without pinning.
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
        """Return the share of a sample's time that is spent on a core."""
        return min(self.cpu_s / self.wall_s, 1.0) if self.wall_s else 1.0

    @property
    def limit(self) -> Literal["computing", "waiting"] | None:
        """Return the part that takes most of a sample's time; None if computing and waiting both matter."""
        return "computing" if self.computes >= COMPUTING_SHARE else "waiting" if self.computes < WAITING_SHARE else None


@dataclass(frozen=True)
class LoaderRate:
    """Samples per second with ``workers`` workers, between ``low`` and ``high``.

    With 0 workers, the training process loads the samples.
    """

    workers: int
    value: float
    low: float
    high: float


def predict(cost: SampleCost, workers: int, cores: int, timed_workers: int = 1) -> LoaderRate:
    """Predict the samples per second that ``workers`` workers deliver.

    The model assumes that each worker is busy for a sample's full time. All workers compute on ``cores`` minus the cores of the training.
    One thread pins all batches.
    ``cost`` was measured with ``timed_workers``. If more workers compute, each core becomes slower, because the workers share clocks, caches
    and memory. If fewer workers compute, each core becomes faster.
    If ``workers`` is larger than ``timed_workers``, the low end of the interval assumes that two workers share each core. The high end
    assumes that the workers can use all ``cores``, including the training's cores.
    """
    error = min(NORMAL_90 * cost.error_s / cost.wall_s + MODEL_ERROR, 0.9)
    speed = low_speed = high_speed = 1.0
    will_share = _busy(cost, workers) > UNSHARED_WORKERS
    shared_before = _busy(cost, timed_workers) > UNSHARED_WORKERS
    if workers > max(timed_workers, 1):
        speed = SEVERAL_CORES if will_share and not shared_before else 1.0
        low_speed = SHARED_CORE / SEVERAL_CORES if shared_before else SHARED_CORE
        high_speed = 1 / TRAINING_PROCESS_SPEED if not timed_workers else 1.0
    elif workers < timed_workers and shared_before:
        speed = 1.0 if will_share else 1 / SEVERAL_CORES
        high_speed = SEVERAL_CORES / SHARED_CORE if will_share else 1 / SHARED_CORE
    worker_cores = max(cores - TRAINING_CORES, cores / 2)
    value, low = _rate(cost, workers, worker_cores, speed), _rate(cost, workers, worker_cores, low_speed)
    high = _rate(cost, workers, cores, high_speed)
    return LoaderRate(workers, value, low * (1 - error), high * (1 + error))


def pinning_limits(cost: SampleCost, workers: int, cores: int) -> bool:
    """Return whether the pinning thread limits the loader, because it is not faster than the workers.

    ``cost`` must have been measured with ``workers`` workers.
    """
    without_pinning = replace(cost, pin_s=0.0)
    return cost.pin_s > 0 and workers > 0 and cost.batch / cost.pin_s <= predict(without_pinning, workers, cores, workers).value


Stage = Literal["sample", "collate", "pinning"]


def slowest_stage(cost: SampleCost, workers: int, cores: int) -> Stage:
    """Return the stage that limits loading. ``cost`` must have been measured with ``workers`` workers.

    Each worker makes samples and collates them, so the longer of the two stages counts. One thread of the training pins batches. Without
    workers, the training loop itself pins them.
    """
    if pinning_limits(cost, workers, cores):
        return "pinning"
    stages: dict[Stage, float] = {"sample": cost.batch * cost.wall_s, "collate": cost.collate_s}
    if not workers:
        stages["pinning"] = cost.pin_s
    return max(stages, key=lambda stage: stages[stage])


def _busy(cost: SampleCost, workers: int) -> float:
    """Return the mean number of workers that compute at the same time."""
    return workers * cost.computes


def _rate(cost: SampleCost, workers: int, cores: float, speed: float) -> float:
    """Return the samples per second if each core runs at ``speed`` times its measured speed."""
    computing_s = cost.cpu_s + cost.collate_s / cost.batch
    measured_s = cost.wall_s + cost.collate_s / cost.batch
    sample_s = measured_s + min(computing_s, measured_s) * (1 / speed - 1)
    if workers == 0:
        return 1 / (sample_s + cost.pin_s / cost.batch)
    limits = [
        workers / sample_s,
        cores * speed / computing_s if computing_s else math.inf,
        cost.batch / cost.pin_s if cost.pin_s else math.inf,
    ]
    return min(limits)


def least_workers(
    cost: SampleCost, needed: float, cores: int, max_workers: int, timed_workers: int = 1, *, sure: bool = True
) -> int | None:
    """Return the smallest number of workers (up to ``max_workers``) for ``needed`` samples per second.

    With ``sure``, the low end of the prediction must reach ``needed``. Otherwise the predicted value must. The result is None if no number
    of workers reaches ``needed``.
    """
    rates = (predict(cost, count, cores, timed_workers) for count in range(1, max_workers + 1))
    return next((rate.workers for rate in rates if (rate.low if sure else rate.value) >= needed), None)

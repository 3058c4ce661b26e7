"""Capacity of the loader's workers, timed inside them by the capture helper.

No step is shorter than the workers' time for its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sawtooth.ingest.loop.loading import LoaderRate, SampleCost, predict
from sawtooth.ingest.loop.page_cache import FirstRead
from sawtooth.ingest.manifest import UserFacts

AT_THE_LIMIT = 0.95  # share of the step from which the workers may limit it, because their time is known to 10 %


class Floors(NamedTuple):
    """The shortest step that a loader's workers allow, in ms: likely, least and most."""

    likely: float
    least: float
    most: float


@dataclass(frozen=True)
class Feeding:
    """The time of the run's workers for one step's batch, in ms, between ``low_ms`` and ``high_ms``."""

    ms: float
    low_ms: float
    high_ms: float
    workers: int

    def limits(self, step_ms: float) -> bool:
        """Return whether the workers probably need as long as a step of ``step_ms``."""
        return self.ms >= AT_THE_LIMIT * step_ms

    def floors_ms(self, step_ms: float, times: float = 1.0) -> Floors:
        """Return the shortest step with ``times`` the batch.

        For the current step, workers need at most ``step_ms``.
        """
        return Floors(*(times * min(ms, step_ms) for ms in (self.ms, self.low_ms, self.high_ms)))


def sample_cost(facts: UserFacts) -> SampleCost | None:
    """Return the loader's time per sample; None if the helper did not measure it."""
    if not facts.loader_sample_ms or not facts.loader_batch or not facts.loader_cores:
        return None
    return SampleCost(
        facts.loader_sample_ms / 1e3,
        (facts.loader_sample_error_ms or 0.0) / 1e3,
        (facts.loader_sample_cpu_ms or 0.0) / 1e3,
        (facts.loader_collate_ms or 0.0) / 1e3,
        max(int(facts.loader_batch), 1),
        pin_s=(facts.loader_pin_ms or 0.0) / 1e3,
    )


def first_read_of(facts: UserFacts) -> FirstRead | None:
    """Return the loader's first reads of its dataset, from disk and memory; None if not counted."""
    share, took, size = facts.loader_first_disk_share, facts.loader_first_sample_ms, facts.loader_first_sample_bytes
    if share is None or took is None or size is None or not facts.loader_dataset_samples or not facts.loader_room_bytes:
        return None
    later_ns = int(facts.loader_later_from_ns) if facts.loader_later_from_ns else None
    samples, later = int(facts.loader_dataset_samples), facts.loader_later_disk_share if later_ns else None
    return FirstRead(share, size, took / 1e3, samples, facts.loader_room_bytes, later, later_ns)


def cores_of(facts: UserFacts) -> int:
    """Return the number of cores that the loader may use."""
    return max(int(facts.loader_cores or 1), 1)


def rate_of(facts: UserFacts) -> LoaderRate | None:
    """Return the samples per second of the run's workers; None if they were not timed.

    Without workers, it is the rate of the training process itself.
    """
    cost = sample_cost(facts)
    if cost is None or facts.loader_workers is None:
        return None
    workers = int(facts.loader_workers)
    return predict(cost, workers, cores_of(facts), workers)


def feeding(facts: UserFacts) -> Feeding | None:
    """Return the workers' time for a step's batch; None if not timed or without workers.

    If the user did not set the samples per step, a step has one batch.
    """
    rate = rate_of(facts)
    if rate is None or not rate.workers or not rate.low > 0:
        return None
    batch = 1e3 * (facts.samples_per_step or facts.loader_batch or 1.0)
    return Feeding(batch / rate.value, batch / rate.high, batch / rate.low, rate.workers)

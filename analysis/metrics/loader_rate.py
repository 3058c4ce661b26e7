"""The time that loader workers need for a step's batch, by the capture helper's measurements.

A step is at least as long as this time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sawtooth.ingest.loop.loading import LoaderRate, SampleCost, predict
from sawtooth.ingest.loop.page_cache import FirstRead
from sawtooth.ingest.manifest import UserFacts

AT_THE_LIMIT = 0.95  # Workers may limit a step if they need this share of it, because their time is known only to 10 %.


class LoaderFloors(NamedTuple):
    """The shortest step that a loader's workers allow, in ms: the likely value and its bounds."""

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
        """Return whether the workers probably need as long for a batch as a step takes (``step_ms``)."""
        return self.ms >= AT_THE_LIMIT * step_ms

    def floors_ms(self, step_ms: float, times: float = 1.0) -> LoaderFloors:
        """Return the shortest step with a batch that is larger by the factor ``times``.

        For the current batch, the workers need at most ``step_ms``, because the run's step includes their time.
        """
        return LoaderFloors(*(times * min(ms, step_ms) for ms in (self.ms, self.low_ms, self.high_ms)))


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
    """Return how the loader first read its dataset, from disk or memory; None if reads were not counted."""
    share, sample_ms, size = facts.loader_first_disk_share, facts.loader_first_sample_ms, facts.loader_first_sample_bytes
    if share is None or sample_ms is None or size is None or not facts.loader_dataset_samples or not facts.loader_room_bytes:
        return None
    later_ns = int(facts.loader_later_from_ns) if facts.loader_later_from_ns else None
    samples, later = int(facts.loader_dataset_samples), facts.loader_later_disk_share if later_ns else None
    return FirstRead(share, size, sample_ms / 1e3, samples, facts.loader_room_bytes, later, later_ns)


def cores_of(facts: UserFacts) -> int:
    """Return the number of cores that the loader may use."""
    return max(int(facts.loader_cores or 1), 1)


def rate_of(facts: UserFacts) -> LoaderRate | None:
    """Return the samples per second that the run's workers can load; None if they were not timed.

    A loader without workers has the rate of the training process.
    """
    cost = sample_cost(facts)
    if cost is None or facts.loader_workers is None:
        return None
    workers = int(facts.loader_workers)
    return predict(cost, workers, cores_of(facts), workers)


def workers_time(facts: UserFacts) -> Feeding | None:
    """Return the workers' time for a step's batch; None without workers or without their times.

    A step is assumed to use one batch of the loader unless the user set the samples per step.
    """
    rate = rate_of(facts)
    if rate is None or not rate.workers or not rate.low > 0:
        return None
    batch = 1e3 * (facts.samples_per_step or facts.loader_batch or 1.0)
    return Feeding(batch / rate.value, batch / rate.high, batch / rate.low, rate.workers)

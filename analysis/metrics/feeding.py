"""What the loader's workers give, by the capture helper's own timing in them: no step is shorter than they need for its batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sawtooth.ingest.loop.loading import Rate, SampleCost, predict
from sawtooth.ingest.loop.page_cache import FirstRead
from sawtooth.ingest.manifest import UserFacts

AT_THE_LIMIT = 0.95  # of the step: what workers need is known to 10 %


class Floors(NamedTuple):
    """The shortest step that a loader's workers can feed, ms: likely, at the least and at the most."""

    likely: float
    least: float
    most: float


@dataclass(frozen=True)
class Feeding:
    """What as many workers as there are need for one step's batch, ms, between ``low_ms`` and ``high_ms``."""

    ms: float
    low_ms: float
    high_ms: float
    workers: int

    def limits(self, step_ms: float) -> bool:
        """Tell whether they likely need as long as a step of ``step_ms`` takes."""
        return self.ms >= AT_THE_LIMIT * step_ms

    def floors_ms(self, step_ms: float, times: float = 1.0) -> Floors:
        """Return the shortest step with ``times`` the batch; of a step as it is they need no more than ``step_ms``."""
        return Floors(*(times * min(ms, step_ms) for ms in (self.ms, self.low_ms, self.high_ms)))


def sample_cost(facts: UserFacts) -> SampleCost | None:
    """Return what a sample took the loader's processes; None where the helper did not time them."""
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
    """Return what the loader read of its dataset at first, from the disk and from memory; None where the helper did not count it."""
    share, took, size = facts.loader_first_disk_share, facts.loader_first_sample_ms, facts.loader_first_sample_bytes
    if share is None or took is None or size is None or not facts.loader_dataset_samples or not facts.loader_room_bytes:
        return None
    later_ns = int(facts.loader_later_from_ns) if facts.loader_later_from_ns else None
    samples, later = int(facts.loader_dataset_samples), facts.loader_later_disk_share if later_ns else None
    return FirstRead(share, size, took / 1e3, samples, facts.loader_room_bytes, later, later_ns)


def cores_of(facts: UserFacts) -> int:
    """Return the cores that the loader may use."""
    return max(int(facts.loader_cores or 1), 1)


def rate_of(facts: UserFacts) -> Rate | None:
    """Return the samples a second that the run's workers give, or the training where it loads by itself; None where they were not timed."""
    cost = sample_cost(facts)
    if cost is None or facts.loader_workers is None:
        return None
    workers = int(facts.loader_workers)
    return predict(cost, workers, cores_of(facts), workers)


def feeding(facts: UserFacts) -> Feeding | None:
    """Return what the run's workers need for a step's batch; None where they were not timed, or the training loads by itself. Where nobody said how
    many samples a step has: a batch."""
    rate = rate_of(facts)
    if rate is None or not rate.workers or not rate.low > 0:
        return None
    batch = 1e3 * (facts.samples_per_step or facts.loader_batch or 1.0)
    return Feeding(batch / rate.value, batch / rate.high, batch / rate.low, rate.workers)

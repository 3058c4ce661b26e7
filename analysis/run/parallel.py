"""What is known of a job's parallelism: its process groups and its pipeline. Data only; ``analysis.ranks`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Parallelism = Literal["dp", "tp", "pp", "ep", "cp"]


@dataclass(frozen=True)
class GroupUse:
    """What the process groups of one kind do in a counted step, means over their ranks.

    ``parallelism`` is data, tensor, pipeline, expert or context parallel, None where nothing tells; ``within_host`` None where hosts are unknown.
    ``kinds`` are the collectives, most frequent first. ``bytes_per_step`` is of one group, as in ``collectives.load``. ``transfer_ms`` is how long its kernels
    run on a rank once the last rank has come, ``exposed_ms`` of that without computation beside it. Bandwidths are of the transfers, decimal GB/s;
    ``link_gb_s`` is what ``link`` carries in one direction, None where the hardware table has no such link.
    """

    parallelism: Parallelism | None
    groups: int
    group_size: int
    within_host: bool | None
    kinds: tuple[str, ...]
    calls_per_step: float
    bytes_per_step: float | None
    smallest_bytes: int | None
    largest_bytes: int | None
    transfer_ms: float
    exposed_ms: float
    algorithm_gb_s: float | None
    bus_gb_s: float | None
    link: str | None
    link_gb_s: float | None


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's schedule. ``stages`` are the positions of each stage's ranks, first stage first; ``microbatches`` those of a step, ``schedule`` GPipe or
    1F1B where the order shows it, or interleaved: each stage has several ``chunks`` of the model.

    ``stage_ms`` is what a GPU of each stage works in a step of ``step_ms``, ``bubble_share`` the mean share in which it does not, ``ideal_share``
    what equal stages wait for this many microbatches. The bubble is ``fill_ms`` by that design, ``imbalance_ms`` for the slowest stage, and
    ``rest_ms`` for everything else: launches, transfers, late ranks.
    """

    stages: tuple[tuple[int, ...], ...]
    microbatches: int
    schedule: str | None
    stage_ms: tuple[float, ...]
    step_ms: float
    bubble_share: float
    ideal_share: float
    fill_ms: float
    imbalance_ms: float
    rest_ms: float
    chunks: int = 1

    @property
    def turns(self) -> int:
        """How often microbatches come to a stage in a step."""
        return self.microbatches * self.chunks

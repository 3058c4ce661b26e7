"""The data of a job with several ranks: process groups, pipeline, waits and stragglers.

This is data only; ``analysis.ranks`` computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

Parallelism = Literal["dp", "tp", "pp", "ep", "cp"]
StragglerKind = Literal["rank", "set", "host", "stage"]

SEND_RECEIVE = "sendrecv"  # The common name of a send and its receive, because the two sides record different names.


@dataclass(frozen=True)
class GroupUse:
    """The work of the process groups of one kind in a counted step, means over their ranks.

    ``parallelism`` is data, tensor, pipeline, expert or context parallel, None if not known. ``within_host`` is None if the
    hosts are unknown. ``kinds`` are the collectives, most frequent first. ``bytes_per_step`` is of one group, as in
    ``collectives.load``.

    ``transfer_ms`` is how long the kernels run on a rank after the last rank has arrived. ``exposed_ms`` is the part of that
    without computation at the same time. Bandwidths are of the transfers, in decimal GB/s. ``link_gb_s`` is the bandwidth of
    ``link`` in one direction, None where the hardware table has no such link.
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
    """A pipeline's schedule.

    ``stages`` are the positions of each stage's ranks, first stage first. ``microbatches`` are those of a step. ``schedule`` is
    GPipe or 1F1B where the order shows it, or interleaved, where each stage has several ``chunks`` of the model.

    ``stage_ms`` is how long a GPU of each stage works in a step of ``step_ms``. ``bubble_share`` is the mean share in which it
    does not work. ``ideal_share`` is the share that equal stages wait with this many microbatches. The bubble consists of
    ``fill_ms`` (that design), ``imbalance_ms`` (the slowest stage) and ``rest_ms`` (launches, transfers, stragglers).
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
        """How often a microbatch arrives at a stage in a step."""
        return self.microbatches * self.chunks

    @property
    def least_ms(self) -> float:
        """The shortest possible step with the work of the stages."""
        return sum(self.stage_ms) / len(self.stage_ms) + self.fill_ms + self.imbalance_ms


@dataclass(frozen=True)
class EqualHostsStep:
    """A rank's mean step if all hosts are equally fast, in ms.

    ``step_ms`` is the job's step. ``wait_ms`` is the rank's wait for others in collectives, overlapped or not. ``idle_ms`` is the
    time in which its GPU runs nothing, not even a waiting collective.
    """

    step_ms: float
    wait_ms: float
    idle_ms: float


@dataclass(frozen=True)
class RankWaits:
    """The waits of one rank in its counted steps, ms per step.

    ``wait_ms`` is its wait in collectives, overlapped or not. ``late_ms`` is how long each other rank waited for it on average
    with nothing to compute. Both are as profiled: the profiler slows one host more than another. ``last_share`` is the share of
    collectives in which it arrived last.

    ``clock_offset_ns`` is its clock minus the first rank's, from the ends of shared collectives. It is None where they share
    none, directly or through other ranks. ``unprofiled_wait_ms`` is its wait if all ranks are replayed together without the
    profiler, None where they cannot be.

    ``equal_hosts`` is its step if also all hosts are equally fast, None if that is not known or a rank is late.

    ``slowed_ms`` is how much longer its kernels ran because collectives waited at the same time. ``interrupted_ms`` is how long single
    kernels were interrupted, for example by another process on the GPU.
    """

    position: int
    rank: int | None
    device: int
    wait_ms: float
    late_ms: float
    last_share: float | None
    clock_offset_ns: int | None
    unprofiled_wait_ms: float | None = None
    equal_hosts: EqualHostsStep | None = None
    slowed_ms: float = 0.0
    interrupted_ms: float = 0.0


@dataclass(frozen=True)
class Straggler:
    """Ranks that delay the job by their own work: one rank, a host, a pipeline stage, or a set of ranks.

    ``own_ms`` is the time per step that each takes beyond its peers (the median over them), without the profiler. ``gain_ms``
    is the gain of the job's step if they were as fast, or if work of different batch sizes were shared equally. ``reason`` is a
    cause of lost time, "work" (more kernel time), "copies" (more copies), "turns" (another process on its GPU), or "clock" or "power" (slower GPU by
    telemetry). It is None if it is not known or the reasons differ. ``kernel_ratio`` is how many times as long equal kernels
    take, where that is the reason.

    ``at_most`` says that the replayed hosts hide the delay; ``gain_ms`` is then for hosts as fast as their error allows.
    ``stall_share`` is the share of the run's steps in which the rank loses the time, if its step marks show it.
    ``in_most_steps`` says that it takes longer in most of the profiled steps; False if in a few, or if not known.
    ``as_recorded`` says that it was found in the recorded collectives, without replays. In a job of many ranks, ``positions``
    are only those among the run's recordings, perhaps none.
    """

    kind: StragglerKind
    positions: tuple[int, ...]
    ranks: tuple[int | None, ...]
    host: str | None
    reason: str | None
    kernel_ratio: float | None
    own_ms: float
    gain_ms: float
    at_most: bool = False
    as_recorded: bool = False
    in_most_steps: bool = False
    stall_share: float | None = None


@dataclass(frozen=True)
class RankGroup:
    """Ranks that arrive together, with the fields of a ``Straggler``: all ranks of a host, or a set."""

    kind: StragglerKind
    positions: tuple[int, ...]
    ranks: tuple[int | None, ...]
    host: str | None


@dataclass(frozen=True)
class Split:
    """Ranks with equal work that arrive at collectives in two groups, as recorded.

    The late group is at least half of the ranks, so no rank is an exception. ``behind_ms`` is how much later they arrive in a
    step.
    """

    early: RankGroup
    late: RankGroup
    behind_ms: float


def passes_on(rows: pd.DataFrame) -> bool:
    """Return whether ranks pass work on to each other in ``rows`` of collectives, as in a pipeline.

    In a ring, each exchange of a rank both sends and receives. The first stage of a pipeline only sends at first.
    """
    if rows.empty:
        return False
    exchanged = rows[rows["name"] == SEND_RECEIVE]
    return bool(((exchanged["sends"] == 0) | (exchanged["receives"] == 0)).any())


@dataclass(frozen=True)
class Communication:
    """Results that need the recordings of all ranks.

    ``rows`` has one row per matched collective and rank: collective, position, gpu_op_id, start_ns, dur_ns, shortest_ns,
    wait_ns, last, exposed_ns, exposed_wait_ns, counted, name, dtype, bytes, group, group_size, ranks (matched). ``unmatched``
    counts communication kernels without a counterpart. ``notes`` name limits of the numbers.

    ``stragglers`` are sorted by gain. ``split`` is set if there is no straggler but most ranks arrive late together.
    ``step_ms`` is the job's step without the profiler, from a joint replay; None where it is not possible.
    ``run_speed_step_ms`` is the step time at which stragglers are judged, with hosts matched to the step time of marks or
    telemetry. ``in_turn_ms`` is the time per step that even the rank with the shortest wait waits for others within a telemetry
    sample. Such ranks delay each other in turn.

    ``groups`` are the process groups by kind, ``schedule`` is the pipeline's. ``heat`` has the work and wait of every rank in
    every step (of ``ranks.heatmap``) if the job has more ranks than the run has recordings, else None.
    """

    rows: pd.DataFrame
    ranks: tuple[RankWaits, ...]
    unmatched: int
    notes: tuple[str, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    step_ms: float | None = None
    run_speed_step_ms: float | None = None
    in_turn_ms: float = 0.0
    groups: tuple[GroupUse, ...] = ()
    schedule: Pipeline | None = None
    heat: pd.DataFrame | None = None
    job_ranks: int | None = None
    split: Split | None = None

    @property
    def pipeline(self) -> bool:
        """Whether ranks pass work on to each other.

        Then their work differs by design, and each of them waits at times.
        """
        return passes_on(self.rows)


@dataclass(frozen=True)
class LedgerRow:
    """One owner (and, for lost time, one cause) of the steady window of a device."""

    device: int
    owner: str
    cause: str | None
    ns: int
    ms_per_step: float | None
    ms_per_step_unprofiled_est: float | None
    share: float

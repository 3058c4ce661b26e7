"""What is known of a job of several ranks: its process groups, its pipeline, who waits for whom and who holds it up. Data only; ``analysis.ranks`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

Parallelism = Literal["dp", "tp", "pp", "ep", "cp"]
StragglerKind = Literal["rank", "set", "host", "stage"]

SEND_RECEIVE = "sendrecv"  # the name of a pair of sender and receiver, whatever its two sides say


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


@dataclass(frozen=True)
class RankWaits:
    """One rank in its counted steps, ms per step: ``wait_ms`` in collectives (overlapped or not), ``late_ms`` that each of the others, on average,
    waited for it with nothing to compute, as profiled: the profiler slows one host more than another.

    ``last_share`` is the share of collectives it came last to. ``clock_offset_ns`` is its clock minus the first rank's, from the ends of shared
    collectives, None where they share none, directly or through others; ``clock_error_ns`` its standard error. ``unprofiled_wait_ms`` is what it waits where all
    ranks are replayed together without the profiler, None where they cannot be; ``slowed_ms`` how much longer its kernels were recorded for
    collectives that waited beside them, ``held_ms`` how long single ones were held up, as where another process has turns on the GPU.
    """

    position: int
    rank: int | None
    device: int
    wait_ms: float
    late_ms: float
    last_share: float | None
    clock_offset_ns: int | None
    clock_error_ns: int | None
    unprofiled_wait_ms: float | None = None
    slowed_ms: float = 0.0
    held_ms: float = 0.0


@dataclass(frozen=True)
class Straggler:
    """Who holds the job up by its own doing: one rank, all of a host, a pipeline stage, or several ranks together (set).

    ``own_ms`` is what each of them takes of a step beyond its peers (the median over them), without the profiler; ``gain_ms`` what the
    job's step gains where they are as fast, or share work of another batch size with their peers. ``reason`` is a cause of lost time, "work" (more kernel time), "turns" (another process on
    its GPU), "clock" or "power" (slower GPU by telemetry), None where nothing tells or the reasons differ. ``kernel_ratio`` is how many
    times as long equal kernels take, where that is it. ``at_most``: the replayed hosts hide it, and hosts as fast as their error
    allows would not; ``gain_ms`` is of those. ``as_recorded``: told by the collectives as they were recorded, without replays. Of a job of many ranks, ``positions`` are those that are among the run's, perhaps none.
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


@dataclass(frozen=True)
class Side:
    """Ranks that come together, named as a ``Straggler``'s are: all of a host, or a set."""

    kind: StragglerKind
    positions: tuple[int, ...]
    ranks: tuple[int | None, ...]
    host: str | None


@dataclass(frozen=True)
class Split:
    """Ranks with the same work that come to their collectives in two groups, as recorded, the late ones at least half: nobody is the exception.

    ``behind_ms`` is how much later these come in a step.
    """

    early: Side
    late: Side
    behind_ms: float


@dataclass(frozen=True)
class Communication:
    """What the ranks' recordings say together.

    ``rows`` has one row per matched collective and rank: collective, position, gpu_op_id, start_ns, dur_ns, shortest_ns, wait_ns, last,
    exposed_ns, exposed_wait_ns, counted, name, dtype, bytes, group, group_size, ranks (matched). ``unmatched`` counts communication kernels without a
    counterpart. ``notes`` say what limits the numbers. ``stragglers`` hold the job up by their own doing, most gain first. ``split`` is where none
    does and most of them come late together. ``step_ms`` is the job's step without the profiler, from the ranks replayed together; None where they cannot be. ``paced_ms`` is the step that stragglers are
    judged at: with hosts brought to what marks or telemetry say of it. ``in_turn_ms`` is what of a step even the rank waits for others
    that waits least within a sample of telemetry: those that hold each other up by turns. ``groups`` are its process groups by kind, ``schedule`` its pipeline's. ``heat`` is what every rank takes and waits in every step (of ``ranks.heat``) where the job
    has more ranks than the run has recordings, else None.
    """

    rows: pd.DataFrame
    ranks: tuple[RankWaits, ...]
    unmatched: int
    notes: tuple[str, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    step_ms: float | None = None
    paced_ms: float | None = None
    in_turn_ms: float = 0.0
    groups: tuple[GroupUse, ...] = ()
    schedule: Pipeline | None = None
    heat: pd.DataFrame | None = None
    job_ranks: int | None = None
    split: Split | None = None

    @property
    def pipeline(self) -> bool:
        """Whether ranks send to each other: then their work differs by design, and each waits at times."""
        return not self.rows.empty and bool((self.rows["name"] == SEND_RECEIVE).any())


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

"""The hanging collective of a job and its missing ranks, from the ranks' flight recorders.

A collective completes when every rank of its group has called it. So the first incomplete collective of a group shows the missing
ranks: those whose last call has a smaller number. A missing rank may wait in another group. The cause is then in that group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sawtooth.ingest.dumps.flight_recorder import Entry, RankDump, StackFrame

# These collectives have the same sizes on all ranks.
SAME_SIZES = ("all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base", "all_reduce_barrier")
P2P = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")
UNKNOWN_RANK = -1  # The rank of a single dump whose file name does not contain the rank.

Kind = Literal["missing", "different", "sizes", "stuck", "alone"]


@dataclass(frozen=True)
class RankState:
    """A rank's state at a collective that hangs.

    ``last`` is its last recorded call in the group, ``last_seq`` the number of its last call. ``waits_in`` is its oldest incomplete
    call in another group. ``frames`` is the stack of the call in which the rank waits, or else of its last call.
    """

    rank: int
    state: Literal["waiting", "missing", "completed", "no dump"]
    last_seq: int
    last: Entry | None = None
    waits_in: Entry | None = None
    frames: tuple[StackFrame, ...] = ()


@dataclass(frozen=True)
class Hang:
    """The first incomplete collective, or send or receive, of a group.

    ``kind`` is "missing" (some ranks have not called it), "different" (ranks called different operations), "sizes" (ranks called it
    with different sizes), "stuck" (all ranks called it) or "alone" (some ranks have no dump, and no rank with a dump is missing).
    ``calls`` has the ranks by called operation, or by sizes for "sizes". ``since_ns`` is the time of the earliest waiting call.
    """

    kind: Kind
    group: str
    description: str
    members: tuple[int, ...]
    seq: int
    operation: str
    sizes: str
    since_ns: int
    ranks: tuple[RankState, ...]
    calls: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    is_p2p: bool = False

    def in_state(self, state: str) -> tuple[int, ...]:
        """Return the ranks in ``state``."""
        return tuple(rank.rank for rank in self.ranks if rank.state == state)

    @property
    def waits_elsewhere(self) -> bool:
        """Whether all missing ranks wait in another group."""
        missing = [rank for rank in self.ranks if rank.state == "missing"]
        return bool(missing) and all(rank.waits_in is not None for rank in missing)


@dataclass(frozen=True)
class CallDelay:
    """A rank's mean delay after the first rank of a group, and how often it is the last."""

    group: str
    rank: int
    collectives: int
    mean_ms: float
    last_share: float


@dataclass(frozen=True)
class FlightReport:
    """The diagnosis from the dumps: hangs (the likely cause first), and the delays of ranks.

    ``entries`` and ``completed`` are numbers of calls. ``last`` is the latest call.
    """

    ranks: tuple[int, ...]
    entries: int
    completed: int
    hangs: tuple[Hang, ...]
    delays: tuple[CallDelay, ...]
    last: Entry | None


def flight_report(dumps: Sequence[RankDump]) -> FlightReport:
    """Return the diagnosis from the dumps of one job."""
    by_rank = {UNKNOWN_RANK if dump.rank is None else dump.rank: dump for dump in dumps}
    groups = sorted({entry.process_group[0] for dump in dumps for entry in dump.dump.entries})
    hangs = [hang for group in groups for hang in (_collective_hang(group, by_rank), _p2p_hang(group, by_rank)) if hang]
    hangs.sort(key=lambda hang: (hang.waits_elsewhere, hang.kind not in ("different", "sizes"), hang.since_ns))
    calls = [entry for dump in dumps for entry in dump.dump.entries]
    return FlightReport(
        tuple(by_rank),
        len(calls),
        sum(entry.done for entry in calls),
        tuple(hangs),
        tuple(delay for group in groups for delay in _call_delays(group, by_rank)),
        max(calls, key=lambda entry: entry.time_created_ns, default=None),
    )


def _of_group(dump: RankDump, group: str, *, p2p: bool = False) -> list[Entry]:
    return [e for e in dump.dump.entries if e.process_group[0] == group and e.is_p2p == p2p]


def _members(group: str, by_rank: Mapping[int, RankDump]) -> tuple[int, ...]:
    for dump in by_rank.values():
        config = dump.dump.pg_config.get(group)
        if config is not None and config.members:
            return config.members
    return tuple(rank for rank, dump in by_rank.items() if any(e.process_group[0] == group for e in dump.dump.entries))


def _last_seq(dump: RankDump, group: str) -> int:
    """Return the number of the rank's last collective in the group, even if its entry was dropped."""
    status = dump.dump.pg_status.get(group)
    called = [entry.seq for entry in _of_group(dump, group)]
    return max([0, *called, *([status.last_enqueued_collective] if status is not None else [])])


def _collective_hang(group: str, by_rank: Mapping[int, RankDump]) -> Hang | None:
    calls = {rank: {entry.seq: entry for entry in _of_group(dump, group)} for rank, dump in by_rank.items()}
    incomplete = [seq for entries in calls.values() for seq, entry in entries.items() if not entry.done]
    if not incomplete:
        return None
    seq = min(incomplete)
    entry_of = {rank: entries[seq] for rank, entries in calls.items() if seq in entries}
    waiting = {rank: entry for rank, entry in entry_of.items() if not entry.done}
    members = _members(group, by_rank)
    states = []
    for rank in members if UNKNOWN_RANK not in by_rank else (UNKNOWN_RANK,):
        if rank not in by_rank:
            states.append(RankState(rank, "no dump", 0))
            continue
        dump = by_rank[rank]
        last_seq = _last_seq(dump, group)
        last = max(_of_group(dump, group), key=lambda entry: entry.seq, default=None)
        state: Literal["waiting", "missing", "completed"] = (
            "waiting" if rank in waiting else "missing" if last_seq < seq else "completed"
        )
        elsewhere = _open_elsewhere(dump, group) if state == "missing" else None
        shown = waiting.get(rank) or elsewhere or last
        states.append(RankState(rank, state, last_seq, last, elsewhere, tuple(shown.frames) if shown is not None else ()))
    first = next(iter(waiting.values()))
    operations: dict[str, list[int]] = {}
    for rank, entry in entry_of.items():
        operations.setdefault(entry.operation, []).append(rank)
    by_size: dict[str, list[int]] = {}
    for rank, entry in entry_of.items():
        by_size.setdefault(sizes_of(entry), []).append(rank)
    kind: Kind = "stuck"
    called = operations
    if len(operations) > 1:
        kind = "different"
    elif any(state.state == "missing" for state in states):
        kind = "missing"
    elif len(by_size) > 1 and first.operation in SAME_SIZES:
        kind, called = "sizes", by_size
    elif any(state.state == "no dump" for state in states) or UNKNOWN_RANK in by_rank:
        kind = "alone"
    return Hang(
        kind=kind,
        group=group,
        description=first.process_group[1],
        members=members,
        seq=seq,
        operation=max(operations, key=lambda name: len(operations[name])),
        sizes=sizes_of(first),
        since_ns=min(entry.time_created_ns for entry in waiting.values()),
        ranks=tuple(states),
        calls={name: tuple(ranks) for name, ranks in called.items()},
    )


def _open_elsewhere(dump: RankDump, group: str) -> Entry | None:
    """Return the rank's oldest incomplete call in another group; None if there is none."""
    incomplete = [entry for entry in dump.dump.entries if entry.process_group[0] != group and not entry.done]
    return min(incomplete, key=lambda entry: entry.time_created_ns, default=None)


def _p2p_hang(group: str, by_rank: Mapping[int, RankDump]) -> Hang | None:
    """Return the group's oldest incomplete send or receive whose partner has not made the matching call.

    If there is none, return the oldest one whose partner has no dump, if any.
    """
    members = _members(group, by_rank)
    incomplete = [
        (entry, rank) for rank, dump in by_rank.items() for entry in _of_group(dump, group, p2p=True) if not entry.done
    ]
    one_sided: Hang | None = None
    for entry, rank in sorted(incomplete, key=lambda pair: pair[0].time_created_ns):
        match = P2P.search(entry.profiling_name)
        if match is None or max(own_index := int(match.group(2)), other := int(match.group(3))) >= len(members):
            continue
        sends, partner = match.group(1) == "send", members[other]
        waiting = RankState(
            members[own_index] if rank == UNKNOWN_RANK else rank, "waiting", entry.p2p_seq_id, entry, None, tuple(entry.frames)
        )
        if partner not in by_rank:
            one_sided = one_sided or _p2p("alone", members, entry, sends, (waiting, RankState(partner, "no dump", 0)))
            continue
        matching_call = ("recv" if sends else "send", other, own_index)
        calls = [call for call in _of_group(by_rank[partner], group, p2p=True) if _direction(call) == matching_call]
        if any(call.p2p_seq_id == entry.p2p_seq_id for call in calls):
            continue
        last, elsewhere = max(calls, key=lambda call: call.p2p_seq_id, default=None), _open_elsewhere(by_rank[partner], group)
        shown = elsewhere or last
        missing = RankState(
            partner, "missing", last.p2p_seq_id if last else 0, last, elsewhere, tuple(shown.frames) if shown else ()
        )
        return _p2p("missing", members, entry, sends, (waiting, missing))
    return one_sided


def _p2p(kind: Kind, members: tuple[int, ...], entry: Entry, sends: bool, states: tuple[RankState, RankState]) -> Hang:
    group, description = entry.process_group
    name = f"{'send to' if sends else 'receive from'} rank {states[1].rank}"
    return Hang(
        kind, group, description, members, entry.p2p_seq_id, name, sizes_of(entry), entry.time_created_ns, states, is_p2p=True
    )


def _direction(entry: Entry) -> tuple[str, int, int] | None:
    match = P2P.search(entry.profiling_name)
    return (match.group(1), int(match.group(2)), int(match.group(3))) if match else None


def sizes_of(entry: Entry) -> str:
    """Return dtypes and sizes of a call's inputs, such as "Float [8, 4]"."""
    dtypes = [entry.input_dtypes] if isinstance(entry.input_dtypes, str) else entry.input_dtypes
    first_sizes = [str(size) for size in entry.input_sizes[:3]] + (["…"] if len(entry.input_sizes) > 3 else [])
    return " ".join([*dict.fromkeys(dtypes), *first_sizes])


def _call_delays(group: str, by_rank: Mapping[int, RankDump]) -> list[CallDelay]:
    """Return each rank's delay at the collectives in all dumps, by the clocks of the ranks' hosts."""
    times = {
        rank: {entry.seq: entry.time_created_ns for entry in entries}
        for rank, dump in by_rank.items()
        if (entries := _of_group(dump, group))
    }
    if len(times) < 2:
        return []
    shared = sorted(set.intersection(*(set(sequence) for sequence in times.values())))
    if not shared:
        return []
    ranks = list(times)
    created = np.array([[times[rank][seq] for seq in shared] for rank in ranks], np.int64)
    late_ms = (created - created.min(axis=0)) / 1e6
    last = Counter(np.argmax(created, axis=0).tolist())
    return [
        CallDelay(group, rank, len(shared), float(late_ms[at].mean()), last[at] / len(shared)) for at, rank in enumerate(ranks)
    ]

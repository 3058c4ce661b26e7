"""Read dumps of NCCL's flight recorder, in JSON and in pickle.

PyTorch writes these dumps in ``_dump_nccl_trace_json``, and after a timeout if ``TORCH_NCCL_DUMP_ON_TIMEOUT`` is set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sawtooth.ingest.dumps.opened import read_dump
from sawtooth.ingest.dumps.plain_pickle import decode, is_pickle
from sawtooth.ingest.errors import SourceError, UsageError
from sawtooth.ingest.typed import from_json

RANK = re.compile(
    r"rank[_.-]?(\d+)(?!.*rank[_.-]?\d)|(\d+)$"
)  # Matches the rank in a file's name: nccl_trace_rank_3 or trace3.
EXPECTED = "A dump has a list of entries and the groups' ranks (pg_config). Set TORCH_NCCL_DUMP_ON_TIMEOUT=1 and give the files that PyTorch writes."
ENTRIES = re.compile(rb'"entries"\s*:|"pg_config"\s*:|"nccl_comm_state"\s*:|\x8c\x07entries|X\x07\x00\x00\x00entries')


class StackFrame(msgspec.Struct, frozen=True):
    """A frame of a Python stack."""

    name: str = ""
    filename: str = ""
    line: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One call of a collective or point-to-point operation; ``time_created_ns`` is Unix ns, or 0."""

    process_group: tuple[str, str]
    profiling_name: str
    state: str
    collective_seq_id: int | None = None
    seq_id: int = 0
    p2p_seq_id: int = 0
    is_p2p: bool = False
    time_created_ns: int = 0
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] | str = []
    frames: list[StackFrame] = []

    @property
    def seq(self) -> int:
        """The number of this collective within its group."""
        return self.seq_id if self.collective_seq_id is None else self.collective_seq_id

    @property
    def operation(self) -> str:
        """The operation's name, such as all_reduce."""
        return self.profiling_name.removeprefix("nccl:")

    @property
    def done(self) -> bool:
        """Whether the operation is completed on this rank."""
        return self.state == "completed"


class ProcessGroup(msgspec.Struct, frozen=True):
    """A process group; ``ranks`` is a list of global ranks, or the text of this list."""

    name: str = ""
    ranks: list[int] | str = []

    @property
    def members(self) -> tuple[int, ...]:
        """The global ranks of the group."""
        return tuple(map(int, re.findall(r"\d+", self.ranks))) if isinstance(self.ranks, str) else tuple(self.ranks)


class GroupStatus(msgspec.Struct, frozen=True):
    """The number of a rank's last enqueued collective in a group; -1 if there is none."""

    last_enqueued_collective: int = -1


class Dump(msgspec.Struct, frozen=True):
    """The last calls that one rank's flight recorder stored, oldest first."""

    entries: list[Entry]
    pg_config: dict[str, ProcessGroup] = {}
    pg_status: dict[str, GroupStatus] = {}


@dataclass(frozen=True)
class RankDump:
    """The dump of one rank; ``rank`` is None if the file's name does not contain it."""

    rank: int | None
    name: str
    dump: Dump


def is_flight_recorder(head: bytes) -> bool:
    """Return whether ``head`` (the first uncompressed bytes) begins a dump of the flight recorder."""
    return b"traceEvents" not in head and ENTRIES.search(head) is not None and b"segments" not in head[:64]


def read_dumps(paths: Sequence[Path]) -> list[RankDump]:
    """Return the dumps in ``paths``, sorted by rank.

    Raises SourceError, with the file's name, for a file that is not a dump. Raises UsageError if one of several dumps has no rank,
    or the rank of another dump.
    """
    dumps = [RankDump(_rank_in(path), path.name, _read(path)) for path in paths]
    if len(dumps) > 1:
        for dump in dumps:
            if dump.rank is None:
                raise UsageError(
                    f"The name of {dump.name} has no rank. Name it with the rank at the end, as in nccl_trace_rank_3."
                )
        ranks = [dump.rank for dump in dumps]
        twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
        if twice is not None:
            names = " and ".join(dump.name for dump in dumps if dump.rank == twice)
            raise UsageError(f"{names} are both of rank {twice}. Give one dump of each rank.")
    return sorted(dumps, key=lambda dump: -1 if dump.rank is None else dump.rank)


def _rank_in(path: Path) -> int | None:
    match = RANK.search(path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".pickle").removesuffix(".pkl"))
    return int(match.group(1) or match.group(2)) if match else None


def _read(path: Path) -> Dump:
    data = read_dump(path)
    try:
        return msgspec.convert(decode(data), Dump, strict=False) if is_pickle(data) else _from_json(data)
    except SourceError as error:
        error.file = path.name
        raise
    except (msgspec.ValidationError, RecursionError) as error:
        refusal = SourceError("E-TYPE", f"This is not a dump of NCCL's flight recorder ({error}). {EXPECTED}")
        refusal.file = path.name
        raise refusal from error


def _from_json(data: bytes) -> Dump:
    try:
        plain = from_json(data, Any)
    except msgspec.MsgspecError as error:
        raise SourceError("E-CUT", f"This JSON ends early or is damaged ({error}). Copy the file again.") from error
    return msgspec.convert(plain, Dump, strict=False)

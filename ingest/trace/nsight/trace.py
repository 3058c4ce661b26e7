"""Tables, ids and notes of one Nsight Systems export while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, MAX_TIME_NS, NULL, integers
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.nsight.database import Database
from sawtooth.ingest.trace.spool import Spool
from sawtooth.ingest.trace.tables import EventTables

MAX_DURATION_NS = 7 * 86400 * 10**9  # No event lasts a week. The end of a longer event was not recorded.
PROCESS_SHIFT = 24  # A globalTid consists of machine, process (24 bits) and thread (24 bits).
PART_MASK = (1 << PROCESS_SHIFT) - 1  # The mask of one part of a globalTid, the process or the thread.
CORRELATION_BITS = 40  # CUPTI's correlation ids have 32 bits. The bits above these 40 are the number of the process.


class NsightTrace(EventTables):
    """The content of one export as tables on its own clock (nanoseconds since the session began)."""

    def __init__(self, database: Database, limits: Limits, spool: Spool) -> None:
        super().__init__(spool, limits)
        self.database = database
        self.waits: dict[int, str] = {}  # The kind of synchronization, by the correlation of the call.
        self._texts: dict[int, str] = {}
        self._threads: dict[int, int] = {}
        self._processes: dict[int, int] = {}

    def batches(
        self, table: str, columns: Sequence[str], only: frozenset[int] | None = None
    ) -> Iterator[tuple[list[tuple[Any, ...]], I64, I64]]:
        """Yield rows of ``start``, ``end`` and ``columns`` with usable times.

        Each batch comes with its starts and durations in nanoseconds. With ``only``, a row is skipped if its value in the first of
        ``columns`` is not in ``only``.
        """
        for rows in self.database.rows(table, ("start", "end", *columns), needed=("start", "end")):
            batch = rows if only is None else [row for row in rows if row[2] in only]
            start, end = integers([row[0] for row in batch]), integers([row[1] for row in batch])
            # NULL is smaller than all other values.
            missing = (np.minimum(start, end) <= -MAX_TIME_NS) | (np.maximum(start, end) >= MAX_TIME_NS)
            dur = np.where(missing, 0, end - np.where(missing, 0, start))
            wrong = {"open": missing, "negative": dur < 0, "absurd": dur > MAX_DURATION_NS}
            for fault, mask in wrong.items():
                if count := int(mask.sum()):
                    self.note(f"time_{fault}", table, count)
            good = np.flatnonzero(~(wrong["open"] | wrong["negative"] | wrong["absurd"]))
            if len(good):
                yield [batch[i] for i in good] if len(good) < len(batch) else batch, start[good], dur[good]

    def text(self, number: Any) -> str:
        """Return the text of ``number`` in table StringIds; empty if it has none."""
        if not isinstance(number, int) or number == NULL:
            return ""
        if number not in self._texts:
            self._texts[number] = self.database.text(number, self._limits.name_length) or ""
        return self._texts[number]

    def threads(self, numbers: I64) -> NDArray[np.int32]:
        """Return the ids of the threads with these ``numbers`` (globalTid)."""
        return np.fromiter(map(self._thread, numbers.tolist()), np.int32, len(numbers))

    def has_threads(self, numbers: I64) -> NDArray[np.bool_]:
        """Return which of ``numbers`` (globalTid) are threads that were read already."""
        return np.isin(numbers, np.fromiter(self._threads, np.int64, len(self._threads)))

    def _thread(self, number: int) -> int:
        if number not in self._threads:
            key = (str((number >> PROCESS_SHIFT) & PART_MASK), str(number & PART_MASK)) if number != NULL else ("", "")
            self._threads[number] = self.thread(*key)
        return self._threads[number]

    def correlations(self, values: I64, process_ids: I64) -> I64:
        """Return correlations that are unique in the file, because each process counts its own.

        ``process_ids`` are globalTid or globalPid.
        """
        numbers = [self._processes.setdefault(key, len(self._processes)) for key in (process_ids >> PROCESS_SHIFT).tolist()]
        valid = (values > 0) & (values < 1 << CORRELATION_BITS)
        return np.where(valid, values + (np.array(numbers, np.int64) << CORRELATION_BITS), NULL)


def column(batch: list[tuple[Any, ...]], index: int) -> I64:
    """Return one of the requested columns (0: the first after start and end) as integers."""
    return integers([row[index + 2] for row in batch])

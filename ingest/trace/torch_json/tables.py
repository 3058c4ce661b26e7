"""The tables of one trace, merged from the columns of its blocks in file order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.errors import SourceError, as_shown
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.source import TABLES
from sawtooth.ingest.trace.spool import Spool, SpooledTable
from sawtooth.ingest.trace.torch_json.arguments import CollectiveArgs
from sawtooth.ingest.trace.torch_json.columns import BlockColumns
from sawtooth.ingest.trace.torch_json.interning import InternedIds
from sawtooth.ingest.trace.torch_json.operators import MAX_EXTRAS, MAX_SIGNATURES
from sawtooth.ingest.trace.torch_json.text.blocks import Document
from sawtooth.ingest.trace.torch_json.text.format_errors import too_deep_error, truncated_error

ID_KINDS = {  # The kind of ids in each column.
    "name_id": "names",
    "thread_id": "threads",
    "signature_id": "signatures",
    "extra": "extras",
    "shape": "shapes",
}
MAX_IDS = {"signatures": MAX_SIGNATURES, "extras": MAX_EXTRAS}  # By kind of id. The number of other ids is not limited.


class IdMapping:
    """Mapping of the ids of one ``BlockSorter`` to the ids of the whole trace, by kind of id."""

    def __init__(self) -> None:
        self.ids: dict[str, NDArray[np.int32]] = {}


class TorchTrace:
    """The content of one trace as tables on the trace's own clock."""

    def __init__(self, document: Document, limits: Limits, spool: Spool) -> None:
        self.document = document
        self._limits = limits
        self.ids = {key: InternedIds() for key in ("names", "threads", "signatures", "extras", "sync_kinds", "shapes")}
        self.collectives: list[CollectiveArgs] = []
        self.tables = {key: SpooledTable(spool) for key in (*TABLES, "edges", "counters")}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.process_names: dict[str, str] = {}
        self.other: Counter[str] = Counter()  # Events that are not stored, by category or phase.
        self.events = 0
        self._name_length = 0
        self.whole_microseconds = True
        self.contexts: Counter[tuple[int, int]] = Counter()

    def note(self, key: str, example: str, count: int = 1) -> None:
        """Count one kind of problem for the diagnostics."""
        self.document.note(key, example, count)

    def merge(self, block: BlockColumns, id_mapping: IdMapping) -> None:
        """Add the columns of a block and its new ids; ``id_mapping`` belongs to the block's ``BlockSorter``.

        Raises SourceError for too many names.
        """
        for key, new_keys in block.new_keys.items():
            if new_keys or key not in id_mapping.ids:
                earlier = id_mapping.ids.get(key, np.empty(0, np.int32))
                new = np.fromiter((self._id(key, value) for value in new_keys), np.int32, len(new_keys))
                id_mapping.ids[key] = np.concatenate([earlier, new])
        self._name_length += sum(map(len, block.new_keys["names"]))
        if len(self.ids["names"]) > (limit := self._limits.distinct_names):
            raise SourceError("E-LIMIT", f"The trace has more than {limit:,} different names. Profile fewer steps.")
        if self._name_length > self._limits.names_length:
            raise SourceError(
                "E-LIMIT",
                f"The trace's names have more than {self._limits.names_length >> 20} million characters in total. Profile fewer steps.",
            )
        for table, columns in block.columns:
            for column, values in columns.items():
                if column in ID_KINDS or (table == "syncs" and column == "kind"):
                    columns[column] = _map_ids(values, id_mapping.ids[ID_KINDS.get(column, "sync_kinds")])
                elif column == "collective" and len(self.collectives):
                    columns[column] = np.where(values < 0, values, values + np.int32(len(self.collectives)))
            self.tables[table].add(columns)
        self.collectives += block.collectives
        for key, count in block.notes.items():
            self.document.note(key, block.examples.get(key, ""), count)
        self.other += block.other
        self.thread_names |= block.thread_names
        self.process_names |= block.process_names
        self.whole_microseconds &= block.whole_microseconds
        self.contexts += block.contexts
        self.events += block.events

    def _id(self, kind: str, key: Any) -> int:
        ids = self.ids[kind]
        if kind in MAX_IDS and len(ids) >= MAX_IDS[kind] and key not in ids:
            self.document.note("signatures_left_out", "")
            return -1
        return ids[key]

    def check(self) -> None:
        """Raise SourceError with the reason if the document has no event."""
        notes = self.document.notes
        if self.events:
            return
        if notes["event_deep"]:
            raise too_deep_error()
        if notes["event_cut"] or (self.document.truncated and not notes):
            raise truncated_error(self.document.read_so_far)
        if notes["event_unreadable"]:
            example = as_shown(self.document.examples["event_unreadable"])
            raise SourceError("E-JSON", f"No event is valid JSON. The first begins with {example}. Export the trace again.")
        raise SourceError("E-NOEV", "The trace has no events. Record until the profiler's schedule has reached an active step.")


def _map_ids(values: NDArray[np.int32], ids: NDArray[np.int32]) -> NDArray[np.int32]:
    if not len(ids):
        return values
    return np.where(values < 0, np.int32(-1), ids[values])

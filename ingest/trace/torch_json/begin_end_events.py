"""Convert begin and end events ('B', 'E'), which other tools write, into complete events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.trace.spool import Columns, SpooledTable, slices
from sawtooth.ingest.trace.torch_json.kinds import EDGE_KINDS
from sawtooth.ingest.trace.torch_json.tables import TorchTrace


def pair_edges(trace: TorchTrace) -> None:
    """Add complete events for begin and end events ('B', 'E')."""
    if not trace.tables["edges"].rows:
        return
    stacks: dict[int, list[tuple[int, int, int]]] = {}  # Events of each thread that have begun.
    pairs: dict[int, list[tuple[int, int, int, int]]] = {}
    unmatched = 0
    for thread, time, name, kind in _edges(trace.tables["edges"]):
        stack = stacks.setdefault(thread, [])
        if name >= 0:
            stack.append((time, name, kind))
        elif stack:
            begin, name, kind = stack.pop()
            pairs.setdefault(kind, []).append((name, thread, begin, time - begin))
        else:
            unmatched += 1
    if unmatched := unmatched + sum(map(len, stacks.values())):
        trace.note("edge_unmatched", "", unmatched)
    for kind, rows in pairs.items():
        names, threads, starts, durs = (np.array(values, np.int64) for values in zip(*rows, strict=True))
        columns: Columns = {
            "name_id": names.astype(np.int32),
            "thread_id": threads.astype(np.int32),
            "start": starts,
            "dur": durs,
        }
        _add_pairs(trace, EDGE_KINDS[kind], columns)


def _edges(table: SpooledTable) -> Iterator[tuple[int, int, int, int]]:
    for (rows,) in slices(table):
        if rows:
            yield from zip(*(rows[name].tolist() for name in ("thread_id", "start", "name_id", "kind")), strict=True)


def _add_pairs(trace: TorchTrace, kind: str, columns: Columns) -> None:
    count = len(columns["start"])
    null, no_id = np.full(count, NULL), np.full(count, -1, np.int32)
    if kind in ("op", "annotation"):
        empty_columns = {
            "external_id": null,
            "sequence_number": null,
            "forward_thread": null,
            "signature_id": no_id,
            "extra": no_id,
            "collective": no_id,
        }
        trace.tables["ops"].add({"annotation": np.full(count, kind == "annotation"), **columns, **empty_columns})
    elif kind == "call":
        trace.tables["calls"].add({**columns, "correlation": null})
    else:
        trace.tables["python"].add({**columns, "module_id": null})

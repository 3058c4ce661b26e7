"""Where on the host the GPU operations were launched, for fast repeated queries by host intervals.

A join of moments with intervals took minutes for a run of millions of events, because it compares every pair. Here, each query
searches sorted columns that were read once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE
from sawtooth.analysis.store.library import Recording

I64 = NDArray[np.int64]
NO_ID = -1
NO_SEQUENCE = -(2**63)  # A number that no profiler writes.


class Moments:
    """Rows that each have a moment of a host thread."""

    def __init__(self, thread: NDArray[np.int32], moment: I64, rows: I64) -> None:
        self._of_thread: dict[int, tuple[I64, I64]] = {}  # Rows and moments, in the order of the moments.
        for number in np.unique(thread).tolist():
            on_thread = np.flatnonzero(thread == number)
            on_thread = on_thread[np.argsort(moment[on_thread], kind="stable")]
            self._of_thread[number] = rows[on_thread], moment[on_thread]

    def within(self, thread: NDArray[np.int32], start: I64, end: I64) -> I64:
        """Return the rows whose moment lies in any of the half-open intervals, each once."""
        inside = []
        for number in np.unique(thread).tolist():
            if number in self._of_thread:
                rows, moments = self._of_thread[number]
                on_thread = thread == number
                first, last = np.searchsorted(moments, start[on_thread]), np.searchsorted(moments, end[on_thread])
                inside.append(rows[_numbers_in(first, last)])
        return np.concatenate(inside) if inside else np.zeros(0, np.int64)


def _numbers_in(first: I64, last: I64) -> I64:
    """Return the numbers in any of the ranges from ``first`` up to ``last``, each once, ascending."""
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order]) if len(order) else last
    first = np.maximum(first, np.concatenate([first[:1], last[:-1]]))
    length = np.maximum(last - first, 0)
    return np.repeat(first - np.cumsum(length) + length, length) + np.arange(length.sum())


class RowsByKey:
    """Rows that can be looked up by an integer key."""

    def __init__(self, key: I64, rows: I64) -> None:
        order = np.argsort(key, kind="stable")
        self._keys, self._rows = key[order], rows[order]

    def of(self, keys: I64) -> I64:
        """Return the rows whose key is among ``keys``, each once."""
        keys = np.unique(keys)
        return self._rows[_numbers_in(np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, side="right"))]


@dataclass(frozen=True)
class HostIntervals:
    """Operators and annotations by cpu_op_id: thread, start and end, kind and sequence number.

    Times are absolute ns. ``is_op`` is False for annotations.
    """

    thread: NDArray[np.int32]
    start: I64
    end: I64
    is_op: NDArray[np.bool_]
    sequence: I64


class CountedLaunches:
    """GPU operations of ``RuleContext.work``, by position, and the host operators around their launches."""

    def __init__(self, recording: Recording, gpu_ops: I64) -> None:
        self._ops = _host_intervals(recording)
        self._begun = Moments(self._ops.thread, self._ops.start, np.arange(len(self._ops.start)))
        nodes = recording.cursor.execute(
            "SELECT cpu_op_id, depth FROM named_cpu_ops WHERE starts_with(name, ?)", [AUTOGRAD_NODE]
        ).fetchnumpy()
        self._nodes, outermost = nodes["cpu_op_id"].astype(np.int64), nodes["depth"] == 0
        self._outermost_nodes = self._nodes[outermost]
        self._nodes_of_sequence = RowsByKey(self._ops.sequence[self._nodes], self._nodes)
        self._launched_by, self._launched_at = _launches(recording, gpu_ops)

    def by(self, operators: I64) -> I64:
        """Return the positions of the GPU operations that these operators (kind op) launched."""
        return self._launched_by.of(operators)

    def launched_during(self, operators: I64) -> I64:
        """Return the positions of the launches on the operators' threads while an operator was open.

        Annotations count as operators.
        """
        ops = self._ops
        return self.between(ops.thread[operators], ops.start[operators], ops.end[operators])

    def between(self, thread: NDArray[np.int32], start: I64, end: I64) -> I64:
        """Return the positions of the launches on these threads in these half-open intervals (absolute ns)."""
        return self._launched_at.within(thread, start, end)

    def operators_begun_in(self, operators: I64) -> I64:
        """Return the ids of ``operators`` and of the operators that began while one of them was open."""
        ops = self._ops
        return self._operators(ops.thread[operators], ops.start[operators], ops.end[operators])

    def operators_begun_between(self, operators: I64) -> I64:
        """Return the ids of the operators that began from the first start to the last end of ``operators``.

        Each thread has its own first start and last end.
        """
        ops = self._ops
        threads, thread_index = np.unique(ops.thread[operators], return_inverse=True)
        first_start, last_end = np.full(len(threads), np.iinfo(np.int64).max), np.full(len(threads), np.iinfo(np.int64).min)
        np.minimum.at(first_start, thread_index, ops.start[operators])
        np.maximum.at(last_end, thread_index, ops.end[operators])
        return self._operators(threads, first_start, last_end)

    def launched_in_backward_of(self, operators: I64) -> I64:
        """Return the positions of the launches inside the autograd nodes of these operators."""
        sequence = self._ops.sequence[operators]
        return self.launched_during(self._nodes_of_sequence.of(sequence[sequence != NO_SEQUENCE]))

    def launched_in_backward(self) -> I64:
        """Return the positions of the launches inside autograd's outermost nodes."""
        return self.launched_during(self._outermost_nodes)

    def _operators(self, thread: NDArray[np.int32], start: I64, end: I64) -> I64:
        rows = self._begun.within(thread, start, end)
        return rows[self._ops.is_op[rows]]


def _host_intervals(recording: Recording) -> HostIntervals:
    columns = recording.cursor.execute(
        "SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns, kind = 'op' AS is_op, coalesce(sequence_number, ?)::BIGINT AS sequence "
        "FROM cpu_ops ORDER BY cpu_op_id",
        [NO_SEQUENCE],
    ).fetchnumpy()
    return HostIntervals(
        columns["thread_id"].astype(np.int32),
        np.asarray(columns["start_ns"]),
        np.asarray(columns["end_ns"]),
        np.asarray(columns["is_op"]),
        np.asarray(columns["sequence"]),
    )


def _launches(recording: Recording, gpu_ops: I64) -> tuple[RowsByKey, Moments]:
    """Return the positions in ``gpu_ops`` by launching operator, and by moment of the launch."""
    if not len(gpu_ops):
        return RowsByKey(gpu_ops, gpu_ops), Moments(np.zeros(0, np.int32), gpu_ops, gpu_ops)
    columns = recording.cursor.execute(
        "SELECT g.gpu_op_id, coalesce(g.cpu_op_id, $1)::BIGINT AS cpu_op_id, coalesce(c.thread_id, $1)::INTEGER AS thread_id, "
        "coalesce(c.start_ns, $1)::BIGINT AS start_ns FROM gpu_ops g LEFT JOIN runtime_calls c USING (call_id) "
        "WHERE g.gpu_op_id BETWEEN $2 AND $3 ORDER BY g.gpu_op_id",
        [NO_ID, int(gpu_ops.min()), int(gpu_ops.max())],
    ).fetchnumpy()
    row = gpu_ops - int(gpu_ops.min())  # Ids have no gaps.
    operator, thread = columns["cpu_op_id"][row], columns["thread_id"][row]
    with_operator, with_call = np.flatnonzero(operator != NO_ID), np.flatnonzero(thread != NO_ID)
    start_ns = columns["start_ns"][row]
    return RowsByKey(operator[with_operator], with_operator), Moments(thread[with_call], start_ns[with_call], with_call)

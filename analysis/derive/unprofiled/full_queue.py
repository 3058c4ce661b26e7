"""The number of launches that fit into a stream's queue before the next one waits, as recorded."""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.distinct_rows import positions_by
from sawtooth.analysis.replay.simulation import I64, QUEUE_DEPTH, DeviceOps

# A launch call of this length waited for a place in the full queue. Other launch calls take 3 to 40 µs.
BLOCKED_LAUNCH_NS = 50_000
# Share of QUEUE_DEPTH. A full queue has at least this many launches: 405 to 1,020 on H100s and H200s. Events, markers and arguments
# take the other places.
MIN_SHARE = 0.39


def queue_depths(ops: DeviceOps, start: I64, end: I64) -> I64:
    """Return, by node, how many launches fit into its stream's queue before this launch waits.

    Node n is a call from ``start[n]`` to ``end[n]`` (ns). If it waited, the value is the number of launches in the queue when it
    returned. Calls that did not wait and calls that launch a graph have QUEUE_DEPTH.
    """
    depth = np.full(len(start), QUEUE_DEPTH, dtype=np.int64)
    with_node = np.flatnonzero(ops.node >= 0)
    if not len(with_node) or np.bincount(ops.node[with_node]).max() > 1:
        return depth  # A graph takes one place for all of its operations.
    for rows_of_stream in positions_by(ops.stream[with_node]).values():
        launches = with_node[rows_of_stream]
        node = ops.node[launches]
        waiting = np.arange(len(launches)) - np.searchsorted(np.sort(ops.fixed_start[launches]), end[node])
        blocked = (end[node] - start[node] > BLOCKED_LAUNCH_NS) & (waiting >= MIN_SHARE * QUEUE_DEPTH)
        depth[node[blocked]] = np.minimum(waiting[blocked] + 1, QUEUE_DEPTH)  # The operation that started last gave the place.
    return depth

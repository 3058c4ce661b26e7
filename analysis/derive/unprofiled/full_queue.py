"""How many launches a stream holds before the next one waits, as a recording shows it."""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.distinct_rows import positions_by
from sawtooth.analysis.replay.simulation import I64, QUEUE_DEPTH, DeviceOps

BLOCKED_LAUNCH_NS = 50_000  # a launch call this long waited for a place in the full queue; other launch calls take 3 to 40 µs
# Share of QUEUE_DEPTH that waits at least. Events, markers and arguments take places too: 405 to 1,020 launches waited on H100s and H200s.
LEAST_SHARE = 0.39


def queue_depths(ops: DeviceOps, start: I64, end: I64) -> I64:
    """Return by node how many launches its stream holds before this one waits.

    That is how many waited when it returned, if it did wait: node n is a call from ``start[n]`` to ``end[n]`` (ns). A call that
    did not wait, or launches a graph, has QUEUE_DEPTH.
    """
    depth = np.full(len(start), QUEUE_DEPTH, dtype=np.int64)
    known = np.flatnonzero(ops.node >= 0)
    if not len(known) or np.bincount(ops.node[known]).max() > 1:
        return depth  # a graph takes one place for all of its operations
    for mine in positions_by(ops.stream[known]).values():
        launches = known[mine]
        node = ops.node[launches]
        waiting = np.arange(len(launches)) - np.searchsorted(np.sort(ops.fixed_start[launches]), end[node])
        blocked = (end[node] - start[node] > BLOCKED_LAUNCH_NS) & (waiting >= LEAST_SHARE * QUEUE_DEPTH)
        depth[node[blocked]] = np.minimum(waiting[blocked] + 1, QUEUE_DEPTH)  # the last one that started gave the place
    return depth

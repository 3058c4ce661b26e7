"""Named nodes of CUDA graphs. A node has one row, even if the graph is replayed often."""

from __future__ import annotations

import numpy as np

from sawtooth.ingest.trace.spool import Columns, SpooledTable, slices

COLUMNS = ("graph_id", "graph_node_id", "name_id", "backward")


def annotated_nodes(table: SpooledTable) -> Columns:
    """Return the distinct rows of table ``graph_annotations``; {} for an empty table."""
    distinct = [
        np.unique(np.stack([rows[name].astype(np.int64) for name in COLUMNS], axis=1), axis=0)
        for (rows,) in slices(table)
        if rows
    ]
    if not distinct:
        return {}
    graph, node, name, backward = np.unique(np.concatenate(distinct), axis=0).T
    return {"graph_id": graph, "graph_node_id": node, "name_id": name, "backward": backward.astype(bool)}

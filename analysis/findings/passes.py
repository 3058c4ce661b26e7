"""What operators launched: their forward pass, and the backward pass that autograd made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.rule import RuleContext
from sawtooth.analysis.findings.work import AUTOGRAD_NODE
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

_NODE = f"^{AUTOGRAD_NODE}|Backward[0-9]*$"  # names of a backward pass's operators
_INSIDE = """inside AS (SELECT i.cpu_op_id, i.sequence_number FROM cpu_ops o JOIN cpu_ops i ON i.thread_id = o.thread_id AND i.start_ns >= o.start_ns
    AND i.start_ns < o.start_ns + o.dur_ns WHERE o.cpu_op_id IN (SELECT unnest($1::BIGINT[])) AND i.kind = 'op')"""
_FORWARD = f"WITH {_INSIDE} SELECT DISTINCT gpu_op_id FROM gpu_ops g JOIN inside USING (cpu_op_id)"
_BACKWARD = f"""WITH {_INSIDE}, numbers AS (SELECT DISTINCT sequence_number FROM inside WHERE sequence_number IS NOT NULL),
nodes AS (SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM cpu_ops JOIN names USING (name_id) JOIN numbers USING (sequence_number)
    WHERE starts_with(name, '{AUTOGRAD_NODE}'))
SELECT DISTINCT gpu_op_id FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN nodes n ON n.thread_id = c.thread_id
    AND c.start_ns >= n.start_ns AND c.start_ns < n.end_ns"""
# Up from each launching operator to autograd's node around it: what autograd records on the way runs a second time there.
_AGAIN = f"""
WITH RECURSIVE launching AS (SELECT DISTINCT cpu_op_id FROM gpu_ops WHERE cpu_op_id IS NOT NULL),
up AS (SELECT o.cpu_op_id AS leaf, o.parent_id, regexp_matches(n.name, '{_NODE}') AS node, NOT node AND o.sequence_number IS NOT NULL AS recorded
        FROM cpu_ops o JOIN launching USING (cpu_op_id) JOIN names n USING (name_id)
    UNION ALL SELECT up.leaf, o.parent_id, regexp_matches(n.name, '{_NODE}'), up.recorded OR (NOT regexp_matches(n.name, '{_NODE}') AND o.sequence_number IS NOT NULL)
        FROM up JOIN cpu_ops o ON o.cpu_op_id = up.parent_id JOIN names n USING (name_id) WHERE NOT up.node)
SELECT g.gpu_op_id FROM gpu_ops g JOIN up ON up.leaf = g.cpu_op_id WHERE node AND recorded"""


@dataclass(frozen=True)
class Passes:
    """Rows of ``RuleContext.work`` that some operators launched, and those of their backward passes."""

    forward: pd.DataFrame
    backward: pd.DataFrame

    @property
    def both(self) -> pd.DataFrame:
        """All of them."""
        return pd.concat([self.forward, self.backward])


def passes(context: RuleContext, operators: Sequence[int]) -> Passes:
    """Return what the operators of these ids launched, at any depth, and what the backward passes of all they called did."""
    launched = [
        {int(row[0]) for row in context.recording.rows(sql, [list(operators)])} if operators else set()
        for sql in (_FORWARD, _BACKWARD)
    ]
    work = context.work
    return Passes(work[work["gpu_op_id"].isin(launched[0])], work[work["gpu_op_id"].isin(launched[1] - launched[0])])


def run_again(context: RuleContext) -> pd.DataFrame:
    """Return the rows of ``RuleContext.work`` that a backward pass launched to compute the forward pass a second time."""
    again = {int(row[0]) for row in context.recording.rows(_AGAIN)}
    return context.work[context.work["gpu_op_id"].isin(again)]


def in_backward(context: RuleContext) -> set[int]:
    """Return the ids of the GPU operations launched inside autograd's nodes."""
    sql = (
        "SELECT DISTINCT gpu_op_id FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN (SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns "
        "FROM cpu_ops JOIN names USING (name_id) WHERE starts_with(name, ?) AND depth = 0) n ON n.thread_id = c.thread_id "
        "AND c.start_ns >= n.start_ns AND c.start_ns < n.end_ns"
    )
    return {int(row[0]) for row in context.recording.rows(sql, [AUTOGRAD_NODE])}


def at_once(rows: pd.DataFrame, times: int) -> list[Edit]:
    """Return the edits that run ``rows``, a body that each step repeats ``times`` times, as one body over all the data.

    The GPU's work stays: what is left takes as long together as all did. The launches of the other bodies go.
    """
    kept: list[int] = []
    timed: list[int] = []
    gone: list[int] = []
    for _, part in rows.sort_values("start_ns").groupby("step"):
        ids, durations = part["gpu_op_id"].to_numpy(np.int64), part["dur_ns"].to_numpy(np.int64)
        left = max(len(ids) // max(times, 1), 1)
        kept += ids[:left].tolist()
        timed += [max(int(durations.sum()) // left, 1)] * left
        gone += ids[left:].tolist()
    return [TimedOps(tuple(kept), tuple(timed)), WithoutOps(tuple(gone))] if gone else []

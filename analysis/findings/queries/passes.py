"""GPU operations that operators launched, in the forward pass and in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

# Operators that scale or limit gradients in place after the backward pass.
SCALES = ("aten::mul_", "aten::div_", "aten::clamp_", "aten::clamp_max_", "aten::clamp_min_")
_NODE = f"^{AUTOGRAD_NODE}|Backward[0-9]*$"  # Matches the names of operators in a backward pass.
# Walk from each launching operator up to the enclosing autograd node. Operators that autograd recorded below the node run a
# second time there.
_AGAIN = f"""
WITH RECURSIVE launching AS (SELECT DISTINCT cpu_op_id FROM gpu_ops WHERE cpu_op_id IS NOT NULL),
up AS (SELECT o.cpu_op_id AS leaf, o.parent_id, regexp_matches(o.name, '{_NODE}') AS node, NOT node AND o.sequence_number IS NOT NULL AS recorded
        FROM named_cpu_ops o JOIN launching USING (cpu_op_id)
    UNION ALL SELECT up.leaf, o.parent_id, regexp_matches(o.name, '{_NODE}'), up.recorded OR (NOT regexp_matches(o.name, '{_NODE}') AND o.sequence_number IS NOT NULL)
        FROM up JOIN named_cpu_ops o ON o.cpu_op_id = up.parent_id WHERE NOT up.node)
SELECT g.gpu_op_id FROM gpu_ops g JOIN up ON up.leaf = g.cpu_op_id WHERE node AND recorded"""


@dataclass(frozen=True)
class Passes:
    """Rows of ``RuleContext.work`` that some operators launched, and rows of their backward passes."""

    forward: pd.DataFrame
    backward: pd.DataFrame

    @property
    def both(self) -> pd.DataFrame:
        """Rows of both passes."""
        return pd.concat([self.forward, self.backward])


def passes(context: RuleContext, operators: Sequence[int]) -> Passes:
    """Return the launches of these operators, at any depth, and of their backward passes.

    The backward passes of all called operators are included.
    """
    if not len(operators):
        return Passes(context.work.iloc[:0], context.work.iloc[:0])
    launches = context.launches
    inside = launches.begun_in(np.array(operators, np.int64))
    forward = launches.by(inside)
    backward = np.setdiff1d(launches.backward_of(inside), forward)
    return Passes(context.work.iloc[np.sort(forward)], context.work.iloc[backward])


def first_shape(dims: list[Any] | None) -> tuple[int, ...]:
    """Return the shape of an operator's first input, empty if it is not recorded or a list of tensors."""
    return tuple(dims[0]) if dims and isinstance(dims[0], list) and all(isinstance(size, int) for size in dims[0]) else ()


def run_again(context: RuleContext) -> pd.DataFrame:
    """Return the rows of ``RuleContext.work`` that recompute the forward pass inside a backward pass."""
    repeated = {int(row[0]) for row in context.recording.rows(_AGAIN)}
    return context.work[context.work["gpu_op_id"].isin(repeated)]


def in_backward(context: RuleContext) -> set[int]:
    """Return the ids of the GPU operations of ``RuleContext.work`` launched inside autograd's nodes."""
    return set(context.work["gpu_op_id"].to_numpy(np.int64)[context.launches.in_backward()].tolist())


def at_once(rows: pd.DataFrame, times: int) -> list[Edit]:
    """Return the edits that run a body, repeated ``times`` times per step, as one body over all data.

    ``rows`` are the operations of the repeated bodies. The GPU's work stays: the remaining operations take as long together
    as all did. The launches of the other bodies disappear.
    """
    kept_ids: list[int] = []
    timed: list[int] = []
    removed: list[int] = []
    for _, part in rows.sort_values("start_ns").groupby("step"):
        ids, durations = part["gpu_op_id"].to_numpy(np.int64), part["dur_ns"].to_numpy(np.int64)
        per_pass = max(len(ids) // max(times, 1), 1)
        kept_ids += ids[:per_pass].tolist()
        timed += [max(int(durations.sum()) // per_pass, 1)] * per_pass
        removed += ids[per_pass:].tolist()
    return [TimedOps(tuple(kept_ids), tuple(timed)), WithoutOps(tuple(removed))] if removed else []

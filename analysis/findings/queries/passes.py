"""GPU operations that operators launched, in the forward pass and in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import REST_OF_LAUNCHES, Advice, Evidence
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

SCALING_OPERATORS = ("aten::mul_", "aten::div_", "aten::clamp_", "aten::clamp_max_", "aten::clamp_min_")
_NODE = f"^{AUTOGRAD_NODE}|Backward[0-9]*$"  # Matches the names of autograd nodes in a backward pass.
# Walk from each launching operator up to the enclosing autograd node. An operator with a sequence number belongs to a forward pass,
# so it runs a second time inside the node.
_RECOMPUTED = f"""
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
    def both_passes(self) -> pd.DataFrame:
        """Rows of both passes."""
        return pd.concat([self.forward, self.backward])


def passes(context: RuleContext, operators: Sequence[int]) -> Passes:
    """Return the work that ``operators`` launched, at any depth, and the work of their backward passes."""
    if not len(operators):
        return Passes(context.work.iloc[:0], context.work.iloc[:0])
    launches = context.launches
    all_operators = launches.operators_begun_in(np.array(operators, np.int64))
    forward = launches.by(all_operators)
    backward = np.setdiff1d(launches.launched_in_backward_of(all_operators), forward)
    return Passes(context.work.iloc[np.sort(forward)], context.work.iloc[backward])


def first_shape(dims: list[Any] | None) -> tuple[int, ...]:
    """Return the shape of an operator's first input, empty for a list of tensors or without a record."""
    if not dims or not isinstance(dims[0], list):
        return ()
    return tuple(dims[0]) if all(isinstance(size, int) for size in dims[0]) else ()


def recomputed_rows(context: RuleContext) -> pd.DataFrame:
    """Return the rows of ``RuleContext.work`` that recompute the forward pass inside a backward pass."""
    recomputed = {int(row[0]) for row in context.recording.rows(_RECOMPUTED)}
    return context.work[context.work["gpu_op_id"].isin(recomputed)]


def backward_op_ids(context: RuleContext) -> set[int]:
    """Return the ids of the GPU operations of ``RuleContext.work`` launched inside autograd's nodes."""
    return set(context.work["gpu_op_id"].to_numpy(np.int64)[context.launches.launched_in_backward()].tolist())


def merged_body_edits(rows: pd.DataFrame, times: int) -> list[Edit]:
    """Return the edits that run a body, repeated ``times`` times per step, as one body over all data.

    ``rows`` are the operations of the repeated bodies. The operations of the first body then take as long as those of all
    bodies together, because the GPU's work stays the same. The launches of the other bodies disappear. The columns ``low_ns``
    and ``high_ns`` are the interval of ``dur_ns``, if the caller has changed it.
    """
    kept_ids: list[int] = []
    edges = [name for name in ("dur_ns", "low_ns", "high_ns") if name in rows]
    kept_times: dict[str, list[int]] = {name: [] for name in edges}
    removed: list[int] = []
    for _, step_rows in rows.sort_values("start_ns").groupby("step"):
        ids = step_rows["gpu_op_id"].to_numpy(np.int64)
        per_body = max(len(ids) // max(times, 1), 1)
        kept_ids += ids[:per_body].tolist()
        for name in edges:
            kept_times[name] += [max(int(step_rows[name].sum()) // per_body, 1)] * per_body
        removed += ids[per_body:].tolist()
    return [TimedOps(tuple(kept_ids), *map(tuple, kept_times.values())), WithoutOps(tuple(removed))] if removed else []


def evidence_of_saved_launches(
    context: RuleContext, advice: Advice, edits: Sequence[Edit], rows: pd.DataFrame
) -> Iterator[Evidence]:
    """Yield the evidence on ``rows`` if ``edits`` save a relevant share of the step.

    The edits merge repeated bodies, as those of ``merged_body_edits``.
    """
    predicted_ms = context.predict_ms(edits) if edits else None
    if predicted_ms is None or context.step_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    yield Evidence(
        advice,
        lost_ms=context.step_ms - predicted_ms,
        stated_ms=ms_per_step(rows, context.work_steps),
        edits=edits,
        rest=REST_OF_LAUNCHES,
        rows=evidence_of(rows, context.work_steps, ("operator",)),
        threshold_for="gain",
    )

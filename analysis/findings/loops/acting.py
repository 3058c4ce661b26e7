"""The passes of a policy that acts: the host needs each action for the environment.

A pass of the policy begins with a copy of the observation to the GPU and ends with a copy of the action to the host. No backward
pass, optimizer step or loss lies between these copies. Batches of a data loader, and evaluations that compute as much as an update,
are not acting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.derive.host_only import LOADING
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.model import Evidence
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, launched_by_optimizer, launched_inside
from sawtooth.analysis.findings.recorded.phases import LOSS
from sawtooth.analysis.knowledge.dtypes import FIRST_OPERAND
from sawtooth.analysis.replay.edits import (
    AsGraph,
    Edit,
    FasterHost,
    MoreLaunches,
    ScaledOps,
    TimedOps,
    WithoutCalls,
    WithoutHostCause,
    WithoutOps,
    WithoutWaits,
)
from sawtooth.analysis.run.model import Action

MIN_PASSES = 4  # In the recording. Fewer passes may be a test of the model.
MIN_KERNELS = 2  # A pass has a product, and a kernel that chooses an action.
MAX_BYTES = 4_000_000  # Of one action or observation. Larger copies are data sets or checkpoints.
MAX_ROWS_SHARE = 0.5  # Share of the rows of an update's products. An evaluation has as many rows as an update.
MAX_TIME_SHARE = 0.25  # Share of an update's GPU time, for recordings without shapes. An evaluation takes about a third.
PRODUCTS = r"^aten::(?:addmm|mm|bmm|baddbmm|addmv|mv|convolution|_convolution|linear|lstm|gru)$"
UPDATE_FIX = Action(
    "Launch", "each update as one CUDA graph", "; acting stays outside, because the environment needs each action on the host."
)
UPDATE_NOTE = "Predicted with each update launched as one graph. Kernels keep their durations, and acting stays as it is."
UPDATE_RISK = "Graphs need static shapes and addresses; an update must not read GPU values, such as a clipping share or an approximate KL."
_LAUNCHES = (
    "SELECT g.gpu_op_id, g.call_id, c.thread_id, c.start_ns, c.start_ns + c.dur_ns AS end_ns, g.dur_ns, coalesce(g.bytes, 0) AS bytes, "
    "regexp_matches(n.name, '(?i)HtoD|HostToDevice') AND g.kind = 'memcpy' AS to_gpu, regexp_matches(n.name, '(?i)DtoH|DeviceToHost') AND g.kind = 'memcpy' AS to_host "
    "FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN names n ON n.name_id = g.name_id WHERE g.device = ? ORDER BY c.start_ns, g.gpu_op_id"
)
_CALLS = "SELECT call_id, start_ns FROM runtime_calls ORDER BY start_ns"
_LOADS = "SELECT start_ns FROM named_cpu_ops WHERE starts_with(name, ?) ORDER BY start_ns"


@dataclass(frozen=True)
class ActingPasses:
    """The passes in which the policy acts.

    ``passes`` is the number of passes in the recording. ``spans`` are the times (absolute ns) from the first pass after an update
    to the next update, and ``rounds`` is the number of spans. ``calls`` and ``ops`` are the ids of the runtime calls and GPU
    operations in these spans. ``updates`` has the GPU operation that begins each step's update. ``acts_after_update`` is True if a
    step acts after its update.
    """

    passes: int
    rounds: int
    spans: tuple[tuple[int, int], ...]
    calls: frozenset[int]
    ops: frozenset[int]
    updates: tuple[int, ...]
    acts_after_update: bool

    @property
    def per_round(self) -> float:
        """The mean number of passes between two updates."""
        return self.passes / self.rounds


@once
def acting_passes(context: RuleContext) -> ActingPasses | None:
    """Return the passes in which a policy acts, None for loops without such passes."""
    recording, device = context.recording, context.rank.device
    if not recording.named(f"^{AUTOGRAD_NODE}") or not recording.named("(?i)DtoH|DeviceToHost"):
        return None
    launches = recording.frame(_LAUNCHES, [device])
    if launches.empty:
        return None
    ids = launches["gpu_op_id"].to_numpy(np.int64)
    in_update = np.isin(ids, launched_inside(recording, device, f"^{AUTOGRAD_NODE}"))
    in_update |= np.isin(ids, launched_by_optimizer(recording, device)) | np.isin(ids, launched_inside(recording, device, LOSS))
    is_small = launches["bytes"].to_numpy(np.int64) <= MAX_BYTES
    to_gpu, to_host = launches["to_gpu"].to_numpy(bool), launches["to_host"].to_numpy(bool)
    begins_part = to_gpu & ~np.concatenate([[False], to_gpu[:-1]])  # A copy to the GPU that follows something else.
    launches = launches.assign(
        part=np.cumsum(begins_part),
        in_update=in_update,
        is_small_to_host=to_host & is_small,
        is_large_copy=(to_gpu | to_host) & ~is_small,
        is_kernel=~to_gpu & ~to_host,
        is_product=np.isin(ids, launched_inside(recording, device, PRODUCTS)),
    )
    parts = launches.groupby("part").agg(
        start_ns=("start_ns", "first"), end_ns=("end_ns", "max"), dur_ns=("dur_ns", "sum"), is_update=("in_update", "any"),
        copies_to_host=("is_small_to_host", "any"), has_large_copy=("is_large_copy", "any"), kernels=("is_kernel", "sum"), has_product=("is_product", "any"),
    )  # fmt: skip
    is_update = parts["is_update"].to_numpy(bool)
    if not is_update.any():
        return None
    may_act = (
        (parts.index > 0) & parts["copies_to_host"] & parts["has_product"] & ~parts["is_update"] & ~parts["has_large_copy"]
        & (parts["kernels"] >= MIN_KERNELS) & ~_load_batches(context, parts)
    ).to_numpy(bool)  # fmt: skip
    is_acting = may_act & _have_small_batches(context, launches, parts)
    if is_acting.sum() < MIN_PASSES:
        return None
    return _acting_passes(context, launches, parts, is_acting)


def _load_batches(context: RuleContext, parts: pd.DataFrame) -> np.ndarray:
    """Return which ``parts`` take a batch from a data loader."""
    loads = np.array([start_ns for (start_ns,) in context.recording.rows(_LOADS, [LOADING])], np.int64)
    starts = parts["start_ns"].to_numpy(np.int64)
    next_starts = np.append(starts[1:], np.iinfo(np.int64).max)
    return np.searchsorted(loads, next_starts) > np.searchsorted(loads, starts)


def _have_small_batches(context: RuleContext, launches: pd.DataFrame, parts: pd.DataFrame) -> np.ndarray:
    """Return which ``parts`` compute on much smaller batches than the updates.

    The products of such parts have fewer rows. Without recorded shapes, the GPU time decides.
    """
    is_update = parts["is_update"].to_numpy(bool)
    products = context.work[context.work["operator"].notna() & context.work["dims"].notna()]
    products = products[products["operator"].str.contains(PRODUCTS)]
    product_rows = [_rows(*call) for call in zip(products["operator"], products["dims"], strict=True)]
    rows = pd.Series(product_rows, products["gpu_op_id"], dtype=float)
    part_of_product = launches.set_index("gpu_op_id")["part"].reindex(rows.index)
    part_rows = rows.groupby(part_of_product).max().reindex(parts.index)
    update_rows = part_rows[is_update].median()
    gpu_ns = parts["dur_ns"].to_numpy(float)
    is_short = gpu_ns <= MAX_TIME_SHARE * median(gpu_ns[is_update])
    return np.where(part_rows.notna() & (update_rows > 0), part_rows <= MAX_ROWS_SHARE * update_rows, is_short)


def _rows(operator: str, dims: list[Any]) -> int:
    """Return the rows of the first operand of a product or convolution, 0 if not recorded."""
    index = FIRST_OPERAND.get(operator, 0)
    shape = dims[index] if len(dims) > index else None
    return shape[0] if isinstance(shape, list) and shape and isinstance(shape[0], int) else 0


def _acting_passes(context: RuleContext, launches: pd.DataFrame, parts: pd.DataFrame, is_acting: np.ndarray) -> ActingPasses:
    """Return the result of ``acting_passes``, where ``is_acting`` marks the acting passes among ``parts``."""
    spans = _acting_spans(parts, is_acting)
    begin, end = (np.array(edge, np.int64) for edge in zip(*spans, strict=True))
    ops = launches[_are_inside(launches["start_ns"].to_numpy(np.int64), begin, end)]
    calls = context.recording.frame(_CALLS)
    acting_calls = calls[_are_inside(calls["start_ns"].to_numpy(np.int64), begin, end)]
    updates = launches[~launches["gpu_op_id"].isin(ops["gpu_op_id"]) & launches["in_update"]]
    first_ops = _after_acting(context.work, context.work["gpu_op_id"].isin(ops["gpu_op_id"]))
    steps = context.rank.counted
    acts_after_update = any(
        ((begin > _first_launch(updates, start, end)) & (begin >= start) & (begin < end)).any()
        for start, end in zip(steps["host_start_ns"], steps["host_end_ns"], strict=True)
    )
    return ActingPasses(
        int(is_acting.sum()), len(spans), tuple(spans), frozenset(acting_calls["call_id"].tolist()), frozenset(ops["gpu_op_id"].tolist()),
        first_ops, acts_after_update,
    )  # fmt: skip


def _acting_spans(parts: pd.DataFrame, is_acting: np.ndarray) -> list[tuple[int, int]]:
    """Return the times (ns) from the first acting pass after an update to the next update."""
    starts, is_update = parts["start_ns"].to_numpy(np.int64), parts["is_update"].to_numpy(bool)
    spans: list[tuple[int, int]] = []
    begin_ns: int | None = None
    for index in range(len(parts)):
        if is_update[index] and begin_ns is not None:
            spans.append((begin_ns, int(starts[index])))
            begin_ns = None
        elif is_acting[index] and begin_ns is None:
            begin_ns = int(starts[index])
    if begin_ns is not None:
        spans.append((begin_ns, int(parts["end_ns"].iloc[-1])))
    return spans


def _after_acting(work: pd.DataFrame, is_acting: pd.Series) -> tuple[int, ...]:
    """Return each step's first GPU operation after the step's last acting operation."""
    before_last_action = is_acting[::-1].groupby(work["step"]).cummax()[::-1]
    return tuple(work[~before_last_action].drop_duplicates("step")["gpu_op_id"].astype(int).tolist())


def _first_launch(updates: pd.DataFrame, start_ns: int, end_ns: int) -> int:
    """Return when the first of ``updates`` between two times is launched, ``end_ns`` if none is."""
    moments = updates["start_ns"].to_numpy(np.int64)
    inside = moments[(moments >= start_ns) & (moments < end_ns)]
    return int(inside[0]) if len(inside) else end_ns


def _are_inside(moments: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return which ``moments`` lie in one of the sorted, disjoint intervals."""
    index = np.searchsorted(begin, moments, side="right") - 1
    return (index >= 0) & (moments < end[np.maximum(index, 0)])


def without_acting(context: RuleContext, evidence: Evidence) -> Evidence | None:
    """Return ``evidence`` with edits that do not change the acting passes, None if no edit remains.

    A change to the update cannot remove the reads, launches and Python work of acting, because the environment needs each
    action.
    """
    acts = acting_passes(context) if evidence.edits else None
    if acts is None:
        return evidence
    edits = [remaining for edit in evidence.edits if (remaining := _remaining_edit(context, edit, acts)) is not None]
    return replace(evidence, edits=tuple(edits)) if edits else None


def _remaining_edit(context: RuleContext, edit: Edit, acts: ActingPasses) -> Edit | None:
    """Return the part of ``edit`` outside the acting passes, None if nothing remains."""
    match edit:
        case AsGraph():
            first_ops = edit.first_ops or acts.updates
            return None if acts.acts_after_update or not first_ops else AsGraph(first_ops=first_ops)
        case WithoutHostCause() | WithoutWaits() | FasterHost() | WithoutCalls():
            calls = edit.calls if edit.calls is not None else _all_calls(context)
            remaining_ids = tuple(call for call in calls if call not in acts.calls)
            return _with_values(edit, calls=remaining_ids) if remaining_ids else None
        case WithoutOps() | ScaledOps():
            remaining_ids = tuple(op for op in edit.ops if op not in acts.ops)
            return _with_values(edit, ops=remaining_ids) if remaining_ids else None
        case TimedOps() | MoreLaunches():
            remaining = [index for index, op in enumerate(edit.ops) if op not in acts.ops]
            columns = ("ops", "dur_ns", "low_ns", "high_ns") if isinstance(edit, TimedOps) else ("ops", "launches")
            return (
                _with_values(edit, **{name: _pick(getattr(edit, name), remaining) for name in columns}) if remaining else None
            )


def _with_values(edit: Edit, **changes: object) -> Edit:
    return type(edit)(**{name: getattr(edit, name) for name in edit.__struct_fields__} | changes)


def _pick(values: Sequence[int], indices: Sequence[int]) -> tuple[int, ...]:
    return tuple(values[index] for index in indices) if values else ()


@once
def _all_calls(context: RuleContext) -> tuple[int, ...]:
    return tuple(int(call) for (call,) in context.recording.rows("SELECT call_id FROM runtime_calls ORDER BY 1"))


def share_outside_acting(context: RuleContext, cause: str) -> float:
    """Return the share of the time lost to ``cause`` outside acting passes, 1 without acting."""
    acts = acting_passes(context)
    if acts is None:
        return 1.0
    rows = context.recording.rows(
        "SELECT start_ns, end_ns - start_ns FROM gaps WHERE device = ? AND cause = ? ORDER BY 1", [context.rank.device, cause]
    )
    if not rows:
        return 1.0
    start_ns, gap_ns = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    begin, end = (np.array(edge, np.int64) for edge in zip(*acts.spans, strict=True))
    return float(gap_ns[~_are_inside(start_ns, begin, end)].sum() / max(gap_ns.sum(), 1))

"""Find the part of a loop in which a policy acts: the host needs each action for its environment.

A pass of the policy begins with a copy of the observation to the GPU and ends with a copy of the action to the host. No
backward pass, optimizer step or loss lies between, and the environment answers with the next copy to the GPU. Batches of a
data loader, and evaluations that compute as much as an update, are not acting.
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
MIN_KERNELS = 2  # A pass has at least two kernels: a product, and the choice of an action.
MAX_BYTES = 4_000_000  # Of one action or observation. Larger copies are data sets or checkpoints.
# A pass has at most this share of the rows of an update's products. The batches of an evaluation are as large as the training's.
MAX_ROWS = 0.5
# Without recorded shapes: a pass takes at most this share of an update's GPU time. An evaluation takes about a third.
MAX_UPDATE_SHARE = 0.25
PRODUCTS = r"^aten::(?:addmm|mm|bmm|baddbmm|addmv|mv|convolution|_convolution|linear|lstm|gru)$"
UPDATE_FIX = Action(
    "Launch", "each update as one CUDA graph", "; acting stays outside, because the environment needs each action on the host."
)
UPDATE_NOTE = "Predicted with each update launched as one graph. Kernels keep their durations, and acting stays as it is."
UPDATE_RISK = "Graphs need static shapes and addresses; an update must not read GPU values, such as a clipping share or an approximate KL."
_LAUNCHES = (
    "SELECT g.gpu_op_id, g.call_id, c.thread_id, c.start_ns, c.start_ns + c.dur_ns AS end_ns, g.dur_ns, coalesce(g.bytes, 0) AS bytes, "
    "regexp_matches(n.name, '(?i)HtoD|HostToDevice') AND g.kind = 'memcpy' AS up, regexp_matches(n.name, '(?i)DtoH|DeviceToHost') AND g.kind = 'memcpy' AS down "
    "FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN names n ON n.name_id = g.name_id WHERE g.device = ? ORDER BY c.start_ns, g.gpu_op_id"
)
_WAITS = "SELECT call_id, start_ns FROM runtime_calls ORDER BY start_ns"
_LOADS = "SELECT start_ns FROM named_cpu_ops WHERE starts_with(name, ?) ORDER BY start_ns"


@dataclass(frozen=True)
class Acting:
    """The passes in which the policy acts.

    ``passes`` is their number in the recording. ``spans`` are the times (absolute ns) from the first pass after an update to the
    next update, and ``rounds`` is their number. ``calls`` and ``ops`` are the runtime calls and GPU operations in these spans.
    ``updates`` has the GPU operation that begins each step's update. ``acts_after_update`` is True if a step acts after its update.
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
def acting(context: RuleContext) -> Acting | None:
    """Return the passes in which a policy acts; None for loops without them."""
    recording, device = context.recording, context.rank.device
    if not recording.named(f"^{AUTOGRAD_NODE}") or not recording.named("(?i)DtoH|DeviceToHost"):
        return None
    launches = recording.frame(_LAUNCHES, [device])
    if launches.empty:
        return None
    ids = launches["gpu_op_id"].to_numpy(np.int64)
    learns = np.isin(ids, launched_inside(recording, device, f"^{AUTOGRAD_NODE}"))
    learns |= np.isin(ids, launched_by_optimizer(recording, device)) | np.isin(ids, launched_inside(recording, device, LOSS))
    small = launches["bytes"].to_numpy(np.int64) <= MAX_BYTES
    up, down = launches["up"].to_numpy(bool), launches["down"].to_numpy(bool)
    begins = up & ~np.concatenate([[False], up[:-1]])
    part = np.cumsum(begins)  # A part begins where a copy to the GPU follows something else.
    frame = launches.assign(
        part=part,
        learns=learns,
        down_small=down & small,
        large=(up | down) & ~small,
        kernel=~up & ~down,
        product=np.isin(ids, launched_inside(recording, device, PRODUCTS)),
    )
    parts = frame.groupby("part").agg(
        start_ns=("start_ns", "first"), end_ns=("end_ns", "max"), dur_ns=("dur_ns", "sum"), learns=("learns", "any"), down=("down_small", "any"),
        large=("large", "any"), kernels=("kernel", "sum"), product=("product", "any"),
    )  # fmt: skip
    loads = np.array([at for (at,) in recording.rows(_LOADS, [LOADING])], np.int64)
    starts = parts["start_ns"].to_numpy(np.int64)
    follows = np.append(starts[1:], np.iinfo(np.int64).max)
    loaded = np.searchsorted(loads, follows) > np.searchsorted(loads, starts)
    acts = (
        (parts.index > 0) & parts["down"] & parts["product"] & ~parts["learns"] & ~parts["large"]
        & (parts["kernels"] >= MIN_KERNELS) & ~loaded
    ).to_numpy(bool)  # fmt: skip
    updates = parts["learns"].to_numpy(bool)
    if not updates.any():
        return None
    acts = acts & _smaller(context, frame, parts, updates)
    if acts.sum() < MIN_PASSES:
        return None
    return _acting_passes(context, frame, parts, acts, updates)


def _smaller(context: RuleContext, frame: pd.DataFrame, parts: pd.DataFrame, updates: np.ndarray) -> np.ndarray:
    """Return which ``parts`` compute on much smaller batches than the ``updates``.

    Their products have fewer rows; without recorded shapes, their GPU time is shorter.
    """
    shaped = context.work[context.work["operator"].notna() & context.work["dims"].notna()]
    shaped = shaped[shaped["operator"].str.contains(PRODUCTS)]
    rows = pd.Series(
        [_rows(*call) for call in zip(shaped["operator"], shaped["dims"], strict=True)], shaped["gpu_op_id"], dtype=float
    )
    part = frame.set_index("gpu_op_id")["part"].reindex(rows.index)
    of_parts = rows.groupby(part).max().reindex(parts.index)
    of_updates = of_parts[updates].median()
    busy = parts["dur_ns"].to_numpy(float)
    by_time = busy <= MAX_UPDATE_SHARE * median(busy[updates])
    return np.where(of_parts.notna() & (of_updates > 0), of_parts <= MAX_ROWS * of_updates, by_time)


def _rows(operator: str, dims: list[Any]) -> int:
    """Return the rows of the first operand of a product or convolution, 0 if they are not recorded."""
    place = FIRST_OPERAND.get(operator, 0)
    shape = dims[place] if len(dims) > place else None
    return shape[0] if isinstance(shape, list) and shape and isinstance(shape[0], int) else 0


def _acting_passes(
    context: RuleContext, frame: pd.DataFrame, parts: pd.DataFrame, acts: np.ndarray, updates: np.ndarray
) -> Acting:
    """Return the result of ``acting``; ``acts`` and ``updates`` mark passes and updates among ``parts``."""
    starts = parts["start_ns"].to_numpy(np.int64)
    spans: list[tuple[int, int]] = []
    open_ns: int | None = None
    for place in range(len(parts)):
        if updates[place] and open_ns is not None:
            spans.append((open_ns, int(starts[place])))
            open_ns = None
        elif acts[place] and open_ns is None:
            open_ns = int(starts[place])
    if open_ns is not None:
        spans.append((open_ns, int(parts["end_ns"].iloc[-1])))
    begin, end = (np.array(edge, np.int64) for edge in zip(*spans, strict=True))
    ops = frame[_are_inside(frame["start_ns"].to_numpy(np.int64), begin, end)]
    calls = context.recording.frame(_WAITS)
    calls_inside = calls[_are_inside(calls["start_ns"].to_numpy(np.int64), begin, end)]
    learning = frame[~frame["gpu_op_id"].isin(ops["gpu_op_id"])]
    firsts = _after_acting(context.work, context.work["gpu_op_id"].isin(ops["gpu_op_id"]))
    steps = context.rank.counted
    any_late = any(
        ((begin >= first) & (begin < last) & (begin > _first_update(learning, first, last))).any()
        for first, last in zip(steps["host_start_ns"], steps["host_end_ns"], strict=True)
    )
    return Acting(
        int(acts.sum()), len(spans), tuple(spans), frozenset(calls_inside["call_id"].tolist()), frozenset(ops["gpu_op_id"].tolist()),
        firsts, any_late,
    )  # fmt: skip


def _after_acting(work: pd.DataFrame, acts: pd.Series) -> tuple[int, ...]:
    """Return each step's first GPU operation after its last acting operation."""
    passed = acts[::-1].groupby(work["step"]).cummax()[::-1]
    return tuple(work[~passed].drop_duplicates("step")["gpu_op_id"].astype(int).tolist())


def _first_update(learning: pd.DataFrame, first: int, last: int) -> int:
    """Return when an update's first operation is launched between two times; else ``last``."""
    moments = learning.loc[learning["learns"], "start_ns"].to_numpy(np.int64)
    inside = moments[(moments >= first) & (moments < last)]
    return int(inside[0]) if len(inside) else last


def _are_inside(moments: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return which ``moments`` lie in one of the sorted, disjoint intervals."""
    at = np.searchsorted(begin, moments, side="right") - 1
    return (at >= 0) & (moments < end[np.maximum(at, 0)])


def without_acting(context: RuleContext, evidence: Evidence) -> Evidence | None:
    """Return ``evidence`` with edits that do not change the acting passes; None if no edit remains.

    The environment needs each action, so a change to the update cannot remove the reads, launches and Python work of acting.
    """
    acts = acting(context) if evidence.edits else None
    if acts is None:
        return evidence
    edits = [remaining for edit in evidence.edits if (remaining := _remaining_edit(context, edit, acts)) is not None]
    return replace(evidence, edits=tuple(edits)) if edits else None


def _remaining_edit(context: RuleContext, edit: Edit, acts: Acting) -> Edit | None:
    """Return the part of ``edit`` outside the acting passes; None if nothing is left."""
    match edit:
        case AsGraph():
            starts = edit.first_ops or acts.updates
            return None if acts.acts_after_update or not starts else AsGraph(first_ops=starts)
        case WithoutHostCause() | WithoutWaits() | FasterHost() | WithoutCalls():
            calls = edit.calls if edit.calls is not None else _every_call(context)
            remaining_ids = tuple(call for call in calls if call not in acts.calls)
            return _with_values(edit, calls=remaining_ids) if remaining_ids else None
        case WithoutOps() | ScaledOps():
            remaining_ids = tuple(op for op in edit.ops if op not in acts.ops)
            return _with_values(edit, ops=remaining_ids) if remaining_ids else None
        case TimedOps() | MoreLaunches():
            stays = [place for place, op in enumerate(edit.ops) if op not in acts.ops]
            columns = ("ops", "dur_ns", "low_ns", "high_ns") if isinstance(edit, TimedOps) else ("ops", "launches")
            return _with_values(edit, **{name: _pick(getattr(edit, name), stays) for name in columns}) if stays else None


def _with_values(edit: Edit, **changed: object) -> Edit:
    return type(edit)(**{name: getattr(edit, name) for name in edit.__struct_fields__} | changed)


def _pick(values: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    return tuple(values[place] for place in places) if values else ()


@once
def _every_call(context: RuleContext) -> tuple[int, ...]:
    return tuple(int(call) for (call,) in context.recording.rows("SELECT call_id FROM runtime_calls ORDER BY 1"))


def outside_acting(context: RuleContext, cause: str) -> float:
    """Return the share of the time lost to ``cause`` outside acting passes; 1 without acting."""
    acts = acting(context)
    if acts is None:
        return 1.0
    rows = context.recording.rows(
        "SELECT start_ns, end_ns - start_ns FROM gaps WHERE device = ? AND cause = ? ORDER BY 1", [context.rank.device, cause]
    )
    if not rows:
        return 1.0
    start, ns = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    begin, end = (np.array(edge, np.int64) for edge in zip(*acts.spans, strict=True))
    return float(ns[~_are_inside(start, begin, end)].sum() / max(ns.sum(), 1))

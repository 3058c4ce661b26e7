"""Norms of single gradients that the host reads one by one, as clipping by hand does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.kernel_retiming import SHORTEST_KERNEL_NS
from sawtooth.analysis.findings.queries.host_reads import ops_only_for_reads, waiting_calls
from sawtooth.analysis.findings.queries.passes import backward_op_ids, first_shape
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange

NORMS = ("aten::linalg_vector_norm", "aten::norm")
SINGLE_READS = r"^aten::(item|is_nonzero|_local_scalar_dense)$"
MIN_NORMS = 8  # Norms per step. Fewer norms can belong to a small part of the model.
MIN_PARAMETER_SHARE = 0.5  # Share of the parameters whose norm is read. Some may be frozen, or have no gradient in a step.
REMAINING_KERNELS = 2  # clip_grad_norm_ needs a few kernels for the norms, and as many for scaling.
CLIP_ACCESSES = 3  # clip_grad_norm_ reads each gradient for the norm, and reads and writes it for scaling.

NORM_IN_ONE_CALL = Action(
    "Get",
    "the norm of all gradients from one call",
    ": clip_grad_norm_ clips without a read and returns the norm, get_total_norm only computes the norm. Read the norm every N steps.",
)
CLIP_IN_ONE_CALL = CodeChange(
    "PyTorch",
    "for p in model.parameters():\n    norm = p.grad.norm().item()   # a wait for each\n    if norm > 1.0: p.grad.mul_(1.0 / norm)",
    "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)   # of all gradients; float('inf') clips nothing\n"
    "if step % 100 == 0:\n    log(norm.item())",
)
_READS = """
WITH waiting AS (SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE call_id IN (SELECT unnest($calls::BIGINT[]))),
kernels AS (SELECT g.gpu_op_id, c.thread_id, c.start_ns FROM gpu_ops g JOIN runtime_calls c USING (call_id) WHERE g.kind = 'kernel')
SELECT w.call_id FROM waiting w ASOF JOIN kernels k ON k.thread_id = w.thread_id AND k.start_ns <= w.start_ns
WHERE k.gpu_op_id IN (SELECT unnest($norms::BIGINT[]))"""


@dataclass(frozen=True)
class NormReads:
    """Norms of single gradients (rows of ``RuleContext.work``), and the calls that wait for the norms."""

    norms: pd.DataFrame
    calls: frozenset[int]


@once
def norm_reads(context: RuleContext) -> NormReads:
    """Return the norms of gradients that the host reads one by one before the optimizer's step.

    The host must read the norms of most parameters, between the backward pass and the optimizer's step. Empty with fewer than
    MIN_NORMS per step.
    """
    work = context.work
    no_reads = NormReads(work.iloc[:0], frozenset())
    norms = work[work["operator"].isin(NORMS) & (work["kind"] == "kernel")]
    if len(norms) < MIN_NORMS * context.work_steps:
        return no_reads
    calls = waiting_calls(context, SINGLE_READS)
    parameters = parameters_of(context.recording, context.rank.device)
    last_backward_ns = work[work["gpu_op_id"].isin(backward_op_ids(context))].groupby("step")["start_ns"].max()
    updates = work[work["gpu_op_id"].isin(launched_by_optimizer(context.recording, context.rank.device))]
    first_update_ns = updates.groupby("step")["start_ns"].min()
    gradient_norms = norms[
        norms["gpu_op_id"].isin(ops_only_for_reads(context, calls))
        & norms["dims"].map(first_shape).isin(set(parameters))
        & (norms["start_ns"] > norms["step"].map(last_backward_ns))
        & ~(norms["start_ns"] > norms["step"].map(first_update_ns))
    ]
    if len(gradient_norms) < max(MIN_NORMS, MIN_PARAMETER_SHARE * parameters.total()) * context.work_steps:
        return no_reads
    rows = context.recording.rows(_READS, {"calls": list(calls), "norms": gradient_norms["gpu_op_id"].tolist()})
    return NormReads(gradient_norms, frozenset(int(call) for (call,) in rows))


def with_clipping(edits: Sequence[Edit], norms: pd.DataFrame) -> list[Edit]:
    """Return ``edits`` that keep REMAINING_KERNELS of each step's ``norms`` for clip_grad_norm_."""
    remaining_ids: list[int] = []
    clip_times: list[int] = []
    for _, step_norms in norms.groupby("step"):
        ids = step_norms["gpu_op_id"].tolist()[:REMAINING_KERNELS]
        remaining_ids += ids
        # A kernel for many tensors begins only once.
        reading_ns = int((step_norms["dur_ns"] - SHORTEST_KERNEL_NS).clip(lower=0).sum())
        clip_times += [max(reading_ns * CLIP_ACCESSES // len(ids), SHORTEST_KERNEL_NS)] * len(ids)
    remaining = set(remaining_ids)
    other_edits = [
        WithoutOps(tuple(op for op in edit.ops if op not in remaining)) if isinstance(edit, WithoutOps) else edit
        for edit in edits
    ]
    # get_total_norm does not scale the gradients.
    norm_times = tuple(max(ns // CLIP_ACCESSES, SHORTEST_KERNEL_NS) for ns in clip_times)
    return [*other_edits, TimedOps(tuple(remaining_ids), tuple(clip_times), norm_times, tuple(clip_times))]

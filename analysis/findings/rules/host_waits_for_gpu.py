"""The host waits for the GPU inside the step.

What it checks
    Idle time after a host wait for the GPU (cause ``host_sync``): ``.item()``, ``.cpu()``, ``print`` of a tensor, and
    explicit synchronizations. The evidence groups the waits by source line, else by operator. Boolean masks, checkpoints and
    anomaly detection have their own rules. If most reads are norms of single gradients before the optimizer's step, the advice is
    ``clip_grad_norm_``.
Why it costs time
    The host launches nothing while it waits. The GPU finishes its queue and then waits for the host. After a single read of a
    loss, the launch queue is empty for the rest of the step.
What to do
    Keep values on the GPU: accumulate the loss as a tensor and read it every N steps. Use a gradient scaler and clipping that
    do not read norms.
When it is wrong
    The host must read the value in each step, for example to decide what to launch next.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.builders import wait_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting_passes
from sawtooth.analysis.findings.loops.capture_obstacles import (
    alone_or_before_a_graph,
    coalescing_waits,
    evidence_before_a_graph,
    read_waits,
)
from sawtooth.analysis.findings.loops.gradient_norms import CLIP_IN_ONE_CALL, NORM_IN_ONE_CALL, norm_reads, with_clipping
from sawtooth.analysis.findings.loops.read_code import CHANGES, COPY_FEWER_TENSORS, TEST_END_LESS_OFTEN, WAIT_FOR_EARLIER_STEP
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import lost_in_calls_ms
from sawtooth.analysis.findings.queries.convolution_searches import calls_of_searches
from sawtooth.analysis.findings.queries.copies import checkpoint_calls
from sawtooth.analysis.findings.queries.host_reads import (
    MASK_OPERATORS,
    POLL_EARLIER,
    SAME_SHAPE_CHANGES,
    SINGLE_VALUE_READS,
    mostly_polls,
    nan_checks,
    scaler_calls,
    waiting_calls,
)
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_number

READ_LATER = Action(
    "Take", "the reads of GPU values out of the step", ": keep losses and norms as tensors and read them every N steps."
)

# Advice if reads of masks, tensors or checks lose more time than reads of losses and norms.
KEEP_SHAPE = replace(
    READ_LATER,
    how=": {operator} waits for a size that only the GPU knows. torch.where, masked_fill and a loss with ignore_index keep the shape.",
)
COPY_TOGETHER = replace(
    READ_LATER,
    how=": .cpu(), .numpy() and .tolist() copy {size} in {copies} per step. Do the computation that follows on the GPU. If the host "
    "must do it, as for linear_sum_assignment, copy all tensors at once.",
)
TEST_LESS_OFTEN = replace(
    READ_LATER,
    how=": most reads test a tensor in Python (if, assert, validate_args of torch.distributions). Turn such checks off, or run them every N steps.",
)
# Trainer tests each loss with isnan and isinf unless logging_nan_inf_filter is False.
TRAINER_TESTS_LESS = replace(
    READ_LATER, how=": logging_nan_inf_filter=False ends Trainer's tests of each loss for NaN. Run other tests every N steps."
)
# GradScaler reads before each optimizer step whether a gradient overflowed. A fused optimizer decides this on the GPU.
USE_FUSED_OPTIMIZER = Action(
    "Give", "the optimizer fused=True", ": GradScaler then reads no value before its step. Training in bf16 needs no scaler."
)
SCALER_TOO = " GradScaler also reads a value before each optimizer step, unless the optimizer has fused=True."
TEST_OPERATORS = "^aten::is_nonzero$"
LOSSES_TOO = " Keep losses and norms as tensors, and read them every N steps."
SINGLE_VALUE_BYTES = 8  # A copy of more bytes reads a tensor.

TRAINING_OPERATORS = r"^(autograd::engine::evaluate_function|Optimizer\.step#)"
SAMPLING_OPERATORS = r"^aten::(argmax|multinomial)$"  # They choose the next token of a generation.
# Advice for loops without training, which have no losses or norms.
COLLECT_TOKENS = replace(READ_LATER, how=": collect tokens in a tensor on the GPU and look for the end every N tokens.")
COLLECT_RESULTS = replace(READ_LATER, how=": keep results on the GPU and copy those of several batches together.")
COPYING_OPERATORS = r"^aten::(copy_|_to_copy|to|cpu)$"  # ``.cpu()``, ``.numpy()`` and ``.tolist()`` call these operators.


# The waits that cost idle time in the window, and waits before the window at the same places. Without the earlier waits, launches
# would already have been queued when the window began.
_WAITS = """
WITH charged AS (SELECT DISTINCT call_id FROM gaps WHERE device = $1 AND cause = 'host_sync' AND call_id IS NOT NULL),
places AS (SELECT DISTINCT c.name_id, o.name_id AS operator FROM charged JOIN runtime_calls c USING (call_id) LEFT JOIN cpu_ops o USING (cpu_op_id)),
before AS (SELECT c.call_id FROM runtime_calls c LEFT JOIN cpu_ops o USING (cpu_op_id)
    JOIN places p ON p.name_id = c.name_id AND p.operator IS NOT DISTINCT FROM o.name_id
    WHERE c.start_ns < (SELECT min(start_ns) FROM windows WHERE device = $1))
SELECT call_id FROM charged UNION SELECT call_id FROM before"""


_NEXT_SYNCHRONIZATIONS = """
SELECT s.call_id FROM (SELECT * FROM runtime_calls SEMI JOIN (SELECT name_id FROM names WHERE contains(name, 'Synchronize')) USING (name_id)) s
ASOF JOIN (SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE gpu_ops > 0) sent ON s.thread_id = sent.thread_id AND s.start_ns > sent.start_ns
WHERE sent.call_id IN (SELECT unnest($1::BIGINT[]))"""


_LONGEST_MASK_OPERATOR = (
    "SELECT n.name FROM gaps g JOIN runtime_calls c USING (call_id) JOIN cpu_ops o ON o.cpu_op_id = c.cpu_op_id JOIN names n ON n.name_id = o.name_id "
    "WHERE g.device = ? AND g.cause = 'host_sync' AND g.call_id IN (SELECT unnest(?::BIGINT[])) AND regexp_matches(n.name, ?) "
    "GROUP BY 1 ORDER BY sum(g.end_ns - g.start_ns) DESC, 1 LIMIT 1"
)
READS_BEFORE_GRAPH = "The host reads GPU values {times} per step, and no CUDA graph can contain these waits"


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield one finding for all waits together, with a row of evidence for each place."""
    if context.share(context.lost_ms("host_sync")) < ONE_LINE_TO_CHANGE.share:
        yield from _evidence_preventing_a_graph(context)
        return
    rows = context.recording.rows(_WAITS, [context.rank.device])
    waits = (
        {int(row[0]) for row in rows}
        - set(checkpoint_calls(context))
        - _acting_calls(context)
        - calls_of_searches(context)
        - set(nan_checks(context).calls)
        - coalescing_waits(context)
    )
    outside_masks = waits - set(waiting_calls(context, MASK_OPERATORS))
    # The host can fill the launch queue only without any wait. So if most waits are outside masks, this finding also removes the
    # waits in masks. Otherwise the rule boolean-mask-waits reports the waits in masks.
    calls = tuple(sorted(waits if len(outside_masks) * 2 > len(waits) else outside_masks))
    if calls:
        calls = tuple(sorted({*calls, *_synchronizations_after(context, calls)}))
    if not calls:
        yield from _evidence_preventing_a_graph(context)
        return
    evidences = wait_evidence(
        context,
        calls,
        Advice(
            "The host stops {times} to wait for the GPU, {cost_clause} (mostly at {place})",
            _action(context, calls),
            note="Predicted by the replay without these waits and without work that only serves the reads: copies, norms, tests, and Python right after a copy of more than 1 MB.",
            risk="Logged values are up to N steps old, and NaN checks find a NaN later.",
            changes=_changes(context, calls),
        ),
    )
    alone = [_with_clipping(context, evidence) if _reads_norms(context, calls) else evidence for evidence in evidences]
    before_graph = _evidence_preventing_a_graph(context, alone[0].advice if alone else None)
    yield from alone_or_before_a_graph(context, alone, before_graph)


def _with_clipping(context: RuleContext, evidence: Evidence) -> Evidence:
    """Return the evidence on reads of norms, predicted with the kernels of clip_grad_norm_."""
    note = f"{evidence.advice.note} The kernels of clip_grad_norm_ stay."
    edits = with_clipping(evidence.edits, norm_reads(context).norms)
    return replace(evidence, advice=replace(evidence.advice, note=note), edits=edits)


def _acting_calls(context: RuleContext) -> frozenset[int]:
    """Return the calls in which a policy acts. These must wait, because the environment needs the actions."""
    acts = acting_passes(context)
    return acts.calls if acts is not None else frozenset()


def _action(context: RuleContext, calls: tuple[int, ...] = ()) -> Action:
    """Return the advice on the reads, for a training, a generation or another loop.

    With ``calls``, the advice for a training is about the kind of read that loses most time in these calls.
    """
    if mostly_polls(context, calls):
        return POLL_EARLIER
    if not context.recording.named(TRAINING_OPERATORS):
        return COLLECT_TOKENS if context.recording.named(SAMPLING_OPERATORS) else COLLECT_RESULTS
    kind = _largest_kind(context, calls) if calls else SINGLE_VALUE_READS
    losses_note = LOSSES_TOO if set(calls).intersection(waiting_calls(context, SINGLE_VALUE_READS)) else ""
    if kind == MASK_OPERATORS:
        return replace(KEEP_SHAPE, how=KEEP_SHAPE.how.format(operator=_longest_mask_operator(context, calls)) + losses_note)
    copied = _copied_bytes(context, calls) if kind == COPYING_OPERATORS else []
    if not copied or max(copied) <= SINGLE_VALUE_BYTES:
        return _advice_on_single_values(context, calls)
    action = _copy_together(context, copied)
    return replace(action, how=action.how + losses_note)


def _advice_on_single_values(context: RuleContext, calls: tuple[int, ...]) -> Action:
    """Return the advice on reads of single values: a gradient scaler's, norms, tests or losses."""
    scaler_reads = scaler_calls(context).intersection(calls)
    if scaler_reads:
        other_calls = tuple(sorted(set(calls) - scaler_reads))
        action = _advice_on_single_values(context, other_calls)
        return replace(action, how=action.how + SCALER_TOO) if other_calls else USE_FUSED_OPTIMIZER
    if _reads_norms(context, calls):
        return NORM_IN_ONE_CALL
    tests = set(calls).intersection(waiting_calls(context, TEST_OPERATORS))
    if 2 * len(tests) <= len(calls):
        return READ_LATER
    return TRAINER_TESTS_LESS if context.trainer == "Transformers" else TEST_LESS_OFTEN


def _reads_norms(context: RuleContext, calls: tuple[int, ...]) -> bool:
    """Return whether most of the ``calls`` read norms of single gradients before the optimizer's step."""
    return 2 * len(norm_reads(context).calls.intersection(calls)) > len(calls)


def _largest_kind(context: RuleContext, calls: tuple[int, ...]) -> str:
    """Return the operators of the kind of read that loses most: single values, masks or whole tensors."""
    ms_by_operators = {
        names: lost_in_calls_ms(context, "host_sync", tuple(set(calls).intersection(waiting_calls(context, names))))
        for names in (SINGLE_VALUE_READS, MASK_OPERATORS, COPYING_OPERATORS)
    }
    return max(ms_by_operators, key=lambda names: ms_by_operators[names])


def _longest_mask_operator(context: RuleContext, calls: tuple[int, ...]) -> str:
    """Return the name of the masking operator in which the ``calls`` lose most."""
    rows = context.recording.rows(_LONGEST_MASK_OPERATOR, [context.rank.device, list(calls), MASK_OPERATORS])
    return str(rows[0][0]).removeprefix("aten::") if rows else "nonzero"


def _copied_bytes(context: RuleContext, calls: tuple[int, ...]) -> list[int]:
    """Return the bytes of each copy to the host for which the counted steps wait in ``calls``."""
    copies = "SELECT g.bytes FROM step_gpu_ops g JOIN runtime_calls c USING (call_id) WHERE g.device = ? AND g.counted AND g.kind = 'memcpy' AND g.bytes > 0 "
    served = "AND c.cpu_op_id IN (SELECT cpu_op_id FROM runtime_calls WHERE call_id IN (SELECT unnest(?::BIGINT[])))"
    return [int(size) for (size,) in context.recording.rows(copies + served, [context.rank.device, list(calls)])]


def _changes(context: RuleContext, calls: tuple[int, ...]) -> tuple[CodeChange, ...]:
    """Return example changes, first for the kind of read with the largest loss."""
    if mostly_polls(context, calls):
        return (WAIT_FOR_EARLIER_STEP,)
    if _action(context) is COLLECT_TOKENS:
        return (TEST_END_LESS_OFTEN,)
    changes = {SINGLE_VALUE_READS: CHANGES, MASK_OPERATORS: SAME_SHAPE_CHANGES, COPYING_OPERATORS: COPY_FEWER_TENSORS}[
        _largest_kind(context, calls)
    ]
    if changes is CHANGES and _reads_norms(context, calls):
        changes = (CLIP_IN_ONE_CALL,)
    return (*changes, *(change for change in CHANGES if change not in changes))


def _synchronizations_after(context: RuleContext, calls: tuple[int, ...]) -> set[int]:
    """Return the synchronizations that follow a read in ``calls`` before any other launch.

    If only the read disappeared, the host would wait in the synchronization.
    """
    return {int(row[0]) for row in context.recording.rows(_NEXT_SYNCHRONIZATIONS, [list(calls)])}


def _evidence_preventing_a_graph(context: RuleContext, measured: Advice | None = None) -> Iterator[Evidence]:
    """Yield a finding on reads that cost nothing in the profile but prevent a CUDA graph.

    ``measured`` is the advice for the reads whose cost is known, if any.
    """
    reads = tuple(sorted(read_waits(context) - _acting_calls(context)))
    if not reads:
        return
    if measured is not None:
        yield from evidence_before_a_graph(context, reads, replace(measured, title=READS_BEFORE_GRAPH))
        return
    action = _action(context)
    if action is READ_LATER:
        copied = [size for size in _copied_bytes(context, reads) if size > SINGLE_VALUE_BYTES]
        tensors_only = bool(copied) and not set(reads).intersection(waiting_calls(context, SINGLE_VALUE_READS))
        action = _copy_together(context, copied) if tensors_only else _advice_on_single_values(context, reads)
    yield from evidence_before_a_graph(
        context,
        reads,
        Advice(
            READS_BEFORE_GRAPH,
            action,
            risk="Logged values are up to N steps old, and NaN checks find a NaN later.",
            changes=CHANGES,
        ),
    )


def _copy_together(context: RuleContext, copied: list[int]) -> Action:
    """Return the advice on copies to the host of these sizes (bytes) in the counted steps."""
    steps = max(len(context.rank.counted), 1)
    copies = in_number(len(copied) / steps, "copy", "copies")
    return replace(COPY_TOGETHER, how=COPY_TOGETHER.how.format(size=in_bytes(sum(copied) / steps), copies=copies))


RULE = Rule(
    "host-waits-for-gpu",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("host_sync",), sets=("reads",)),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)

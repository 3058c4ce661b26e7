"""The host waits for the GPU inside the step.

What it checks
    Idle time after a host wait for the GPU (cause ``host_sync``): ``.item()``, ``.cpu()``, ``print`` of a tensor, and
    explicit synchronizations. The waits are grouped by source line, else by operator. Boolean masks, checkpoints and anomaly
    detection have their own rules. If most reads are norms of single gradients before the optimizer's step, the advice is
    ``clip_grad_norm_``.
Why it costs time
    The host launches nothing while it waits. The GPU finishes its queue and then waits for the host. One read of a loss per
    step is enough: afterwards, the launch queue is empty for the rest of the step.
What to do
    Keep values on the GPU: accumulate the loss as a tensor and read it every N steps. Use a gradient scaler and clipping that
    do not read norms.
When it is wrong
    The wait comes at the end of a step whose work is complete. It costs nothing and is not counted, because only idle time
    after the wait counts.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.builders import wait_evidence, without_reads
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import WARNING_SHARE
from sawtooth.analysis.findings.loops.acting import acting
from sawtooth.analysis.findings.loops.gradient_norms import CLIP, IN_ONE_CALL, norm_reads, with_clipping
from sawtooth.analysis.findings.loops.read_code import CHANGES, END, POLLING, TENSORS
from sawtooth.analysis.findings.loops.replayed_graphs import replayed_graphs
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.calls import lost_in_calls
from sawtooth.analysis.findings.queries.convolution_searches import calls_of_searches
from sawtooth.analysis.findings.queries.copies import checkpoint_calls
from sawtooth.analysis.findings.queries.host_reads import (
    MASK_OPERATORS,
    OUTPUT_SIZE,
    POLL_EARLIER,
    REPEATS,
    SAME_SHAPE,
    begins_polling,
    nan_checks,
    scaler_calls,
    waiting_calls,
)
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_number

READ_LATER = Action(
    "Take", "the reads of GPU values out of the step", ": keep losses and norms as tensors and read them every N steps."
)

# Advice if other reads lose more time than the reads of single values, such as losses and norms.
READ_MASKS = replace(
    READ_LATER,
    how=": {operator} waits for a size that only the GPU knows. torch.where, masked_fill and a loss with ignore_index keep the shape.",
)
READ_TENSORS = replace(
    READ_LATER,
    how=": .cpu(), .numpy() and .tolist() copy {size} in {copies} per step. Do the computation that follows on the GPU. If the host "
    "must do it, as for linear_sum_assignment, copy all tensors at once.",
)
READ_CHECKS = replace(
    READ_LATER,
    how=": most reads test a tensor in Python (if, assert, validate_args of torch.distributions). Turn such checks off, or run them every N steps.",
)
# Trainer tests each loss with isnan and isinf, unless this argument is False.
TRAINER_CHECKS = replace(
    READ_LATER, how=": logging_nan_inf_filter=False ends Trainer's tests of each loss for NaN. Run other tests every N steps."
)
# GradScaler reads before each optimizer step whether a gradient overflowed. A fused optimizer decides this on the GPU.
READ_SCALER = Action(
    "Give", "the optimizer fused=True", ": GradScaler then reads no value before its step. Training in bf16 needs no scaler."
)
ALSO_SCALER = " GradScaler also reads a value before each optimizer step, unless the optimizer has fused=True."
CHECKS = "^aten::is_nonzero$"
ALSO_READ = " Keep losses and norms as tensors, and read them every N steps."
SINGLE_VALUE_BYTES = 8  # A copy of more bytes reads a tensor.

TRAINS = r"^(autograd::engine::evaluate_function|Optimizer\.step#)"
SAMPLES = r"^aten::(argmax|multinomial)$"  # These operators choose the next token of a generation.
# Advice for loops without training, which have no losses or norms.
READ_TOKENS = replace(READ_LATER, how=": collect tokens in a tensor on the GPU and look for the end every N tokens.")
READ_RESULTS = replace(READ_LATER, how=": keep results on the GPU and copy those of several batches together.")
COPIES = r"^aten::(copy_|_to_copy|to|cpu)$"  # ``.cpu()``, ``.numpy()`` and ``.tolist()`` call these operators.


# The waits that cost idle time in the window, and earlier waits at the same places. Without the earlier ones, launches
# would have been queued already when the window began.
_WAITS = """
WITH charged AS (SELECT DISTINCT call_id FROM gaps WHERE device = $1 AND cause = 'host_sync' AND call_id IS NOT NULL),
places AS (SELECT DISTINCT c.name_id, o.name_id AS operator FROM charged JOIN runtime_calls c USING (call_id) LEFT JOIN cpu_ops o USING (cpu_op_id)),
before AS (SELECT c.call_id FROM runtime_calls c LEFT JOIN cpu_ops o USING (cpu_op_id)
    JOIN places p ON p.name_id = c.name_id AND p.operator IS NOT DISTINCT FROM o.name_id
    WHERE c.start_ns < (SELECT min(start_ns) FROM windows WHERE device = $1))
SELECT call_id FROM charged UNION SELECT call_id FROM before"""


_ENDING = """
SELECT s.call_id FROM (SELECT * FROM runtime_calls SEMI JOIN (SELECT name_id FROM names WHERE contains(name, 'Synchronize')) USING (name_id)) s
ASOF JOIN (SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE gpu_ops > 0) sent ON s.thread_id = sent.thread_id AND s.start_ns > sent.start_ns
WHERE sent.call_id IN (SELECT unnest($1::BIGINT[]))"""


_IN_MASKS = (
    "SELECT n.name FROM gaps g JOIN runtime_calls c USING (call_id) JOIN cpu_ops o ON o.cpu_op_id = c.cpu_op_id JOIN names n ON n.name_id = o.name_id "
    "WHERE g.device = ? AND g.cause = 'host_sync' AND g.call_id IN (SELECT unnest(?::BIGINT[])) AND regexp_matches(n.name, ?) "
    "GROUP BY 1 ORDER BY sum(g.end_ns - g.start_ns) DESC, 1 LIMIT 1"
)
READ_BACK = "^aten::(item|is_nonzero|_local_scalar_dense)$"
_IN_COUNTED = (
    "SELECT c.call_id FROM runtime_calls c ASOF JOIN (SELECT * FROM steps WHERE device = ? AND counted) t ON c.start_ns >= t.host_start_ns "
    "WHERE c.start_ns < t.host_end_ns AND c.call_id IN (SELECT unnest(?::BIGINT[])) AND c.name_id IN "
    "(SELECT name_id FROM names WHERE contains(name, 'Synchronize'))"
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield one finding for all waits together, with a row of evidence for each place."""
    if context.share(context.lost_ms("host_sync")) < ONE_LINE.share:
        yield from _preventing_a_graph(context)
        return
    rows = context.recording.rows(_WAITS, [context.rank.device])
    waits = (
        {int(row[0]) for row in rows}
        - set(checkpoint_calls(context))
        - _actions(context)
        - calls_of_searches(context)
        - set(nan_checks(context).calls)
    )
    plain = waits - set(waiting_calls(context, MASK_OPERATORS))
    # If most waits are not in masks, this finding also removes the masks' waits, because the host can fill the launch queue only
    # without any wait. Otherwise the rule for masks reports them.
    calls = tuple(sorted(waits if len(plain) * 2 > len(waits) else plain))
    if calls:
        calls = tuple(sorted({*calls, *_ending_the_read(context, calls)}))
    if not calls:
        yield from _preventing_a_graph(context)
        return
    for evidence in wait_evidence(
        context,
        calls,
        Advice(
            "The host stops {times} per step to wait for the GPU, {cost_clause}; mostly at {place}",
            _action(context, calls),
            note="Predicted by the replay without these waits and the work that only serves the reads: copies, norms, tests, and Python right after a copy of more than 1 MB.",
            risk="Logged values are up to N steps old, and NaN checks find a NaN later.",
            changes=_changes(context, calls),
        ),
    ):
        yield _with_clipping(context, evidence) if _reads_norms(context, calls) else evidence


def _with_clipping(context: RuleContext, evidence: Evidence) -> Evidence:
    """Return the evidence on reads of norms, predicted with the kernels of clip_grad_norm_."""
    note = f"{evidence.advice.note} The kernels of clip_grad_norm_ stay."
    edits = with_clipping(evidence.edits, norm_reads(context).norms)
    return replace(evidence, advice=replace(evidence.advice, note=note), edits=edits)


def _actions(context: RuleContext) -> frozenset[int]:
    """Return the calls in which a policy acts; they must wait, because the environment needs the actions."""
    acts = acting(context)
    return acts.calls if acts is not None else frozenset()


def _action(context: RuleContext, calls: tuple[int, ...] = ()) -> Action:
    """Return the advice on the reads of a training, a generation or another loop without training.

    With ``calls``, the advice for a training is about the kind of read that loses the most time.
    """
    if begins_polling(context, calls):
        return POLL_EARLIER
    if not context.recording.named(TRAINS):
        return READ_TOKENS if context.recording.named(SAMPLES) else READ_RESULTS
    kind = _largest_kind(context, calls) if calls else READ_BACK
    also = ALSO_READ if set(calls).intersection(waiting_calls(context, READ_BACK)) else ""
    if kind == MASK_OPERATORS:
        return replace(READ_MASKS, how=READ_MASKS.how.format(operator=_operator(context, calls)) + also)
    copied = _copied_bytes(context, calls) if kind == COPIES else []
    if not copied or max(copied) <= SINGLE_VALUE_BYTES:
        return _of_single_values(context, calls)
    steps = max(len(context.rank.counted), 1)
    copies = in_number(len(copied) / steps, "copy", "copies")
    return replace(READ_TENSORS, how=READ_TENSORS.how.format(size=in_bytes(sum(copied) / steps), copies=copies) + also)


def _of_single_values(context: RuleContext, calls: tuple[int, ...]) -> Action:
    """Return the advice on reads of single values: of a gradient scaler, checks, or losses and norms."""
    of_scaler = scaler_calls(context).intersection(calls)
    if of_scaler:
        other = tuple(sorted(set(calls) - of_scaler))
        action = _of_single_values(context, other)
        return replace(action, how=action.how + ALSO_SCALER) if other else READ_SCALER
    if _reads_norms(context, calls):
        return IN_ONE_CALL
    checks = set(calls).intersection(waiting_calls(context, CHECKS))
    if 2 * len(checks) <= len(calls):
        return READ_LATER
    return TRAINER_CHECKS if context.trainer == "Transformers" else READ_CHECKS


def _reads_norms(context: RuleContext, calls: tuple[int, ...]) -> bool:
    """Return whether most of the ``calls`` read norms of single gradients before the optimizer's step."""
    return 2 * len(norm_reads(context).calls.intersection(calls)) > len(calls)


def _largest_kind(context: RuleContext, calls: tuple[int, ...]) -> str:
    """Return the operators of the kind of read that loses most: single values, masks or whole tensors."""
    lost = {
        names: lost_in_calls(context, "host_sync", tuple(set(calls).intersection(waiting_calls(context, names))))
        for names in (READ_BACK, MASK_OPERATORS, COPIES)
    }
    return max(lost, key=lambda names: lost[names])


def _operator(context: RuleContext, calls: tuple[int, ...]) -> str:
    """Return the name of the masking operator in which the ``calls`` lose most."""
    rows = context.recording.rows(_IN_MASKS, [context.rank.device, list(calls), MASK_OPERATORS])
    return str(rows[0][0]).removeprefix("aten::") if rows else "nonzero"


def _copied_bytes(context: RuleContext, calls: tuple[int, ...]) -> list[int]:
    """Return the bytes of each copy to the host for which the counted steps wait in ``calls``."""
    copies = "SELECT g.bytes FROM step_gpu_ops g JOIN runtime_calls c USING (call_id) WHERE g.device = ? AND g.counted AND g.kind = 'memcpy' AND g.bytes > 0 "
    served = "AND c.cpu_op_id IN (SELECT cpu_op_id FROM runtime_calls WHERE call_id IN (SELECT unnest(?::BIGINT[])))"
    return [int(size) for (size,) in context.recording.rows(copies + served, [context.rank.device, list(calls)])]


def _changes(context: RuleContext, calls: tuple[int, ...]) -> tuple[CodeChange, ...]:
    """Return example changes, first for the kind of read with the largest loss."""
    if begins_polling(context, calls):
        return (POLLING,)
    if _action(context) is READ_TOKENS:
        return (END,)
    changes = {READ_BACK: CHANGES, MASK_OPERATORS: SAME_SHAPE, COPIES: TENSORS}[_largest_kind(context, calls)]
    if changes is CHANGES and _reads_norms(context, calls):
        changes = (CLIP,)
    return (*changes, *(change for change in CHANGES if change not in changes))


def _ending_the_read(context: RuleContext, calls: tuple[int, ...]) -> set[int]:
    """Return the synchronizations that follow a read in ``calls`` before any other launch.

    If they stayed, they would wait instead of the read.
    """
    return {int(row[0]) for row in context.recording.rows(_ENDING, [list(calls)])}


def _preventing_a_graph(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding on reads that cost nothing in the profile but prevent a CUDA graph.

    They cost nothing in the profile because the profiled host is late anyway. A loop that already replays graphs yields nothing.
    """
    if replayed_graphs(context) is not None:
        return
    with_one_ms, with_several_ms = (context.predict_ms([AsGraph(waits_stay=stay)]) for stay in (False, True))
    if with_one_ms is None or with_several_ms is None or context.share(with_several_ms - with_one_ms) < WARNING_SHARE:
        return
    waits = {*waiting_calls(context, READ_BACK), *waiting_calls(context, MASK_OPERATORS)}
    reads = tuple(sorted(waits - set(nan_checks(context).calls) - _actions(context)))
    times = len(context.recording.rows(_IN_COUNTED, [context.rank.device, list(reads)])) / max(len(context.rank.counted), 1)
    if round(times) < 1:
        return
    action = _action(context)
    yield Evidence(
        Advice(
            f"The host reads GPU values {'once' if round(times) == 1 else f'{times:.0f} times'} per step, and no CUDA graph can contain these waits",
            replace(action, how=f"{READ_LATER.how} {OUTPUT_SIZE.sentence}")
            if waiting_calls(context, REPEATS)
            else (_of_single_values(context, reads) if action is READ_LATER else action),
            note="The cost of these waits is not predicted: in the profile the host is late and waits little, but in the run it may wait longer.",
            risk="Logged values are up to N steps old, and NaN checks find a NaN later.",
            changes=CHANGES,
        ),
        edits=without_reads(context, reads),
        severity="warning",
        withholds_gain=True,
    )


RULE = Rule(
    "host-waits-for-gpu",
    measure,
    reads=OF_TRACE,
    explains=Explains(("host_sync",), sets=("reads",)),
    requires=("steps",),
    threshold=ONE_LINE,
)

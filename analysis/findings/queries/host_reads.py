"""The host's reads of GPU values: the waits, and the GPU operations that only serve these reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE
from sawtooth.analysis.findings.recorded.interval_sql import calls_within, launches_within
from sawtooth.analysis.run.model import Action, CodeChange

WAITING_CALLS = "Synchronize|Memcpy"
SINGLE_VALUE_READS = "^aten::(item|is_nonzero|_local_scalar_dense)$"


@once
def waiting_calls(context: RuleContext, inside: str) -> tuple[int, ...]:
    """Return the synchronizing calls of all steps inside an operator whose name matches, at any depth."""
    names = context.recording.named(inside)
    if not names:
        return ()
    calls, enclosing = _pairs(
        context,
        "SELECT call_id, cpu_op_id FROM runtime_calls SEMI JOIN (FROM names WHERE regexp_matches(name, ?)) USING (name_id)",
        WAITING_CALLS,
    )
    matching, _ = _pairs(
        context,
        "SELECT cpu_op_id, parent_id FROM cpu_ops WHERE kind = 'op' AND name_id IN (SELECT unnest(?::INTEGER[]))",
        names,
    )
    inside_calls: set[int] = set()
    # Each turn goes from an operator to its parent. A recursive query would join all operators at once, with a hundred bytes each.
    while len(enclosing):
        is_match = np.isin(enclosing, matching)
        inside_calls.update(calls[is_match].tolist())
        calls, enclosing = calls[~is_match], enclosing[~is_match]
        operators, parents = _pairs(
            context,
            "SELECT cpu_op_id, parent_id FROM cpu_ops WHERE cpu_op_id IN (SELECT unnest(?::BIGINT[])) ORDER BY 1",
            np.unique(enclosing).tolist(),
        )
        is_known = np.isin(enclosing, operators)
        calls, enclosing = calls[is_known], parents[np.searchsorted(operators, enclosing[is_known])]
        calls, enclosing = calls[enclosing >= 0], enclosing[enclosing >= 0]
    return tuple(sorted(inside_calls))


def _pairs(context: RuleContext, sql: str, parameter: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the two columns of a query, with -1 for a missing second value."""
    columns = context.recording.cursor.execute(sql, [parameter]).fetchnumpy().values()
    first, second = (np.ma.filled(column.astype(np.int64), -1) for column in columns)
    return first, second


POLL_EARLIER = Action(
    "Poll",
    "events of an earlier step",
    ": a loop calls query() of an event or a stream until the GPU is done, and launches nothing meanwhile. Launch the next step first.",
)


def mostly_polls(context: RuleContext, calls: tuple[int, ...]) -> bool:
    """Return whether most of the waiting ``calls`` are polls of events or streams."""
    sql = "SELECT count(*) FROM named_runtime_calls WHERE call_id IN (SELECT unnest(?::BIGINT[])) AND regexp_matches(name, '(Event|Stream)Query$')"
    return 2 * int(context.recording.rows(sql, [list(calls)])[0][0]) > len(calls)


# The last three implement ``tolist()``, ``cpu()`` and ``numpy()``.
READ_OPERATORS = r"^aten::(item|is_nonzero|_local_scalar_dense|to|_to_copy|copy_)$"
# Operators that summarize a tensor for the host. No such operator computes a loss, so training does not need the results.
SUMMARY_OPERATORS = r"^aten::(norm|linalg_vector_norm|histc|isnan|isinf|isfinite|any|all|max|min|amax|amin|argmax|argmin|eq|ne|lt|le|gt|ge|logical_\w+|detach|view|reshape|select|resolve_\w+)$"
# Matches results that no backward pass needs: counts of true values, and values computed from a single number, such as the
# perplexity of a loss.
_IS_FIGURE = f"""regexp_matches(o.name, '^aten::(sum|mean|count_nonzero)$') AND regexp_matches(s.input_types, '^\\["(bool|int|long int)"')
    OR NOT ends_with(o.name, '_') AND NOT regexp_matches(s.input_dims, '[0-9]') AND regexp_matches(s.input_types, '"(float|double|c10::)')
    AND NOT exists (FROM named_cpu_ops n WHERE n.sequence_number = o.sequence_number AND starts_with(n.name, '{AUTOGRAD_NODE}'))"""
# The query stores only thread and id of each outermost operator, because there may be millions. Ids are in the order of the starts.
_SERVES_READS = f"""
WITH outermost AS NOT MATERIALIZED (SELECT o.*, o.start_ns + o.dur_ns AS end_ns, regexp_matches(o.name, $1) AS reads FROM named_cpu_ops o
    WHERE o.kind = 'op' AND (o.parent_id IS NULL OR o.parent_id IN (SELECT cpu_op_id FROM cpu_ops WHERE kind = 'annotation'))),
calls AS NOT MATERIALIZED (SELECT thread_id, start_ns FROM runtime_calls WHERE call_id IN (SELECT unnest($3::BIGINT[]))),
waiting AS MATERIALIZED (SELECT DISTINCT r.thread_id, r.cpu_op_id, r.start_ns, r.end_ns FROM calls c
    ASOF JOIN (FROM outermost WHERE reads) r ON c.thread_id = r.thread_id AND c.start_ns >= r.start_ns WHERE c.start_ns < r.end_ns),
others AS NOT MATERIALIZED (SELECT o.thread_id, o.cpu_op_id FROM outermost o LEFT JOIN signatures s USING (signature_id)
        WHERE o.reads OR NOT (regexp_matches(o.name, $2) OR coalesce({_IS_FIGURE}, false))
    UNION ALL SELECT thread_id, min(cpu_op_id) - 1 FROM cpu_ops GROUP BY thread_id),
summing AS (SELECT w.thread_id, unnest(range(o.cpu_op_id + 1, w.cpu_op_id)) AS cpu_op_id
    FROM waiting w ASOF JOIN others o ON w.thread_id = o.thread_id AND w.cpu_op_id > o.cpu_op_id),
serving AS (SELECT thread_id, start_ns, end_ns FROM waiting
    UNION ALL SELECT thread_id, start_ns, end_ns FROM outermost JOIN summing USING (thread_id, cpu_op_id))
SELECT gpu_op_id FROM gpu_ops JOIN ({launches_within("serving")}) USING (call_id) ORDER BY 1"""


def ops_only_for_reads(context: RuleContext, waits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the GPU operations of all steps that only serve the reads which wait in the calls ``waits``.

    These are the copy to the host, and the operators directly before the copy that compute the copied number.
    """
    rows = context.recording.rows(_SERVES_READS, [READ_OPERATORS, SUMMARY_OPERATORS, list(waits)])
    return tuple(int(row[0]) for row in rows)


BULK_BYTES = 1_000_000  # The host computes with larger copies, because they are more than figures to print.
_NEXT_LAUNCHES = """
WITH copied AS (SELECT max(c.start_ns) AS start_ns, c.thread_id FROM gpu_ops g JOIN runtime_calls c USING (call_id)
    WHERE g.kind = 'memcpy' AND g.bytes >= $1 AND g.gpu_op_id IN (SELECT unnest($2::BIGINT[])) GROUP BY g.gpu_op_id, c.thread_id),
launching AS (SELECT call_id, thread_id, start_ns FROM runtime_calls WHERE gpu_ops > 0)
SELECT DISTINCT l.call_id FROM copied c ASOF JOIN launching l ON l.thread_id = c.thread_id AND c.start_ns < l.start_ns ORDER BY 1"""


def calls_after_bulk_copies(context: RuleContext, operations: tuple[int, ...]) -> tuple[int, ...]:
    """Return the host's next launching call after each large copy among these GPU operations.

    The Python code between a copy and the next launch works on the copied data.
    """
    return tuple(int(row[0]) for row in context.recording.rows(_NEXT_LAUNCHES, [BULK_BYTES, list(operations)]))


@dataclass(frozen=True)
class NanChecks:
    """Runtime calls and GPU operations that autograd's anomaly detection adds in all steps.

    The calls include the waits for the results.
    """

    calls: tuple[int, ...]
    operations: frozenset[int]


# Anomaly detection calls _is_any_true directly below an autograd node. A user's own tests call any, or are elsewhere.
_NAN_CHECKS = f"""
WITH below AS (SELECT o.parent_id, o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns, o.name FROM named_cpu_ops o
    JOIN named_cpu_ops p ON p.cpu_op_id = o.parent_id
    WHERE starts_with(p.name, $1) AND o.name IN ('aten::isnan', 'aten::_is_any_true', 'aten::item')),
tests AS (SELECT * FROM below WHERE parent_id IN (SELECT parent_id FROM below WHERE name = 'aten::_is_any_true')),
made AS ({calls_within("tests")})
SELECT call_id, gpu_op_id FROM made LEFT JOIN gpu_ops USING (call_id)"""


@once
def nan_checks(context: RuleContext) -> NanChecks:
    """Return what anomaly detection adds, empty if it is off."""
    if not context.recording.named("^aten::_is_any_true$"):
        return NanChecks((), frozenset())
    rows = context.recording.rows(_NAN_CHECKS, [AUTOGRAD_NODE])
    return NanChecks(tuple(sorted({int(call) for call, _ in rows})), frozenset(int(op) for _, op in rows if op is not None))


# GradScaler tests the gradients with this operator. Before an optimizer's step it reads the result, unless the optimizer is fused.
_GRADIENT_TEST = "^aten::_amp_foreach_non_finite_check_and_unscale_$"
_READS_BEFORE_UPDATES = """
WITH updates AS (SELECT thread_id, start_ns FROM named_cpu_ops WHERE starts_with(name, 'Optimizer.step#')),
outermost AS (SELECT o.thread_id, o.start_ns, o.start_ns + o.dur_ns AS end_ns, o.name FROM named_cpu_ops o
    WHERE o.kind = 'op' AND (o.parent_id IS NULL OR o.parent_id IN (SELECT cpu_op_id FROM cpu_ops WHERE kind = 'annotation'))),
reads AS (SELECT o.* FROM updates u ASOF JOIN outermost o ON u.thread_id = o.thread_id AND u.start_ns >= o.end_ns WHERE o.name = 'aten::item')
SELECT c.call_id FROM runtime_calls c JOIN reads r ON c.thread_id = r.thread_id AND c.start_ns >= r.start_ns AND c.start_ns < r.end_ns ORDER BY 1"""


@once
def scaler_calls(context: RuleContext) -> frozenset[int]:
    """Return the calls in which GradScaler reads whether a gradient overflowed, empty without a scaler."""
    if not context.recording.named(_GRADIENT_TEST):
        return frozenset()
    return frozenset(int(call) for (call,) in context.recording.rows(_READS_BEFORE_UPDATES))


REPEAT_INTERLEAVE = r"^aten::repeat_interleave$"  # This operator waits for the length of its result.
GIVE_OUTPUT_SIZE = Action(
    "Give",
    "repeat_interleave the length of its result",
    " (output_size=), or gather with indices made on the GPU. The host then does not wait.",
)
MASK_OPERATORS = r"^aten::(nonzero|masked_select|_unique|unique_dim|unique_consecutive|argwhere|index_put_|repeat_interleave)"
# The shape of a mask's result depends on values on the GPU, so the host waits for them. This code keeps the shape.
SAME_SHAPE_CHANGES = (
    CodeChange(
        "PyTorch",
        "loss = F.cross_entropy(logits[mask], target[mask])   # waits for their number",
        "target = target.masked_fill(~mask, -100)\nloss = F.cross_entropy(logits, target, ignore_index=-100)",
    ),
    CodeChange(
        "PyTorch",
        "total = x[mask].sum()   # nonzero inside",
        "total = x.masked_fill(~mask[..., None], 0).sum()   # same shape, no wait",
    ),
)

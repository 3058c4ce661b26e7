"""Operators compute on CPU tensors inside the step.

What it checks
    GPU idle time while the launching thread is inside operators that compute for at least 50 µs without a GPU call (cause
    ``host_compute``). Examples are sorting, indexing, stacking, lookups and random numbers. If the operator's result is copied
    next, the rule tensors-made-on-cpu reports it.
Why it costs time
    The host launches nothing meanwhile. A few cores do work that the GPU would finish in microseconds.
What to do
    Move the tensors to the GPU before the work. Or do the work in the data loader's workers, in parallel with the training.
    If the work begins with a conversion, such as uint8 images to floats, then the copy before it also has fewer bytes.
When it is wrong
    The operator does not run on a GPU, or the host needs its result for the next launches. Then compute the result one step
    ahead, in a thread.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#create-tensors-directly-on-the-target-device
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.findings.actions import function_of
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.copies import copies, copies_of_made_tensors
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.findings.recorded.source_lines import first_user_line
from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES, dtype_of_type
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, TimedOps, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "order = lengths.sort().indices          # lengths is on the CPU\nx = x[order].to('cuda')",
        "lengths, x = lengths.to('cuda', non_blocking=True), x.to('cuda', non_blocking=True)\nx = x[lengths.sort().indices]   # on the GPU",
    ),
    CodeChange(
        "PyTorch",
        "for rows in loader:\n    x = torch.stack([table[r] for r in rows])",
        "class Rows(Dataset):\n    def __getitem__(self, i):   # in the workers\n        return table[self.rows[i]]",
    ),
)
CONVERTED_CHANGE = CodeChange(
    "PyTorch",
    "x = (images.float() / 255).to(device)   # on the CPU, and copies floats",
    "x = images.to(device, non_blocking=True).float() / 255   # copies $dtype; pin the memory of images",
    slot_defaults=(("dtype", "uint8"),),
)
TO_DEVICE = "(?i)HtoD|HostToDevice"
# Operators with recorded inputs, on the copying thread after its previous launch, in the order of their starts.
_BEFORE_COPIES = """
WITH launching AS (SELECT call_id, thread_id, start_ns, lag(start_ns + dur_ns) OVER (PARTITION BY thread_id ORDER BY start_ns) AS since
    FROM runtime_calls WHERE gpu_ops > 0)
SELECT l.call_id, s.input_dims, s.input_types FROM (SELECT * FROM cpu_ops WHERE signature_id IS NOT NULL) o JOIN signatures s USING (signature_id)
ASOF JOIN launching l ON l.thread_id = o.thread_id AND o.start_ns <= l.start_ns
WHERE (l.since IS NULL OR o.start_ns >= l.since) AND l.call_id IN (SELECT unnest(?::BIGINT[])) ORDER BY l.call_id, o.start_ns, o.cpu_op_id"""


@dataclass(frozen=True)
class Conversion:
    """A copy to the GPU whose values were converted from ``dtype``, which has ``share`` of the bytes."""

    gpu_op_id: int
    dur_ns: int
    dtype: str
    share: float


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if operators on the CPU cost a relevant share of the step."""
    made_on_cpu = copies_of_made_tensors(context).frame["call_id"].astype("int64").unique().tolist()
    rows = context.recording.rows(
        "SELECT o.call_id, min(o.gpu_op_id), count(DISTINCT g.cpu_op_id), sum(g.end_ns - g.start_ns) AS ns, "
        "o.call_id IN (SELECT unnest(?::BIGINT[])) AS copies_result FROM gaps g JOIN gpu_ops o ON o.gpu_op_id = g.next_gpu_op_id "
        "WHERE g.device = ? AND g.cause = 'host_compute' AND o.call_id IS NOT NULL GROUP BY o.call_id ORDER BY o.call_id",
        [made_on_cpu, context.rank.device],
    )
    launches = [
        (int(call), int(op), int(operators), int(ns)) for call, op, operators, ns, copies_result in rows if not copies_result
    ]
    all_ns = sum(int(ns) for _, _, _, ns, _ in rows)
    lost_ms = context.lost_ms("host_compute") * sum(ns for *_, ns in launches) / all_ns if all_ns else 0.0
    if not lost_ms or context.is_negligible(lost_ms):
        return
    without_operators = WithoutHostCause("host_compute", calls=_calls_except(context, made_on_cpu))
    cost_ms = lost_ms
    if context.lost_ms("blocking_copy") or context.lost_ms("host_sync"):
        # The ledger counts the gap after a wait as part of the wait, although the host computes again. So the loss of this
        # cause may be too small.
        cost_ms = max(lost_ms, context.step.gain_ms([without_operators]) or 0.0)
    places = context.host_locations("host_compute")
    line = first_user_line(places)
    place = f", {line}" if line else f", most in {places[0]['place']}" if places else ""
    function = function_of(str(places[0]["place"])) if places else None
    converted = _conversions(context, made_on_cpu)
    yield Evidence(
        Advice(
            f"Operators on CPU tensors delay the launches for {in_words(cost_ms)} of each step{place}",
            Action(
                "Move",
                f"the work of {function}() to the GPU" if function else "the tensors to the GPU first",
                ", or do it in the data loader's workers."
                + ("" if line else " Record once with with_stack=True to see the line."),
            ),
            note="Predicted by the replay without the operators' time, with one more launch per operator"
            + (f", and with copies of {converted[0].dtype} values instead of the converted ones." if converted else "."),
            risk="Random numbers on the GPU differ. Values that the host needs next must be copied back.",
            changes=(
                *_change_of_function(function),
                *((CONVERTED_CHANGE.filled(dtype=converted[0].dtype),) if converted else ()),
                *CHANGES,
            ),
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        rest="a part of the copies" if converted else "",
        edits=[
            without_operators,
            MoreLaunches(tuple(op for _, op, _, _ in launches), tuple(operators for _, _, operators, _ in launches)),
            *_smaller_copies(converted),
        ],
        confidence="high",
        rows=context.gap_evidence("host_compute"),
    )


def _calls_except(context: RuleContext, left_out: Sequence[int]) -> tuple[int, ...] | None:
    """Return the launching calls of the counted steps without those ``left_out``, None for all calls."""
    if not left_out:
        return None
    excluded = set(left_out)
    rows = context.recording.rows(
        "SELECT DISTINCT call_id FROM step_gpu_ops WHERE device = ? AND counted AND call_id IS NOT NULL ORDER BY 1",
        [context.rank.device],
    )
    return tuple(int(call) for (call,) in rows if call not in excluded)


def _conversions(context: RuleContext, left_out: Sequence[int]) -> list[Conversion]:
    """Return the copies whose values the CPU converted from a type with fewer bytes.

    The result has no copies of the calls ``left_out``. The first operator on as many values as the copy has must convert
    them. Its only input of this size then has fewer bytes per value.
    """
    to_device = copies(context, TO_DEVICE).frame
    call_of = {int(op): int(call) for op, call in zip(to_device["id"], to_device["call_id"], strict=True) if call == call}
    inputs: dict[int, list[tuple[list[Any], list[Any]]]] = {}
    for call, dims, types in context.recording.rows(_BEFORE_COPIES, [sorted(set(call_of.values()) - set(left_out))]):
        inputs.setdefault(int(call), []).append((json.loads(dims or "[]"), json.loads(types or "[]")))
    conversions = []
    for row in context.work[context.work["gpu_op_id"].isin(call_of)].itertuples():
        copy: Any = row
        size = numel(copy.dims[0]) if copy.dims else 0
        dtype = dtype_of_type(copy.types[0]) if copy.types else None
        source = _source_dtype(inputs.get(call_of[copy.gpu_op_id], ()), size) if size > 1 and dtype else None
        if source is not None and dtype is not None and ITEM_BYTES[source] < ITEM_BYTES[dtype]:
            share = ITEM_BYTES[source] / ITEM_BYTES[dtype]
            conversions.append(Conversion(int(copy.gpu_op_id), int(copy.dur_ns), source, share))
    return conversions


def _source_dtype(inputs: Sequence[tuple[list[Any], list[Any]]], size: int) -> str | None:
    """Return the dtype of the only input of the first operator with an input of ``size`` values."""
    for dims, types in inputs:
        dtypes = [
            dtype
            for shape, kind in zip(dims, types, strict=False)
            if isinstance(shape, list)
            and all(isinstance(length, int) for length in shape)
            and numel(shape) == size
            and (dtype := dtype_of_type(kind))
        ]
        if dtypes:
            return dtypes[0] if len(dtypes) == 1 else None
    return None


def _smaller_copies(converted: Sequence[Conversion]) -> list[Edit]:
    """Return the edit that copies the values before their conversion."""
    if not converted:
        return []
    return [TimedOps(tuple(c.gpu_op_id for c in converted), tuple(round(c.dur_ns * c.share) for c in converted))]


def _change_of_function(name: str | None) -> tuple[CodeChange, ...]:
    """Return the change to calls of the function ``name``, which has most of the work; empty if unknown."""
    if name is None:
        return ()
    before = f"x = {name}(batch).cuda()   # computes on the CPU"
    after = (
        f"x = {name}(batch.cuda(non_blocking=True))   # on the GPU; move what it uses there once, such as filters and tables"
    )
    return (CodeChange("PyTorch", before, after, of_run=True),)


RULE = Rule(
    "operators-on-cpu",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("host_compute",), called="operators on CPU tensors"),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)

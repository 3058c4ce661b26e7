"""The step leaves compiled code and enters it again.

What it checks
    Compiled regions inside compiled regions. Dynamo calls such an inner region after a graph break. The trace gives the number
    of breaks. Places and reasons come from torch.compile's log, if you added the log to the run. The log also shows functions
    that Dynamo did not compile at all, for example after a break in a loop.
    The rule also checks for lookups of compiled code that no compiled region follows. A function with such a lookup was
    recompiled too often, so torch.compile has given up on it.
Why it costs time
    At each break the host returns to Python, looks up the next piece, checks the piece's guards and runs a wrapper. On the way
    back, it does all this again. A break takes 0.1 to 0.5 ms. Kernels cannot be fused across a break, and no CUDA graph can
    include a break.
What to do
    Record the places once (``TORCH_TRACE=folder``), or use ``fullgraph=True``, which fails at the first break. Remove prints,
    logging, reads of GPU values, and branches on these values. Wrap code of other libraries as a custom operator.
When it is wrong
    The GPU is slower than the host and so hides the host's time. The breaks then only prevent fusion, which this rule does not
    predict. If a large graph has few breaks, the cost is overestimated. A piece with many tensors takes time before its first
    kernel, and the whole graph would take this time too. A function that you compile separately also counts as a break if
    compiled code calls it, because Dynamo treats it like one.
References
    https://docs.pytorch.org/docs/stable/compile/programming_model.graph_breaks_index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Row, Rule
from sawtooth.analysis.findings.queries.compiled import GraphBreaks, graph_breaks, lookups_without_code
from sawtooth.analysis.run.compile_log import CompileLog, CompileReason
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words, significant

MIN_PER_STEP = 0.5  # Breaks in fewer than every second step belong to another code path, such as an evaluation or logging.
MAX_ROWS = 20  # The evidence table lists at most this many breaks, so that it fits on a page.
BETWEEN_PIECES = "between pieces of the backward pass; the trace does not show which break each belongs to"
UNKNOWN_COST = " The breaks' cost is unknown: the trace cannot be replayed, or the host reaches the kernels after breaks as quickly as others."

CHANGES = (
    CodeChange(
        "PyTorch", "model = torch.compile(model)", "model = torch.compile(model, fullgraph=True)   # fails at the first break"
    ),
    CodeChange(
        "PyTorch",
        "if loss.item() > limit:\n    scale = scale / 2",
        "scale = torch.where(loss > limit, scale / 2, scale)   # the GPU decides, not Python",
    ),
    CodeChange("Lightning", "model.compile()", "model.compile(fullgraph=True)"),
    CodeChange(
        "Transformers",
        "TrainingArguments(torch_compile=True)",
        "torch.compile(model, fullgraph=True)   # once, to find the places",
    ),
)
STABLE_STATE = (
    CodeChange(
        "PyTorch",
        "self.means.append(x.mean().item())   # in a compiled module: the list is longer at each call",
        "self.mean = x.mean()   # a tensor; read it between steps, outside the compiled code",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if steps leave compiled code."""
    breaks = graph_breaks(context)
    log = context.run.compile_log
    if given_up := [entry for entry in log.breaks if entry.gives_up] if log is not None else []:
        yield _evidence_of_giving_up(given_up)
    if (calls := lookups_without_code(context)) >= MIN_PER_STEP:
        yield _evidence_of_uncompiled_calls(calls, log)
    if breaks.per_step < MIN_PER_STEP:
        return
    cost_ms = breaks.host_ms
    count = f"{significant(breaks.per_step)} graph break{'' if round(breaks.per_step, 2) == 1 else 's'}"
    share = f" ({100 * context.share(cost_ms):.2g} %)"
    cost_clause = (
        f": the host spends {in_words(cost_ms)} of each step there{share}, {in_words(cost_ms / breaks.per_step)} per break"
        if cost_ms
        else ""
    )
    first = log.breaks[0] if log is not None and log.breaks else None
    place_note = (
        f" First: {first.place}, {first.reason.rstrip('.')}."
        if first
        else " Record the places with TORCH_TRACE=folder and drop the log on this run."
    )
    yield Evidence(
        Advice(
            f"{count} per step in code of torch.compile{cost_clause}",
            Action(
                "Remove",
                "the breaks in the compiled graph",
                f". With fullgraph=True, compilation stops at the first break and gives the reason.{place_note}{'' if cost_ms else UNKNOWN_COST}",
            ),
            note="Predicted as if the host reached the first kernel after each break as quickly as other kernels. The gain of further fusion is not included.",
            risk="With fullgraph=True, a remaining break stops the run. A larger graph takes longer to compile.",
            changes=CHANGES,
        ),
        lost_ms=min(cost_ms, context.lost_ms("launch_bound", "python_host")) if cost_ms else None,
        edits=breaks.edits,
        rows=_rows(breaks, log),
    )


def _evidence_of_giving_up(entries: list[CompileReason]) -> Evidence:
    """Return the evidence on breaks after which torch.compile leaves the whole function uncompiled."""
    first, count = entries[0], len(entries)
    functions = "a function" if count == 1 else f"{count} functions"
    return Evidence(
        Advice(
            f"torch.compile gave up on {functions}, which run{'s' if count == 1 else ''} uncompiled: the break at {first.place} is in a loop or block that Dynamo cannot leave",
            Action(
                "Take",
                "the code that breaks the graph out of the loop",
                f", or compile the functions that the loop calls. At {first.place}: {first.reason.rstrip('.')}.",
            ),
            note="The gain of compiling is unknown. Functions that are called from the loop are still compiled, each separately.",
            changes=CHANGES[:1],
        ),
        confidence="high",
        severity="warning",
        rows=[
            {"place": entry.place, "reason": entry.reason, "hint": entry.hint, "times": entry.times}
            for entry in entries[:MAX_ROWS]
        ],
    )


def _evidence_of_uncompiled_calls(calls: float, log: CompileLog | None) -> Evidence:
    """Return the evidence on ``calls`` per step for which a lookup finds no compiled code."""
    entry = log.recompiled[0] if log is not None and log.recompiled else None
    log_note = f" In the log: {entry.reason.rstrip('.')} ({entry.place})." if entry else ""
    return Evidence(
        Advice(
            f"torch.compile finds no compiled code for {significant(calls)} call{'' if round(calls, 2) == 1 else 's'} per step, so the code runs uncompiled",
            Action(
                "Find",
                "what differs from call to call",
                " (TORCH_LOGS=recompiles): a Python number, or the length of a list, that the code depends on. "
                f"After 8 versions (torch._dynamo.config.recompile_limit) the function is not compiled again.{log_note}",
            ),
            note="The gain of compiling is unknown. After these lookups of compiled code, no compiled region begins.",
            changes=STABLE_STATE,
        ),
        confidence="high",
        severity="warning",
    )


def _rows(breaks: GraphBreaks, log: CompileLog | None) -> Iterator[Row]:
    """Yield an evidence row for each break: the regions around it, the host's ms, the log's reason."""
    steps, ms_by_break = max(len(breaks.context.rank.counted), 1), breaks.ms_by_break
    for (enclosing, name), rows in list(breaks.rows.groupby(["enclosing_name", "name"], sort=False))[:MAX_ROWS]:
        entry = log.break_in(enclosing.rpartition(" ")[2]) if log is not None else None
        row, ms = rows.iloc[0], float(ms_by_break[rows.index].sum()) if ms_by_break is not None else None
        yield {
            "name": name,
            "after": enclosing,
            "times_per_step": len(rows) / steps,
            "ms_per_step": ms,
            "share_of_step": breaks.context.share(ms) if ms is not None else None,
            "place": entry.place if entry else None,
            "reason": entry.reason if entry else None,
            "hint": entry.hint if entry else None,
            "start_ns": int(row["start_ns"]),
            "end_ns": int(row["end_ns"]),
        }
    backward_ms = breaks.host_ms - float(ms_by_break.sum()) if ms_by_break is not None else 0.0
    if backward_ms > 0:
        yield {"name": BETWEEN_PIECES, "ms_per_step": backward_ms, "share_of_step": breaks.context.share(backward_ms)}


RULE = Rule(
    "graph-breaks",
    measure,
    reads=TRACE_SOURCES | {"compile_log"},
    explains=Explains(sets=("compile",)),
    requires=("steps",),
)

"""The step leaves compiled code and enters it again.

What it checks
    Compiled regions inside compiled regions: the code that Dynamo calls after a graph break. The trace gives their number.
    Places and reasons come from torch.compile's log, if you added it to the run. The log also shows functions that Dynamo did
    not compile at all, for example after a break in a loop.
    The rule also checks for lookups of compiled code that no compiled region follows. A function with such a lookup was
    recompiled too often, so torch.compile has given up on it.
Why it costs time
    At each break the host returns to Python, looks up the next piece, checks its guards, runs a wrapper, and does the same on
    the way back. This takes 0.1 to 0.5 ms. Kernels cannot be fused across a break, and no CUDA graph can include it.
What to do
    Record the places once (``TORCH_TRACE=folder``), or use ``fullgraph=True``, which fails at the first break. Remove prints,
    logging, reads of GPU values, and branches on these values. Wrap code of other libraries as a custom operator.
When it is wrong
    The GPU is slower than the host, which hides the host's time. Only fusion is then lost, which this rule does not predict.
    For few breaks in a large graph, the cost is overestimated: a piece with many tensors takes time before its first kernel,
    and the whole graph would take this time too. A function that is compiled separately on purpose and called from a compiled
    one also counts as a break, because it is one for Dynamo.
References
    https://docs.pytorch.org/docs/stable/compile/programming_model.graph_breaks_index.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Row, Rule
from sawtooth.analysis.findings.queries.compiled import Breaks, breaks, lookups_without_code
from sawtooth.analysis.run.compile_log import CompileLog, CompileReason
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words, significant

MIN_PER_STEP = 0.5  # Breaks in fewer than every second step belong to another code path, such as an evaluation or logging.
MAX_ROWS = 20  # The evidence table lists at most this many breaks, so that it fits on a page.
BETWEEN_PIECES = "between pieces of the backward pass; the trace does not show which break each belongs to"
UNKNOWN_COST = (
    " Their cost is unknown: the trace cannot be replayed, or the host reaches the kernels after them as quickly as others."
)

CHANGES = (
    CodeChange(
        "PyTorch", "model = torch.compile(model)", "model = torch.compile(model, fullgraph=True)   # fails at the first break"
    ),
    CodeChange(
        "PyTorch",
        "if loss.item() > limit:\n    scale = scale / 2",
        "scale = torch.where(loss > limit, scale / 2, scale)   # no value of the GPU decides in Python",
    ),
    CodeChange("Lightning", "model.compile()", "model.compile(fullgraph=True)"),
    CodeChange(
        "Transformers",
        "TrainingArguments(torch_compile=True)",
        "torch.compile(model, fullgraph=True)   # once, to find the places",
    ),
)


ABANDONED = (
    CodeChange(
        "PyTorch",
        "self.seen.append(x.mean().item())   # in a compiled module: another length at each call",
        "self.seen = x.mean()   # a tensor; read it between steps, outside what is compiled",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if steps leave compiled code."""
    broken = breaks(context)
    log = context.run.compile_log
    if abandoned := [entry for entry in log.breaks if entry.gives_up] if log is not None else []:
        yield _abandoned_finding(context, abandoned)
    if (calls := lookups_without_code(context)) >= MIN_PER_STEP:
        yield _uncompiled_calls(context, calls, log)
    if broken.per_step < MIN_PER_STEP:
        return
    cost, count = broken.host_ms, f"{significant(broken.per_step)} graph break{'' if round(broken.per_step, 2) == 1 else 's'}"
    share = f" ({100 * context.share(cost):.2g} %)"
    each = (
        f": the host spends {in_words(cost)} of each step there{share}, {in_words(cost / broken.per_step)} per break"
        if cost
        else ""
    )
    first = log.breaks[0] if log is not None and log.breaks else None
    place = (
        f" First: {first.place}, {first.reason.rstrip('.')}."
        if first
        else " Record the places with TORCH_TRACE=folder and drop the log on this run."
    )
    yield Evidence(
        Advice(
            f"{count} per step in code of torch.compile{each}",
            Action(
                "Remove",
                "the breaks in the compiled graph",
                f". With fullgraph=True, compilation stops at the first break and gives the reason.{place}{'' if cost else UNKNOWN_COST}",
            ),
            note="Predicted as if the host reached the first kernel after each break as quickly as other kernels. Additional fusion is not counted.",
            risk="With fullgraph=True, a remaining break stops the run. A larger graph takes longer to compile.",
            changes=CHANGES,
        ),
        lost_ms=min(cost, context.lost_ms("launch_bound", "python_host")) if cost else None,
        edits=broken.edits,
        rows=_evidence(broken, log),
    )


def _abandoned_finding(context: RuleContext, entries: list[CompileReason]) -> Evidence:
    """Return the finding on breaks after which no compiled code can continue.

    They cost the whole gain of compiling, which is not known.
    """
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


def _uncompiled_calls(context: RuleContext, calls: float, log: CompileLog | None) -> Evidence:
    """Return the finding on ``calls`` per step for which a lookup finds no compiled code."""
    reason = log.recompiled[0] if log is not None and log.recompiled else None
    why = f" In the log: {reason.reason.rstrip('.')} ({reason.place})." if reason else ""
    return Evidence(
        Advice(
            f"torch.compile finds no compiled code for {significant(calls)} call{'' if round(calls, 2) == 1 else 's'} per step, so the code runs uncompiled",
            Action(
                "Find",
                "what differs from call to call",
                " (TORCH_LOGS=recompiles): a Python number, or the length of a list, that the code depends on. "
                f"After 8 versions (torch._dynamo.config.recompile_limit) the function is not compiled again.{why}",
            ),
            note="The gain of compiling is unknown. A lookup that finds code begins a compiled region; these lookups begin none.",
            changes=ABANDONED,
        ),
        confidence="high",
        severity="warning",
    )


def _evidence(broken: Breaks, log: CompileLog | None) -> Iterator[Row]:
    """Yield a row for each break of a step.

    A row has the region before and after the break, the host's lost time, and the log's reason.
    """
    steps, lost = max(len(broken.context.rank.counted), 1), broken.ms_of_each
    for (within, name), rows in list(broken.rows.groupby(["within", "name"], sort=False))[:MAX_ROWS]:
        entry = log.break_in(within.rpartition(" ")[2]) if log is not None else None
        row, ms = rows.iloc[0], float(lost[rows.index].sum()) if lost is not None else None
        yield {
            "name": name,
            "after": within,
            "times_per_step": len(rows) / steps,
            "ms_per_step": ms,
            "share_of_step": broken.context.share(ms) if ms is not None else None,
            "place": entry.place if entry else None,
            "reason": entry.reason if entry else None,
            "hint": entry.hint if entry else None,
            "start_ns": int(row["start_ns"]),
            "end_ns": int(row["end_ns"]),
        }
    backward_ms = broken.host_ms - float(lost.sum()) if lost is not None else 0.0
    if backward_ms > 0:
        yield {"name": BETWEEN_PIECES, "ms_per_step": backward_ms, "share_of_step": broken.context.share(backward_ms)}


RULE = Rule(
    "graph-breaks",
    measure,
    reads=OF_TRACE | {"compile_log"},
    explains=Explains(sets=("compile",)),
    requires=("steps",),
)

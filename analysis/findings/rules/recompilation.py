"""Code is compiled inside the steady steps.

What it checks
    Idle time of the steady window in which the host compiles or loads code (cause ``compilation``): Dynamo, Inductor, Triton,
    modules.
Why it costs time
    ``torch.compile`` generates code for specific shapes and values. A new batch size, sequence length or Python number
    compiles again, for seconds.
What to do
    Keep shapes the same (drop or pad the last batch, pad to buckets), or compile with ``dynamic=True``.
    ``TORCH_LOGS=recompiles`` shows the guard that failed. ``TORCH_TRACE=folder`` writes a log from which Sawtooth shows it
    here.
When it is wrong
    The profile began before the warm-up ended: profile later steps. If only first launches took the time, the finding says
    so. A few profiled steps do not show how often the run compiles: a size that occurs again is not compiled again, and from
    the second size on, Dynamo makes a dimension dynamic by itself. If the run's step is timed, it limits the cost of
    compiling.
References
    https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Predicted, Row, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.compile_log import CompileReason
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MOSTLY = 0.5  # Share of the time. Above it, launches loaded code and nothing was compiled.
REASONS = 5  # The finding shows the first reasons of the log only, because the same guard fails again and again.
# Profiled steps relative to the run's timed step. From this factor on, the run compiles less often than the profiled steps.
RARER = 1.25
REPLAY_ERROR = (
    0.15  # Share of the step without compiling: the replay's largest error on the pairs of docs/evidence/accuracy.md.
)
SIZES = re.compile(r"size mismatch|\.size\(\)")  # Matches Dynamo's reasons in which a guard on a tensor's size failed.
STOP = Action("Stop", "the recompilation")
FIND = ": find what changes between steps (TORCH_LOGS=recompiles), keep shapes the same, or compile with dynamic=True."
OTHER = ": {reason} changes between calls ({place}). Keep it the same, or pass it as a tensor; the shapes do not change."
MARKED = ": {count} recompilations in the log are for another size ({reason}, {place}). Mark that dimension (torch._dynamo.mark_dynamic), compile with dynamic=True, or pad to a few lengths; each avoided compilation saves {each}."
IN_PROFILE = "Predicted by the replay without compiling, if the run compiles as often as the profiled steps."
OF_RUN = "Predicted from the profiled steps without compiling and the run's measured step: the run compiles less often than the profiled steps."
NO_GAIN = "No gain is predicted: the run's measured step is as short as the profiled steps without compiling, within the replay's error."

LOADING_CHANGES = (
    CodeChange(
        "PyTorch",
        "with profile() as prof:",
        "with profile(schedule=schedule(wait=5, warmup=3, active=5)) as prof:   # and prof.step() after each step",
    ),
)
MARK = CodeChange(
    "PyTorch", "loss = model(x)", "torch._dynamo.mark_dynamic(x, 1)   # the dimension whose size changes\nloss = model(x)"
)
CACHE_EXAMPLE = CodeChange(
    "PyTorch",
    "model(x, scale=step / 1000)",
    "model(x, scale=torch.tensor(step / 1000, device=x.device))   # the value of a tensor is not compiled in",
)
CHANGES = (
    CodeChange("PyTorch", "model = torch.compile(model)", "model = torch.compile(model, dynamic=True)"),
    CodeChange("PyTorch", "DataLoader(dataset, …)", "DataLoader(dataset, …, drop_last=True)   # one batch size"),
    CodeChange("Lightning", "DataLoader(dataset, …)", "DataLoader(dataset, …, drop_last=True)"),
    CodeChange(
        "Transformers",
        "TrainingArguments(torch_compile=True)",
        "TrainingArguments(torch_compile=True, dataloader_drop_last=True)\nDataCollatorWithPadding(tokenizer, pad_to_multiple_of=64)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if compiling costs a relevant share of the steady steps."""
    lost = context.lost_ms("compilation")
    if context.is_trifle(lost):
        return
    rows = context.recording.rows(
        "WITH compiling AS (FROM gaps WHERE device = ? AND cause = 'compilation'), launching AS ("
        "SELECT sum(least(g.end_ns, c.start_ns + c.dur_ns) - greatest(g.start_ns, c.start_ns)) AS ns FROM compiling g JOIN runtime_calls c "
        "ON c.gpu_ops > 0 AND c.start_ns < g.end_ns AND c.start_ns + c.dur_ns > g.start_ns) "
        "SELECT count(DISTINCT step), (SELECT count(*) FROM steps WHERE device = ? AND counted), "
        "coalesce((SELECT ns FROM launching) / sum(end_ns - start_ns), 0) FROM compiling",
        [context.rank.device, context.rank.device],
    )
    steps, marked_steps, in_launches = rows[0]
    if in_launches > MOSTLY:
        yield Evidence(
            Advice(
                f"Kernels were launched for the first time in {steps} of {marked_steps} profiled steps: loading their code took {in_words(lost)} of each step on average",
                Action(
                    "Profile",
                    "later steps",
                    ": code is loaded once, so these steps are slower than the training. Set a schedule with warm-up.",
                    records_again=True,
                ),
                note="Not predicted: later steps do not have this cost.",
                risk="None: only the profile changes.",
                changes=LOADING_CHANGES,
            ),
            lost_ms=lost,
            cost_ms=lost,
            severity="info",
            rows=context.gap_evidence("compilation"),
        )
        return
    yield _finding(context, lost, steps, marked_steps)


def _finding(context: RuleContext, lost_ms: float, steps: int, marked_steps: int) -> Evidence:
    """Return the finding on ``steps`` of ``marked_steps`` that compile.

    The loss of the profiled steps is also the run's, unless a timed step shows that the run loses less.
    """
    best, edits = context.rank.best, [WithoutHostCause("compilation")]
    action, changes = _advice(context, in_words(_recorded_ms(context) * marked_steps / max(steps, 1)))
    rarer = (
        best.mean_ms is not None and best.ms is not None and STEP_SOURCES[best.source].timed and best.mean_ms >= RARER * best.ms
    )
    free_ms = context.whatif.step_ms(edits) if rarer and context.whatif is not None else None
    high_ms = min(free_ms * (1 + REPLAY_ERROR), best.ms) if free_ms is not None and best.ms is not None else None
    gains = free_ms is not None and high_ms is not None and best.ms is not None and high_ms < best.ms
    if rarer:
        lost_ms = max((best.ms or 0.0) - (free_ms or 0.0) * (1 - REPLAY_ERROR), 0.0)
        title = f"Code is compiled in {steps} of {marked_steps} profiled steps, for {in_words(_recorded_ms(context) * marked_steps)} in all; the run loses at most {in_words(lost_ms)} per step"
    else:
        title = f"Code is compiled in {steps} of {marked_steps} profiled steps: {in_words(lost_ms)} of each step on average"
    cost_ms, between_ms = context.lost_ms("compilation"), None
    if gains and free_ms is not None and high_ms is not None:
        between_ms = free_ms * (1 - REPLAY_ERROR), high_ms
    return Evidence(
        Advice(
            title,
            action,
            note=(OF_RUN if gains else NO_GAIN) if rarer else IN_PROFILE,
            risk="Code for dynamic shapes can be slower than specialized code.",
            changes=changes,
        ),
        lost_ms=lost_ms,
        cost_ms=cost_ms,
        edits=[] if rarer else edits,
        confidence="medium" if rarer else "high",
        severity=None if gains or not rarer else "info",
        rows=[*context.gap_evidence("compilation"), *_reasons(context)],
        predicted=Predicted(free_ms, between_ms) if gains and free_ms is not None else None,
    )


def _recorded_ms(context: RuleContext) -> float:
    """Return the recorded time of compiling per profiled step, ms."""
    return sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.cause == "compilation")


def _advice(context: RuleContext, each: str) -> tuple[Action, tuple[CodeChange, ...]]:
    """Return the action and the changes, by the failed guards if torch.compile's log has them."""
    log = context.run.compile_log
    reasons: tuple[CompileReason, ...] = log.recompiled if log is not None else ()
    if not reasons:
        return replace(STOP, how=FIND), CHANGES
    sizes = [entry for entry in reasons if SIZES.search(entry.reason)]
    if not sizes:
        return replace(STOP, how=OTHER.format(reason=f"“{reasons[0].reason}”", place=reasons[0].place)), (CACHE_EXAMPLE,)
    count = f"{sum(entry.times for entry in sizes)} of {sum(entry.times for entry in reasons)}"
    how = MARKED.format(count=count, reason=sizes[0].reason, place=sizes[0].place, each=each)
    return replace(STOP, how=how), (MARK, *CHANGES)


def _reasons(context: RuleContext) -> Iterator[Row]:
    """Yield the failed guards and their places from torch.compile's log."""
    log = context.run.compile_log
    for entry in log.recompiled[:REASONS] if log is not None else ():
        yield {"place": entry.place, "reason": entry.reason, "times": entry.times}


RULE = Rule(
    "recompilation",
    measure,
    reads=OF_TRACE | {"compile_log"},
    explains=Explains(("compilation",)),
    requires=("steps",),
    threshold=FEW_LINES,
)

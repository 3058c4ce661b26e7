"""Code is compiled inside the steady steps.

What it checks
    Idle time of the steady window in which the host compiles or loads code (cause ``compilation``): Dynamo, Inductor, Triton,
    modules.
Why it costs time
    ``torch.compile`` generates code for specific shapes and values. For a new batch size, sequence length or Python number, it
    compiles again for seconds.
What to do
    Keep shapes the same (drop or pad the last batch, pad to buckets), or compile with ``dynamic=True``.
    ``TORCH_LOGS=recompiles`` shows the guard that failed. If you add the log that ``TORCH_TRACE=folder`` writes, the finding
    shows this guard.
When it is wrong
    The profile began before the warm-up ended. Profile later steps. A few profiled steps do not show how often the run compiles.
    A size that occurs again is not compiled again, and from the second size on, Dynamo makes a dimension dynamic by itself. If
    the run's step is timed, the finding limits the cost of compiling to the run's loss.
References
    https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, PredictedStep, Row, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.compile_log import CompileReason
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_LAUNCH_SHARE = 0.5  # Of the time. If launches have a larger share, they loaded code, and nothing was compiled.
MAX_REASONS = 5  # More reasons of the log only repeat the guards that fail.
# Profiled step ÷ the run's timed step. From this factor on, the run compiles less often than the profiled steps.
RARER_FACTOR = 1.25
REPLAY_ERROR = 0.15  # Share of the step without compiling. The replay's largest error in docs/evidence/accuracy.md.
SIZE_GUARDS = re.compile(r"size mismatch|\.size\(\)")  # Matches Dynamo's reasons in which a guard on a tensor's size failed.
STOP = Action("Stop", "the recompilation")
FIND_CHANGE = ": find what changes between steps (TORCH_LOGS=recompiles), keep shapes the same, or compile with dynamic=True."
KEEP_VALUE = (
    ": {reason} changes between calls ({place}). Keep this value the same, or pass it as a tensor. The shapes do not change."
)
MARK_SIZE = ": {count} recompilations in the log are for another size ({reason}, {place}). Mark that dimension (torch._dynamo.mark_dynamic), compile with dynamic=True, or pad to a few lengths; each avoided compilation saves {compilation}."
IN_PROFILE_NOTE = "Predicted by the replay without compiling, if the run compiles as often as the profiled steps."
OF_RUN_NOTE = "Predicted from the profiled steps without compiling and from the run's measured step, because the run compiles less often than the profiled steps."
NO_GAIN_NOTE = "No gain is predicted: the run's measured step is as short as the profiled steps without compiling, within the replay's error."

LOADING_CHANGES = (
    CodeChange(
        "PyTorch",
        "with profile() as prof:",
        "with profile(schedule=schedule(wait=5, warmup=3, active=5)) as prof:   # and prof.step() after each step",
    ),
)
MARK_DYNAMIC = CodeChange(
    "PyTorch", "loss = model(x)", "torch._dynamo.mark_dynamic(x, 1)   # the dimension whose size changes\nloss = model(x)"
)
PASS_AS_TENSOR = CodeChange(
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
    lost_ms = context.lost_ms("compilation")
    if context.is_negligible(lost_ms):
        return
    rows = context.recording.rows(
        "WITH compiling AS (FROM gaps WHERE device = ? AND cause = 'compilation'), launching AS ("
        "SELECT sum(least(g.end_ns, c.start_ns + c.dur_ns) - greatest(g.start_ns, c.start_ns)) AS ns FROM compiling g JOIN runtime_calls c "
        "ON c.gpu_ops > 0 AND c.start_ns < g.end_ns AND c.start_ns + c.dur_ns > g.start_ns) "
        "SELECT count(DISTINCT step), (SELECT count(*) FROM steps WHERE device = ? AND counted), "
        "coalesce((SELECT ns FROM launching) / sum(end_ns - start_ns), 0) FROM compiling",
        [context.rank.device, context.rank.device],
    )
    steps, marked_steps, launch_share = rows[0]
    if launch_share > MIN_LAUNCH_SHARE:
        yield Evidence(
            Advice(
                f"Kernels were launched for the first time in {steps} of {marked_steps} profiled steps: loading their code took {in_words(lost_ms)} of each step on average",
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
            lost_ms=lost_ms,
            cost_ms=lost_ms,
            severity="info",
            rows=context.gap_evidence("compilation"),
        )
        return
    yield _evidence_of_compiling(context, lost_ms, steps, marked_steps)


def _evidence_of_compiling(context: RuleContext, lost_ms: float, steps: int, marked_steps: int) -> Evidence:
    """Return the evidence that ``steps`` of ``marked_steps`` profiled steps compile.

    The run loses as much as the profiled steps, unless its timed step shows that it loses less.
    """
    best, edits = context.rank.best, [WithoutHostCause("compilation")]
    action, changes = _advice(context, in_words(_recorded_ms(context) * marked_steps / max(steps, 1)))
    is_rarer = (
        best.mean_ms is not None
        and best.ms is not None
        and STEP_SOURCES[best.source].timed
        and best.mean_ms >= RARER_FACTOR * best.ms
    )
    without_compiling_ms = context.whatif.step_ms(edits) if is_rarer and context.whatif is not None else None
    high_ms = (
        min(without_compiling_ms * (1 + REPLAY_ERROR), best.ms)
        if without_compiling_ms is not None and best.ms is not None
        else None
    )
    gains = without_compiling_ms is not None and high_ms is not None and best.ms is not None and high_ms < best.ms
    if is_rarer:
        lost_ms = max((best.ms or 0.0) - (without_compiling_ms or 0.0) * (1 - REPLAY_ERROR), 0.0)
        title = f"Code is compiled in {steps} of {marked_steps} profiled steps, for {in_words(_recorded_ms(context) * marked_steps)} in all; the run loses at most {in_words(lost_ms)} per step"
    else:
        title = f"Code is compiled in {steps} of {marked_steps} profiled steps: {in_words(lost_ms)} of each step on average"
    cost_ms, between_ms = context.lost_ms("compilation"), None
    if gains and without_compiling_ms is not None and high_ms is not None:
        between_ms = without_compiling_ms * (1 - REPLAY_ERROR), high_ms
    return Evidence(
        Advice(
            title,
            action,
            note=(OF_RUN_NOTE if gains else NO_GAIN_NOTE) if is_rarer else IN_PROFILE_NOTE,
            risk="Code for dynamic shapes can be slower than specialized code.",
            changes=changes,
        ),
        lost_ms=lost_ms,
        cost_ms=cost_ms,
        edits=[] if is_rarer else edits,
        confidence="medium" if is_rarer else "high",
        severity=None if gains or not is_rarer else "info",
        rows=[*context.gap_evidence("compilation"), *_reason_rows(context)],
        predicted=PredictedStep(without_compiling_ms, between_ms) if gains and without_compiling_ms is not None else None,
    )


def _recorded_ms(context: RuleContext) -> float:
    """Return the recorded time of compiling per profiled step, ms."""
    return sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.cause == "compilation")


def _advice(context: RuleContext, compilation_time: str) -> tuple[Action, tuple[CodeChange, ...]]:
    """Return the action and the changes, by the failed guards if torch.compile's log has them."""
    log = context.run.compile_log
    reasons: tuple[CompileReason, ...] = log.recompiled if log is not None else ()
    if not reasons:
        return replace(STOP, how=FIND_CHANGE), CHANGES
    sizes = [entry for entry in reasons if SIZE_GUARDS.search(entry.reason)]
    if not sizes:
        return replace(STOP, how=KEEP_VALUE.format(reason=f"“{reasons[0].reason}”", place=reasons[0].place)), (PASS_AS_TENSOR,)
    count = f"{sum(entry.times for entry in sizes)} of {sum(entry.times for entry in reasons)}"
    how = MARK_SIZE.format(count=count, reason=sizes[0].reason, place=sizes[0].place, compilation=compilation_time)
    return replace(STOP, how=how), (MARK_DYNAMIC, *CHANGES)


def _reason_rows(context: RuleContext) -> Iterator[Row]:
    """Yield the failed guards and their places from torch.compile's log."""
    log = context.run.compile_log
    for entry in log.recompiled[:MAX_REASONS] if log is not None else ():
        yield {"place": entry.place, "reason": entry.reason, "times": entry.times}


RULE = Rule(
    "recompilation",
    measure,
    reads=TRACE_SOURCES | {"compile_log"},
    explains=Explains(("compilation",)),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)

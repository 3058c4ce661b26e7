"""Code is compiled inside the steady steps.

What it checks
    Idle time of the steady window in which the host compiles or loads code (cause ``compilation``): Dynamo, Inductor, Triton, modules.
Why it costs time
    ``torch.compile`` specializes on shapes and values. A new batch size, sequence length or Python number compiles again, for seconds.
What to do
    Keep shapes the same (drop or pad the last batch, pad to buckets), or compile with ``dynamic=True``; ``TORCH_LOGS=recompiles`` names the
    guard that failed, and ``TORCH_TRACE=folder`` writes a log that says it here.
When it is wrong
    When the profile began before warm-up ended: profile later steps. Where nothing but first launches took the time, the finding says that.
References
    https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

WORTH_NAMING = 0.02  # of the step: loading a kernel once costs less than that of a few steps

MOSTLY = 0.5  # of the time: launches loaded code, nothing was compiled
REASONS = 5  # of the log, the first: the same guard fails again and again

LOADING_CHANGES = (
    CodeChange(
        "PyTorch",
        "with profile() as prof:",
        "with profile(schedule=schedule(wait=5, warmup=3, active=5)) as prof:   # and prof.step() after each step",
    ),
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


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when compiling costs more than WORTH_NAMING of the steady steps."""
    lost = context.lost_ms("compilation")
    if context.share(lost) < WORTH_NAMING:
        return
    rows = context.recording.rows(
        "WITH compiling AS (FROM gaps WHERE device = ? AND cause = 'compilation'), launching AS ("
        "SELECT sum(least(g.end_ns, c.start_ns + c.dur_ns) - greatest(g.start_ns, c.start_ns)) AS ns FROM compiling g JOIN runtime_calls c "
        "ON c.gpu_ops > 0 AND c.start_ns < g.end_ns AND c.start_ns + c.dur_ns > g.start_ns) "
        "SELECT count(DISTINCT step), (SELECT count(*) FROM steps WHERE device = ? AND counted), "
        "coalesce((SELECT ns FROM launching) / sum(end_ns - start_ns), 0) FROM compiling",
        [context.rank.device, context.rank.device],
    )
    steps, of, in_launches = rows[0]
    if in_launches > MOSTLY:
        yield context.finding(
            RULE.slug,
            f"Kernels were launched for the first time in {steps} of {of} profiled steps: loading their code took {in_words(lost)} of each step on average",
            "Profile later steps: code is loaded once, so these steps are slower than the training. Set a schedule with warm-up.",
            ceiling_ms=lost,
            severity="info",
            confidence="medium",
            note="Not predicted: later steps do not pay it as it is.",
            risk="None: only the profile changes.",
            changes=LOADING_CHANGES,
            evidence=context.gap_evidence("compilation"),
        )
        return
    yield context.finding(
        RULE.slug,
        f"Code is compiled in {steps} of {of} profiled steps: {in_words(lost)} of each step on average",
        "Stop the recompilation: find what changes between steps (TORCH_LOGS=recompiles), keep shapes the same, or compile with dynamic=True.",
        ceiling_ms=lost,
        edits=[WithoutHostCause("compilation")],
        confidence="high",
        note="The compiling removed from the replay.",
        risk="Code for dynamic shapes can be slower than specialized code.",
        changes=CHANGES,
        evidence=[*context.gap_evidence("compilation"), *_reasons(context)],
    )


def _reasons(context: RuleContext) -> Iterator[dict[str, Any]]:
    """Yield which guards failed where, as torch.compile's log has it."""
    log = context.run.compile_log
    for entry in log.recompiled[:REASONS] if log is not None else ():
        yield {"place": entry.place, "reason": entry.reason, "times": entry.times}


RULE = Rule("recompilation", ("steps",), check, Explains(("compilation",)))

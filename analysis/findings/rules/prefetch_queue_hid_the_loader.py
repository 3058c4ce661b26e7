"""The profile found the loader's queue full, the run finds it empty.

What it checks
    A trace with loader workers whose step, without the profiler, is shorter than telemetry, step marks or a stopwatch say of the run outside the profile.
Why it costs time
    Workers fill the prefetch queue while the profiler starts. The few profiled steps drain it and never wait; the run does, step after step.
What to do
    Give the loader more workers, or make a sample cheaper. Then profile more steps than the queue holds (workers × prefetch_factor).
When it is wrong
    Other rare work outside the profiled steps (checkpoints, evaluation) leaves the same mark, where the helper did not time the workers.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.loading import (
    HiddenTime,
    at_their_limit,
    loader_may_limit,
    most_to_gain_ms,
    mostly_hidden,
    profiled_steps,
    quickest_ms,
    with_more,
    workers_needed,
)
from sawtooth.analysis.findings.rule import SEVERITIES, Rule, RuleContext, severity_of
from sawtooth.analysis.findings.sampled_loader import limited_by, pins_too_slowly
from sawtooth.analysis.metrics.feeding import Feeding, feeding
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …)",
        "DataLoader(dataset, …, num_workers=12, pin_memory=True, persistent_workers=True, prefetch_factor=4)",
    ),
    CodeChange("Lightning", "DataLoader(dataset, …)", "DataLoader(dataset, …, num_workers=12, persistent_workers=True)"),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=2)",
        "TrainingArguments(dataloader_num_workers=12, dataloader_persistent_workers=True)",
    ),
)

USUAL_WORKERS = 12  # in the changes above
BY_TELEMETRY = " From telemetry the run's step is good to 10 %."
AS_PROFILED = "The step as profiled, in which the loader kept up."
MOST_WORKERS = (
    "The step that as many workers feed as the host could have, by what a sample took; the profiled ones lived on a full queue."
)
EITHER = "Give the loader more workers, or make a sample cheaper."  # where no timing tells what a sample waits for


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when something outside the profile contradicts it, in a run with loader workers, or when these give no more than the step takes."""
    if not loader_may_limit(context):
        return  # where the workers were timed and keep up, what the run waits for is something else
    hidden, fed, steps = mostly_hidden(context), feeding(context.run.manifest.facts), profiled_steps(context)
    if hidden is not None:
        yield _hidden(context, hidden, fed, steps)
    elif (limiting := at_their_limit(context)) is not None:
        yield _at_their_limit(context, limiting, steps)


def _hidden(context: RuleContext, hidden: HiddenTime, fed: Feeding | None, steps: list[dict[str, Any]]) -> Finding:
    facts = context.run.manifest.facts
    limit, advice = limited_by(facts) or ("", EITHER)
    needs = f"{_workers(fed)} {in_words(fed.ms)} for a batch{limit}" if fed is not None else ""
    reason = needs or "The loader's full queue is the likeliest reason"
    feeds = workers_needed(facts, hidden.estimate_ms) if fed is not None and not pins_too_slowly(facts) else ""
    fed_ms = max(hidden.estimate_ms, quickest_ms(facts))
    finding = context.finding(
        RULE.slug,
        f"The profile hides a wait: its steps take {in_words(hidden.estimate_ms)}, {hidden.witness} {in_words(hidden.run_ms)} for the run. {reason}",
        " ".join(filter(None, (advice, feeds, "Then profile more steps than workers × prefetch_factor."))),
        ceiling_ms=max(hidden.run_ms - hidden.estimate_ms, 0.0),
        predicted_ms=fed_ms if fed_ms < hidden.run_ms else None,
        severity="critical",
        confidence="medium" if fed is None else "high",
        note=f"{AS_PROFILED if fed_ms <= hidden.estimate_ms else MOST_WORKERS}{'' if hidden.timed else BY_TELEMETRY}",
        risk="More workers need more host memory and CPU cores; where storage is the limit they only queue there.",
        changes=with_more(context, CHANGES, USUAL_WORKERS),
        evidence=[{"outside the profile": hidden.proof}, *steps],
    )
    return replace(finding, sets_pace=fed is not None and fed.limits(hidden.run_ms))


def _workers(fed: Feeding) -> str:
    return "One loader worker needs" if fed.workers == 1 else f"{fed.workers} loader workers need"


def _at_their_limit(context: RuleContext, fed: Feeding, steps: list[dict[str, Any]]) -> Finding:
    facts = context.run.manifest.facts
    _, advice = limited_by(facts) or ("", EITHER)
    who = _workers(fed)
    if pins_too_slowly(facts):
        who = f"The one thread that pins the batches of {fed.workers} loader workers needs"
    ceiling = most_to_gain_ms(context)
    finding = context.finding(
        RULE.slug,
        f"{who} {in_words(fed.ms)} for a batch, as long as the step takes: what makes the GPU quicker brings hardly anything alone",
        f"{advice} Before that, nothing that shortens the GPU's work helps.",
        ceiling_ms=ceiling,
        severity=min("warning", severity_of(context.share(ceiling)), key=SEVERITIES[::-1].index) if ceiling else "info",
        note="At most: as much as the GPU waits. How long the host takes for a step that never waits for batches, the profiled steps do not tell.",
        risk="More workers need more host memory and CPU cores; where storage is the limit they only queue there.",
        changes=with_more(context, CHANGES, USUAL_WORKERS),
        evidence=[
            {
                "a batch takes the workers, ms": round(fed.ms, 3),
                "at least": round(fed.low_ms, 3),
                "at most": round(fed.high_ms, 3),
            },
            *steps,
        ],
    )
    return replace(finding, sets_pace=bool(ceiling))


RULE = Rule(
    "prefetch-queue-hid-the-loader",
    ("steps", "run's step"),
    check,
    Explains(("data_wait",), hidden=True),
    reads=OF_TRACE | {"telemetry", "loader_timing"},
)

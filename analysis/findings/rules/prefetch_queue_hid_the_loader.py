"""The loader's queue was full in the profile, but is empty in the run.

What it checks
    A trace with loader workers whose step, without the profiler, is shorter than the run's step outside the profile. The
    run's step comes from telemetry, step marks or a stopwatch.
Why it costs time
    Workers fill the prefetch queue while the profiler starts. The few profiled steps empty it and never wait, but the run
    waits in every step.
What to do
    Give the loader more workers, or make a sample cheaper. Then profile more steps than the queue has batches (workers ×
    prefetch_factor).
When it is wrong
    Other rare work outside the profiled steps (checkpoints, evaluation) looks the same if the hook did not time the workers.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import limited_by, pins_too_slowly
from sawtooth.analysis.findings.loading.workers import with_more, workers_for
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Predicted, Row, Rule
from sawtooth.analysis.findings.queries.loading import (
    HiddenTime,
    at_their_limit,
    loader_may_limit,
    most_to_gain_ms,
    mostly_hidden,
    profiled_steps,
    quickest_ms,
    workers_needed,
)
from sawtooth.analysis.metrics.loader_rate import Feeding, workers_time
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

# Values of the slots in the code changes if nothing shows how many workers are needed.
WORKERS = (("workers", "12"), ("seen", ""))
CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …$seen)",
        "DataLoader(dataset, …, num_workers=$workers, pin_memory=True, persistent_workers=True, prefetch_factor=4)",
        usual=WORKERS,
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, …)",
        "DataLoader(dataset, …, num_workers=$workers, persistent_workers=True)",
        usual=WORKERS,
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=2)",
        "TrainingArguments(dataloader_num_workers=$workers, dataloader_persistent_workers=True)",
        usual=WORKERS,
    ),
)

BY_TELEMETRY = " Telemetry gives the run's step to within 10 %."
AS_PROFILED = "Predicted with the time of the profiled steps, in which the loader kept up."
MAX_WORKERS = "Predicted for as many workers as this host allows, from the measured time per sample. The profiled steps used up a full queue."
IN_PROPORTION = "This is an upper limit: the workers were not timed, and their rate grows at most with their number."
# Used if no timing shows why a sample is slow.
EITHER = Action("Give", "the loader more workers", ", or make a sample cheaper.")


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if a run with loader workers is slower than its profile, or its workers limit it."""
    if not loader_may_limit(context):
        return  # The workers were timed and keep up, so the run waits for something else.
    hidden, fed, steps = mostly_hidden(context), workers_time(context.run.manifest.facts), profiled_steps(context)
    if hidden is not None:
        yield _hidden(context, hidden, fed, steps)
    elif (limiting := at_their_limit(context)) is not None:
        yield _at_their_limit(context, limiting, steps)


def _hidden(context: RuleContext, hidden: HiddenTime, fed: Feeding | None, steps: list[Row]) -> Evidence:
    facts = context.run.manifest.facts
    limit, advice = limited_by(facts) or ("", EITHER)
    needs = f"{_workers(fed)} {in_words(fed.ms)} for a batch{limit}" if fed is not None else ""
    reason = needs or "The loader's full queue is the likeliest reason"
    feeds = workers_needed(facts, hidden.estimate_ms) if fed is not None and not pins_too_slowly(facts) else ""
    fed_ms = max(hidden.estimate_ms, quickest_ms(facts))
    workers = workers_for(context, fed_ms)
    note = AS_PROFILED if fed_ms <= hidden.estimate_ms else MAX_WORKERS
    if fed is None and workers is not None and workers.seen:
        in_proportion_ms = hidden.run_ms * workers.seen / workers.use
        if in_proportion_ms > fed_ms:
            fed_ms, note = in_proportion_ms, IN_PROPORTION
    return Evidence(
        Advice(
            f"The profile hides a wait: its steps take {hidden.profiled_steps_take}, {hidden.evidence} {in_words(hidden.run_ms)} for the run. {reason}",
            replace(
                advice,
                how=" ".join(filter(None, (advice.how, feeds, "Then profile more steps than workers × prefetch_factor."))),
            ),
            note=f"{note}{'' if hidden.timed else BY_TELEMETRY}",
            risk="More workers need more host memory and CPU cores; if storage is the limit, they only wait for it.",
            changes=with_more(facts, CHANGES, workers),
        ),
        lost_ms=max(hidden.run_ms - hidden.estimate_ms, 0.0),
        confidence="medium" if fed is None else "high",
        severity="critical",
        rows=[{"outside the profile": hidden.proof}, *steps],
        predicted=Predicted(fed_ms) if fed_ms < hidden.run_ms else None,
        limits_the_step=fed is not None and fed.limits(hidden.run_ms),
    )


def _workers(fed: Feeding) -> str:
    return "One loader worker needs" if fed.workers == 1 else f"{fed.workers} loader workers need"


def _at_their_limit(context: RuleContext, fed: Feeding, steps: list[Row]) -> Evidence:
    facts = context.run.manifest.facts
    _, advice = limited_by(facts) or ("", EITHER)
    workers = _workers(fed)
    if pins_too_slowly(facts):
        workers = f"The one thread that pins the batches of {fed.workers} loader workers needs"
    ceiling = most_to_gain_ms(context)
    fed_ms = context.step_ms - ceiling if context.step_ms and ceiling else None
    return Evidence(
        Advice(
            f"{workers} {in_words(fed.ms)} for a batch, as long as the step takes: a faster GPU alone gains hardly anything",
            replace(advice, how=f"{advice.how} Until then, shorter GPU work does not help."),
            note="This is an upper limit: all of the GPU's wait. The profiled steps do not show how long the host takes for a step without waiting for batches.",
            risk="More workers need more host memory and CPU cores; if storage is the limit, they only wait for it.",
            changes=with_more(facts, CHANGES, workers_for(context, fed_ms)),
        ),
        lost_ms=ceiling,
        limits_the_step=bool(ceiling),
        severity=None if ceiling else "info",
        at_most="warning",
        rows=[
            {
                "a batch takes the workers, ms": round(fed.ms, 3),
                "at least": round(fed.low_ms, 3),
                "at most": round(fed.high_ms, 3),
            },
            *steps,
        ],
    )


RULE = Rule(
    "prefetch-queue-hid-the-loader",
    measure,
    reads=OF_TRACE | {"telemetry", "loader_timing"},
    explains=Explains(("data_wait",), topics=frozenset({"hidden"})),
    requires=("steps", "run's step"),
)

"""The loader's queue was full in the profile, but is empty in the run.

What it checks
    Whether the run's steps outside the profile take longer than the profiled steps without the profiler's cost, in a trace with
    loader workers. The run's step comes from telemetry, step marks or a stopwatch.
Why it costs time
    Workers fill the prefetch queue while the profiler starts. The few profiled steps empty it and never wait, but the run
    waits in every step.
What to do
    Give the loader more workers, or reduce the work per sample. Then profile more steps than the queue has batches (workers ×
    prefetch_factor).
When it is wrong
    The run's steps are longer because of rare work outside the profile, such as checkpoints or evaluation. The rule cannot
    separate this if the recorder did not time the workers.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import CHEAPER_COMPUTATION, loader_limit, pins_too_slowly
from sawtooth.analysis.findings.loading.workers import loader_changes, workers_for
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, PredictedStep, Row, Rule
from sawtooth.analysis.findings.queries.loading import (
    HiddenTime,
    limiting_loading_time,
    loader_may_limit,
    longer_hidden_time,
    max_gain_ms,
    profiled_steps,
    shortest_loading_ms,
    workers_needed,
)
from sawtooth.analysis.metrics.loader_rate import Feeding, workers_time
from sawtooth.analysis.run.model import NO_GAIN, Action, CodeChange, Explains
from sawtooth.analysis.units import in_words
from sawtooth.ingest.manifest import UserFacts

# Values of the code's slots if nothing shows how many workers are needed.
DEFAULT_SLOTS = (("workers", "12"), ("workers_now", ""))
CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, …$workers_now)",
        "DataLoader(dataset, …, num_workers=$workers, pin_memory=True, persistent_workers=True, prefetch_factor=4)",
        slot_defaults=DEFAULT_SLOTS,
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, …)",
        "DataLoader(dataset, …, num_workers=$workers, persistent_workers=True)",
        slot_defaults=DEFAULT_SLOTS,
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=2)",
        "TrainingArguments(dataloader_num_workers=$workers, dataloader_persistent_workers=True)",
        slot_defaults=DEFAULT_SLOTS,
    ),
)

TELEMETRY_ERROR_NOTE = " Telemetry gives the run's step to within 10 %."
AS_PROFILED_NOTE = "Predicted with the time of the profiled steps, in which the loader kept up."
MAX_WORKERS_NOTE = "Predicted for as many workers as this host allows, from the measured time per sample. The profiled steps took their batches from a full queue."
PROPORTIONAL_NOTE = "This is an upper limit: the workers were not timed, and their rate grows at most with their number."
# Used if no timing shows why a sample is slow.
MORE_OR_CHEAPER = Action("Give", "the loader more workers", ", or reduce the work per sample.")


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the run is slower than its profiled steps, or if loader workers limit it."""
    if not loader_may_limit(context):
        return  # The workers were timed and keep up, so the run waits for something else.
    hidden, loading, steps = longer_hidden_time(context), workers_time(context.run.manifest.facts), profiled_steps(context)
    if hidden is not None:
        yield _evidence_of_hidden_wait(context, hidden, loading, steps)
    elif (limiting := limiting_loading_time(context)) is not None:
        yield _evidence_of_limiting_workers(context, limiting, steps)


def _evidence_of_hidden_wait(context: RuleContext, hidden: HiddenTime, loading: Feeding | None, steps: list[Row]) -> Evidence:
    """Return the evidence that the run waits for the loader, but the profiled steps do not."""
    facts = context.run.manifest.facts
    limit_clause, advice = _limit_and_advice(facts, hidden.run_ms)
    reason = "The loader's full queue is the most likely reason"
    if loading is not None:
        reason = f"{_workers_need(loading)} {in_words(loading.ms)} for a batch{limit_clause}"
    workers_note = workers_needed(facts, hidden.estimate_ms) if loading is not None and not pins_too_slowly(facts) else ""
    fed_ms = max(hidden.estimate_ms, shortest_loading_ms(facts))
    workers = workers_for(context, fed_ms)
    note = AS_PROFILED_NOTE if fed_ms <= hidden.estimate_ms else MAX_WORKERS_NOTE
    if loading is None and workers is not None and workers.now:
        proportional_ms = hidden.run_ms * workers.now / workers.advised
        if proportional_ms > fed_ms:
            fed_ms, note = proportional_ms, PROPORTIONAL_NOTE
    return Evidence(
        Advice(
            f"The profile does not show a wait of the run: its steps take {hidden.profiled_steps_take}, {hidden.evidence} {in_words(hidden.run_ms)} for the run. {reason}",
            replace(
                advice,
                how=" ".join(
                    filter(None, (advice.how, workers_note, "Then profile more steps than workers × prefetch_factor."))
                ),
            ),
            note=f"{note}{'' if hidden.timed else TELEMETRY_ERROR_NOTE}",
            risk="More workers need more host memory and CPU cores; if storage is the limit, they only wait for it.",
            changes=loader_changes(facts, CHANGES, workers),
        ),
        lost_ms=max(hidden.run_ms - hidden.estimate_ms, 0.0),
        confidence="medium" if loading is None else "high",
        severity="critical",
        rows=[{"outside the profile": hidden.proof}, *steps],
        predicted=PredictedStep(fed_ms) if fed_ms * NO_GAIN < hidden.run_ms else None,
        limits_the_step=loading is not None and loading.limits(hidden.run_ms),
    )


def _limit_and_advice(facts: UserFacts, run_ms: float) -> tuple[str, Action]:
    """Return the clause on what limits the loader, and the advice for a step of ``run_ms``.

    If even the best number of workers takes as long as the step, only cheaper samples help.
    """
    limit_clause, advice = loader_limit(facts) or ("", MORE_OR_CHEAPER)
    if advice.verb == MORE_OR_CHEAPER.verb and shortest_loading_ms(facts) * NO_GAIN >= run_ms > 0:
        return limit_clause, CHEAPER_COMPUTATION
    return limit_clause, advice


def _workers_need(loading: Feeding) -> str:
    return "One loader worker needs" if loading.workers == 1 else f"{loading.workers} loader workers need"


def _evidence_of_limiting_workers(context: RuleContext, loading: Feeding, steps: list[Row]) -> Evidence:
    """Return the evidence that the workers need as long for a batch as the run for a step."""
    facts = context.run.manifest.facts
    _, advice = _limit_and_advice(facts, context.step_ms or 0.0)
    subject = _workers_need(loading)
    if pins_too_slowly(facts):
        subject = f"The one thread that pins the batches of {loading.workers} loader workers needs"
    gain_ms = max_gain_ms(context)
    fed_ms = context.step_ms - gain_ms if context.step_ms and gain_ms else None
    return Evidence(
        Advice(
            f"{subject} {in_words(loading.ms)} for a batch, as long as the step takes: a faster GPU alone gains hardly anything",
            replace(advice, how=f"{advice.how} Until then, shorter GPU work does not help."),
            note="This is an upper limit, because it is all of the GPU's wait. The profiled steps do not show how long the host takes for a step without waiting for batches.",
            risk="More workers need more host memory and CPU cores; if storage is the limit, they only wait for it.",
            changes=loader_changes(facts, CHANGES, workers_for(context, fed_ms)),
        ),
        lost_ms=gain_ms,
        limits_the_step=bool(gain_ms),
        severity=None if gain_ms else "info",
        at_most="warning",
        rows=[
            {
                "a batch takes the workers, ms": round(loading.ms, 3),
                "at least": round(loading.low_ms, 3),
                "at most": round(loading.high_ms, 3),
            },
            *steps,
        ],
    )


RULE = Rule(
    "prefetch-queue-hid-the-loader",
    measure,
    reads=TRACE_SOURCES | {"telemetry", "loader_timing"},
    explains=Explains(("data_wait",), topics=frozenset({"hidden"})),
    requires=("steps", "run's step"),
)

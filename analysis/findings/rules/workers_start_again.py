"""The loader starts its workers inside the run.

What it checks
    How much longer the loop waits for the first batch of an epoch than for other batches, by its step marks. Without marks, the
    rule looks for Python frames in which the loader creates its iterator (``_get_iterator``) and starts processes. The waits for
    the loader in the same steps also count.
Why it costs time
    Each epoch starts every worker process again. Each process then imports the program and opens the dataset again.
What to do
    Set ``persistent_workers=True``, which keeps the workers running.
When it is wrong
    The run has one long epoch, so its workers start only once.
References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import severity_of
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, PredictedStep, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.loading import worker_starts
from sawtooth.analysis.metrics.loader_rate import sample_cost
from sawtooth.analysis.metrics.step_time_evidence import HOST_DRIFT
from sawtooth.analysis.run.loading import FIRST_BATCH_RATIO, batch_ms, slow_worker_starts_ms, worker_starts_ms
from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding, RunResult
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.step_parts import StepParts
from sawtooth.ingest.manifest import UserFacts

PERSISTENT_NOTE = (
    "Predicted without the waits for first batches of epochs, except for the time in which a worker loads such a batch."
)
PERSISTENT_RISK = (
    "Workers keep their memory between epochs. They do not see changes that the main process makes to the dataset."
)
PREPARE_ONCE = Action(
    "Prepare",
    "the samples once, before the epochs",
    ": the dataset's __iter__ or the sampler repeats its work before the first sample in each epoch.",
)
NOT_PREDICTED = "Not predicted: it is not known how much of this work every epoch needs. More workers do not shorten this work."

CHANGES = (
    CodeChange(
        "PyTorch", "DataLoader(dataset, …, num_workers=8)", "DataLoader(dataset, …, num_workers=8, persistent_workers=True)"
    ),
    CodeChange(
        "Lightning", "DataLoader(dataset, …, num_workers=8)", "DataLoader(dataset, …, num_workers=8, persistent_workers=True)"
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=8)",
        "TrainingArguments(dataloader_num_workers=8, dataloader_persistent_workers=True)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if starting workers, with the wait for their first batch, takes a relevant share."""
    parts = context.rank.best.parts
    if parts is not None and parts.epochs:
        if not context.is_negligible(slow_worker_starts_ms(parts, context.run.manifest.facts)):
            yield _evidence_of_epochs(parts, context.run.manifest.facts, context.step_ms or 0.0)
        return
    starts = worker_starts(context)
    steps = sorted({int(step) for step in starts.frame["step"]})
    ((waited_ns,),) = context.recording.rows(
        "SELECT coalesce(sum(end_ns - start_ns), 0) FROM gaps WHERE device = ? AND cause = 'data_wait' AND list_contains(?, step)",
        [context.rank.device, steps],
    )
    starting_ms = context.scaled_to_run(starts.ms_per_step)
    waited_ms = context.scaled_to_run(float(waited_ns) / 1e6 / max(starts.steps, 1))
    cost_ms = starting_ms + waited_ms if steps else 0.0
    if context.is_negligible(cost_ms):
        return
    yield Evidence(
        Advice(
            f"The loader restarts its workers in {len(steps)} of {starts.steps} profiled steps: {in_words(starting_ms)} per step on average, {in_words(cost_ms)} with the wait for their first batch",
            Action("Keep", "the loader's workers", ": persistent_workers=True."),
            note="Not predicted: it is not known how often an epoch ends outside the profile. Persistent workers also begin an epoch with an empty queue.",
            risk=PERSISTENT_RISK,
            changes=CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        rows=starts.rows(),
        spans=starts.spans(),
    )


def _evidence_of_epochs(parts: StepParts, facts: UserFacts, step_ms: float) -> Evidence:
    """Return the evidence of the waits for first batches of epochs.

    Persistent workers load the first batch of an epoch as fast as any other batch. An IterableDataset may prepare its samples again
    in each epoch. Such a dataset has no known size, so the upper bound then removes only the starts of the workers.
    """
    workers, cost = int(facts.loader_workers or 0), sample_cost(facts)
    title = f"The loop waits {in_words(parts.first_ms)} of each {in_words(step_ms)} step for the first batch of each epoch"
    frequency = f"{in_words(parts.first_ms * parts.epoch_steps)} every {parts.epoch_steps:,.0f} steps"
    if not workers or parts.persistent_workers:
        return Evidence(
            Advice(f"{title}, {frequency}, before the dataset delivers its first sample", PREPARE_ONCE, note=NOT_PREDICTED),
            lost_ms=parts.first_ms,
            cost_ms=parts.first_ms,
        )
    loading_ms = batch_ms(cost) / parts.epoch_steps if cost is not None else 0.0
    without_waits_ms = step_ms - parts.first_ms
    without_starts_ms = step_ms - parts.starting_ms
    after_ms = min(without_waits_ms + loading_ms, step_ms)
    crowded_ms = without_waits_ms + FIRST_BATCH_RATIO * loading_ms if facts.loader_dataset_samples else without_starts_ms
    undrifted_high_ms = max(crowded_ms, after_ms)
    drift = 1 + HOST_DRIFT  # The workers run on the training's cores, whose speed varies.
    high_ms = min(undrifted_high_ms * drift, max(without_starts_ms, undrifted_high_ms), step_ms)
    return Evidence(
        Advice(
            f"{title}, {frequency}: the loader's {workers} workers start again",
            Action(
                "Keep", "the loader's workers", ": persistent_workers=True, and create the DataLoader once, before the epochs."
            ),
            note=PERSISTENT_NOTE,
            risk=PERSISTENT_RISK,
            changes=CHANGES,
        ),
        lost_ms=parts.first_ms,
        cost_ms=parts.first_ms,
        predicted=PredictedStep(after_ms, (without_waits_ms / drift, high_ms)),
    )


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield the finding for a run without GPU work, by its step marks."""
    step_ms, host = result.metrics["best_step_time_ms"].value, result.host
    if host is None or host.parts is None or not step_ms or not (waits_ms := worker_starts_ms(result)):
        return
    evidence = _evidence_of_epochs(host.parts, result.manifest.facts, step_ms)
    predicted = evidence.predicted
    yield Finding(
        rule=RULE.slug,
        severity=severity_of(waits_ms / step_ms),
        title=evidence.advice.title,
        action=evidence.advice.action,
        confidence="medium",
        ceiling_ms_per_step=waits_ms,
        predicted_step_ms=predicted.ms if predicted else None,
        predicted_low_ms=predicted.between_ms[0] if predicted and predicted.between_ms else None,
        predicted_high_ms=predicted.between_ms[1] if predicted and predicted.between_ms else None,
        predicted_speedup=step_ms / predicted.ms if predicted else None,
        prediction_note=evidence.advice.note,
        risk=evidence.advice.risk,
        changes=evidence.advice.changes,
        explains=RULE.explains,
    )


RULE = Rule(
    "workers-start-again",
    measure,
    reads=TRACE_SOURCES | {"python_stacks"},
    explains=Explains(("data_wait",), called="loader workers that restart"),
    requires=("steps", "epochs"),
    threshold=FEW_LINES_TO_CHANGE,
    host_check=check_host,
)

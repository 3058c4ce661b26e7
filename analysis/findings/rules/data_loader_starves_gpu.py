"""The data loader starves the GPU.

What it checks
    GPU idle time in the steady window while the launching thread is inside the DataLoader's ``next`` (cause ``data_wait``).
    The first advice depends on whether the loader works in the training process (``_SingleProcessDataLoaderIter``) or in
    workers. For a run without GPU work, the trace or the loader's times show how long the loop waits for batches.
Why it costs time
    The GPU has finished the step, but the next batch is not ready. With ``num_workers=0``, every sample is read, decoded and
    augmented between two steps. With too few workers, the step waits for the slowest of them.
What to do
    Load in enough worker processes, so that together they are faster than the step. Keep them alive between epochs. Pin
    memory, so that the copy to the GPU overlaps.
When it is wrong
    The storage or the network is the limit. More workers would only wait there. Telemetry with samples of the host shows this.
    If a full prefetch queue fed the profiled steps, the trace lacks the wait; telemetry shows it.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.derive.host_only import LOADS_INLINE
from sawtooth.analysis.findings.actions import followed_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import severity_of
from sawtooth.analysis.findings.loader_limits import (
    ASK_FOR_CORES,
    cheaper_advice,
    cheaper_batch,
    delayed_by,
    limited_by,
    loader_keeps_up,
    pinning_limit,
    stage_of,
)
from sawtooth.analysis.findings.loading.workers import enough_workers, with_more, workers_for
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.loading import (
    CPU_LIMITS,
    advised_at_first,
    crowds_the_training,
    is_hidden_loader,
    most_that_help,
    of_first_read,
    paced_by,
    workers_needed,
)
from sawtooth.analysis.knowledge.owners import HOST_LOADING
from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.run.loading import host_parts, loader_rates, starts_ms
from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding, RunResult
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SEVERAL_CORES, UNSHARED_WORKERS, predict
from sawtooth.ingest.manifest import UserFacts

FEW_WORKERS = Action(
    "Give",
    "the loader more workers and a deeper prefetch",
    ", or make a sample cheaper: decode smaller images, cache decoded samples.",
)
SEVERAL = ", with pinned memory and persistent workers. Use more only if the host has cores for them."
MIN_RATE_FACTOR = 1.1  # More workers must raise the sample rate by this factor to justify their memory.
COPIES = "Each worker has its own copy of the dataset object. A dataset of Python lists then takes its memory once per worker."
PACED = " {workers} {ms} to load the samples of a step, so the step cannot become shorter."
FED = "Predicted without the wait for batches, but not faster than the workers deliver samples."
NOT_TIMED = "Samples were not timed (`sawtooth run` does it), so the needed number of workers is unknown."
NOT_FED = "At the measured time per sample, more workers hardly shorten the step."
CORES_SHARED = " If the training computes on the CPU, it shares the host's cores with the loader."
CROWDED = 2.0  # Upper bound of the step relative to its prediction (on one crowded host: predicted 70 ms, measured 133 ms).
TOO_CROWDED = "Not predicted: workers would take cores from the training, and a step may take as long as now."
NOT_PINNED = "Not predicted: the trace does not show how long a batch takes with other pinning or without it."
ALWAYS_FED = "Predicted by the replay without the waits for the loader, as if the loader always kept up."
UNSEEN_REST = "This is an upper limit. A profile would show how long a step takes without waiting for batches."

WORKERS = (("workers", "8"), ("seen", ""))  # Values of the code's slots if nothing shows how many workers are needed.
CHANGES = (
    CodeChange(
        "PyTorch",
        "loader = DataLoader(dataset, …$seen)",
        "loader = DataLoader(dataset, …, num_workers=$workers, pin_memory=True,\n                    persistent_workers=True, prefetch_factor=4)",
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
        "TrainingArguments(...)",
        "TrainingArguments(..., dataloader_num_workers=$workers, dataloader_persistent_workers=True, dataloader_prefetch_factor=4)",
        usual=WORKERS,
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the loader costs a relevant share of the step."""
    lost = context.lost_ms("data_wait")
    if context.is_trifle(lost) or of_first_read(context):
        return
    inline = bool(context.recording.named(LOADS_INLINE))
    if not inline and is_hidden_loader(context):
        return  # Another rule reports this loss, with the wait of the run.
    fed_ms = context.predict_ms([WithoutHostCause("data_wait")])
    place = "in the training process itself (num_workers=0)" if inline else "in its worker processes"
    advice = _into_workers(context, lost, fed_ms) if inline else _of_workers(context, fed_ms)
    yield Evidence(
        Advice(
            f"The GPU waits {in_words(lost)} of each step for the data loader, which works {place}{advice.delayed}",
            advice.action,
            note=advice.note,
            risk=COPIES,
            changes=advice.changes,
        ),
        lost_ms=lost,
        cost_ms=lost,
        edits=advice.edits,
        confidence="high" if advice.sure else "medium",
        rows=context.gap_evidence("data_wait"),
    )


class _LoaderAdvice(NamedTuple):
    """What to do about the loader; ``delayed`` names its limit, ``sure`` is True if it was measured."""

    delayed: str
    action: Action
    edits: list[Edit]
    note: str
    changes: tuple[CodeChange, ...]
    sure: bool


def _into_workers(context: RuleContext, lost_ms: float, fed_ms: float | None) -> _LoaderAdvice:
    """Return the advice for a training process without workers: load in parallel in workers."""
    facts = context.run.manifest.facts
    workers = advised_at_first(context, lost_ms, fed_ms)
    cores = SEVERAL_CORES if workers > UNSHARED_WORKERS else 1.0
    edit = paced_by(facts, workers) or WithoutHostCause("data_wait", paced_ms=lost_ms / workers / cores)
    delayed, _ = limited_by(facts, context.run.telemetry.host) or ("", "")
    fix = Action("Load", f"data in {'a worker process' if workers == 1 else f'{workers} worker processes'}", SEVERAL)
    if stage_of(facts) in ("collate", "pinning"):
        fix = followed_by(fix, cheaper_advice(facts).sentence)
    changes = tuple(replace(change.filled(workers=str(workers)), of_run=False) for change in CHANGES)
    fix = followed_by(fix, workers_needed(facts, fed_ms))
    return _LoaderAdvice(delayed, fix, [edit], f"{ALWAYS_FED}{_paced_note(workers, edit)}", changes, True)


def _of_workers(context: RuleContext, fed_ms: float | None) -> _LoaderAdvice:
    """Return the advice for slow workers, from samples of the host or else from the loader's own times."""
    facts, host = context.run.manifest.facts, context.run.telemetry.host
    limit = host.limit_of_loader() if host is not None else None
    timed = limited_by(facts)  # The loader's own times help if a short recording has few samples of the host.
    changes = with_more(facts, CHANGES, workers_for(context, fed_ms, limit))
    if (pinning := pinning_limit(context)) is not None:  # Pinning limits the loader independently of the workers.
        return _LoaderAdvice(pinning.delayed, pinning.action, [], NOT_PINNED, (pinning.change,), sure=True)
    delayed, fix = (delayed_by(host, limit) if host is not None and limit is not None else timed) or ("", FEW_WORKERS)
    useful_workers = most_that_help(facts) if limit in (None, "worker") else None
    edits: list[Edit]
    if useful_workers is None:
        edits, bounded = loader_keeps_up(context, host if limit == "worker" else None)
    else:
        edits, bounded = (
            [useful_workers.edit],
            _paced_note(useful_workers.workers, useful_workers.edit) if useful_workers.ms > (fed_ms or 0.0) else "",
        )
    fix = followed_by(fix, workers_needed(facts, fed_ms))
    return _LoaderAdvice(delayed, fix, edits, f"{ALWAYS_FED}{bounded}", changes, bool(limit or timed))


def _paced_note(workers: int, edit: WithoutHostCause) -> str:
    return PACED.format(workers="One worker takes" if workers == 1 else f"{workers} workers take", ms=in_words(edit.paced_ms))


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding if the loop of a run without GPU work waits for batches."""
    step_ms, facts = result.metrics["best_step_time_ms"].value, result.manifest.facts
    waits_ms = host_parts(result).get(HOST_LOADING, 0.0) - starts_ms(result)  # Another rule reports the starts.
    if not step_ms:
        return
    if not waits_ms and result.host is None:
        yield from _at_the_loaders_rate(facts, step_ms)
    if waits_ms < FEW_LINES.share * step_ms:
        return
    workers = int(facts.loader_workers or 0)
    inline = not workers if result.host is None or facts.loader_workers is not None else result.host.loads_inline
    cost, rest_ms = sample_cost(facts), step_ms - waits_ms
    place = "which it loads itself (num_workers=0)" if inline else "which worker processes load"
    delayed, of_limit = limited_by(facts, result.telemetry.host) or ("", CPU_LIMITS)
    no_core = of_limit is ASK_FOR_CORES
    enough, after_ms, low_ms = enough_workers(cost, facts, rest_ms, inline) if cost is not None else (None, None, None)
    most_ms = CROWDED * after_ms if after_ms is not None else math.inf
    crowded = no_core or (not inline and crowds_the_training(result))
    if crowded:
        enough = after_ms = None
    suffice = not inline and enough is not None and enough <= workers  # more workers would only share the same cores
    changes: tuple[CodeChange, ...]
    if crowded:
        then = "Then load in worker processes." if inline else ""
        fix, changes = (followed_by(of_limit, then), ()) if no_core else (CPU_LIMITS, (cheaper_batch(facts),))
    elif suffice:
        fix, changes = followed_by(cheaper_advice(facts), workers_needed(facts, after_ms or rest_ms)), ()
    else:
        fix = followed_by(_use_workers(inline, enough, workers), workers_needed(facts, after_ms or rest_ms))
        changes = (_num_workers(0 if inline else workers, enough),)
    gains = after_ms is not None and after_ms < (1 - FEW_LINES.share) * step_ms and not suffice
    is_sure = gains and most_ms < step_ms
    predicted_ms = after_ms if is_sure else None
    yield Finding(
        rule=RULE.slug,
        severity=severity_of(waits_ms / step_ms),
        title=f"The loop waits {in_words(waits_ms)} of each {in_words(step_ms)} step for batches, {place}{delayed}",
        action=replace(fix, amount=None if suffice else enough),
        confidence="medium",
        ceiling_ms_per_step=waits_ms,
        predicted_step_ms=predicted_ms,
        predicted_low_ms=low_ms if is_sure else None,
        predicted_high_ms=most_ms if is_sure else None,
        predicted_speedup=step_ms / predicted_ms if predicted_ms else None,
        prediction_note=f"{(FED if is_sure else TOO_CROWDED) if gains else NOT_TIMED if cost is None else NOT_FED}{CORES_SHARED}",
        risk=COPIES,
        changes=changes,
        explains=RULE.explains,
    )


def _at_the_loaders_rate(facts: UserFacts, step_ms: float) -> Iterator[Finding]:
    """Yield a finding if there are only step marks and the loop is as fast as its loader's workers."""
    cost, workers, rates = sample_cost(facts), int(facts.loader_workers or 0), loader_rates(facts, step_ms)
    if cost is None or not workers or rates is None or not rates[0].low <= rates[1] <= rates[0].high:
        return
    loaded, used = rates
    cores = cores_of(facts)
    further = [predict(cost, n, cores, workers) for n in range(workers + 1, MAX_WORKERS_PER_CORE * cores + 1)]
    fastest = max(further, key=lambda rate: rate.value, default=loaded)
    rate_with_more = next((rate for rate in further if rate.value >= 2 * loaded.value), fastest)
    limited, _ = limited_by(facts) or ("", "")
    helps = rate_with_more.value > MIN_RATE_FACTOR * loaded.value
    at_stake_ms = step_ms - 1e3 * cost.batch / rate_with_more.value if helps else None
    more_workers = followed_by(
        _use_workers(False, rate_with_more.workers, workers), f"They can load {rate_with_more.value:,.0f} samples/s."
    )
    yield Finding(
        rule=RULE.slug,
        severity=severity_of((at_stake_ms or 0.0) / step_ms),
        title=f"The loop uses {used:,.0f} samples/s, all that its {workers} loader workers can load{limited}",
        action=more_workers if helps else cheaper_advice(facts),
        confidence="low",
        ceiling_ms_per_step=at_stake_ms,
        prediction_note=UNSEEN_REST,
        risk=COPIES,
        changes=(_num_workers(workers, rate_with_more.workers),) if helps else (),
        explains=RULE.explains,
    )


def _use_workers(inline: bool, enough: int | None, workers: int) -> Action:
    """Return the advice to load in worker processes, or in more of them."""
    if inline:
        several = enough is not None and enough > 1
        return Action(
            "Load", "batches in $amount worker processes" if several else "batches in a worker process", amount=enough
        )
    return Action("Use", f"$amount loader workers instead of {workers}", amount=enough) if enough and workers else FEW_WORKERS


def _num_workers(before: int, after: int | None) -> CodeChange:
    was = f", num_workers={before}" if before else ""
    return CodeChange(
        "PyTorch",
        f"loader = DataLoader(dataset, …{was})",
        f"loader = DataLoader(dataset, …, num_workers={after or max(2 * before, 4)}, persistent_workers=True)",
    )


RULE = Rule(
    "data-loader-starves-gpu",
    measure,
    reads=OF_TRACE | {"telemetry", "host_telemetry", "loader_timing"},
    explains=Explains(("data_wait",), sets=("loader",)),
    requires=("steps",),
    threshold=FEW_LINES,
    of_the_host=check_host,
)

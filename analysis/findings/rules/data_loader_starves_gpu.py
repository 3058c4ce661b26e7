"""The data loader starves the GPU.

What it checks
    GPU idle time in the steady window while the launching thread is inside the DataLoader's ``next`` (cause ``data_wait``).
    The advice depends on whether the loader works in the training process (``_SingleProcessDataLoaderIter``) or in workers.
    For a run without GPU work, the trace or the loader's times show how long the loop waits for batches.
Why it costs time
    The GPU has finished the step, but the next batch is not ready. With ``num_workers=0``, every sample is read, decoded and
    augmented between two steps. With too few workers, the step waits for the slowest of them.
What to do
    Load in enough worker processes, so that together they are faster than the step. Keep the workers alive between epochs. Pin
    memory, so that the copy to the GPU overlaps with computation.
When it is wrong
    The storage or the network is the limit, so more workers would only wait there. Telemetry of the host shows this. If the
    prefetch queue was full before the profiled steps, the trace shows no wait. Telemetry then shows the wait.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from sawtooth.analysis.derive.host_only import LOADS_INLINE
from sawtooth.analysis.findings.actions import with_more_advice
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import severity_of
from sawtooth.analysis.findings.loader_limits import (
    ASK_FOR_CORES,
    cheaper_advice,
    cheaper_batch_change,
    host_limit_words,
    limiting_stage,
    loader_keeps_up,
    loader_limit,
    pinning_limit,
)
from sawtooth.analysis.findings.loading.workers import (
    MORE_WORKERS,
    enough_workers,
    loader_changes,
    num_workers_change,
    workers_action,
    workers_for,
)
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.loading import (
    COMPUTE_LESS_ON_CPU,
    best_workers,
    is_hidden_loader,
    loading_time_edit,
    profiles_first_read,
    workers_crowd_training,
    workers_needed,
    workers_to_begin_with,
)
from sawtooth.analysis.knowledge.owners import HOST_LOADING
from sawtooth.analysis.metrics.loader_rate import cores_of, sample_cost
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause
from sawtooth.analysis.run.loading import host_parts, loader_rates, worker_starts_ms
from sawtooth.analysis.run.model import Action, CodeChange, Explains, Finding, RunResult
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.loading import MAX_WORKERS_PER_CORE, SEVERAL_CORES, UNSHARED_WORKERS, predict
from sawtooth.ingest.manifest import UserFacts

INTO_WORKERS_DETAIL = ", with pinned memory and persistent workers. Use more only if the host has cores for them."
MIN_RATE_FACTOR = 1.1  # More workers must raise the sample rate by this factor to justify their memory.
COPIES_RISK = (
    "Each worker has its own copy of the dataset object. A dataset of Python lists then takes its memory once per worker."
)
LOADING_LIMIT_NOTE = " {workers} {ms} to load the samples of a step, so the step cannot become shorter."
FED_NOTE = "Predicted without the wait for batches. The step is at least as long as the workers need for its samples."
NOT_TIMED_NOTE = "Samples were not timed (`sawtooth run` does it), so the needed number of workers is unknown."
SMALL_GAIN_NOTE = "At the measured time per sample, more workers hardly shorten the step."
SHARED_CORES_NOTE = " If the training computes on the CPU, it shares the host's cores with the loader."
# Upper bound of the step relative to its prediction (on one crowded host: predicted 70 ms, measured 133 ms).
SHARED_CORES_FACTOR = 2.0
TOO_FEW_CORES_NOTE = "Not predicted: workers would take cores from the training, and a step may take as long as now."
PINNING_NOTE = "Not predicted: the trace does not show how long loading takes if batches are pinned differently or not at all."
ALWAYS_FED_NOTE = "Predicted by the replay without the waits for the loader, as if the loader always kept up."
UNPROFILED_NOTE = "This is an upper limit. A profile would show how long a step takes without waiting for batches."

DEFAULT_SLOTS = (
    ("workers", "8"),
    ("workers_now", ""),
)  # Values of the code's slots if nothing shows how many workers are needed.
CHANGES = (
    CodeChange(
        "PyTorch",
        "loader = DataLoader(dataset, …$workers_now)",
        "loader = DataLoader(dataset, …, num_workers=$workers, pin_memory=True,\n                    persistent_workers=True, prefetch_factor=4)",
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
        "TrainingArguments(...)",
        "TrainingArguments(..., dataloader_num_workers=$workers, dataloader_persistent_workers=True, dataloader_prefetch_factor=4)",
        slot_defaults=DEFAULT_SLOTS,
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the loader costs a relevant share of the step."""
    lost_ms = context.lost_ms("data_wait")
    if context.is_negligible(lost_ms) or profiles_first_read(context):
        return
    inline = bool(context.recording.named(LOADS_INLINE))
    if not inline and is_hidden_loader(context):
        return  # Another rule reports this loss, with the wait of the run.
    rest_ms = context.predict_ms([WithoutHostCause("data_wait")])
    place = "in the training process itself (num_workers=0)" if inline else "in its worker processes"
    advice = _advice_for_inline_loader(context, lost_ms, rest_ms) if inline else _advice_for_workers(context, rest_ms)
    yield Evidence(
        Advice(
            f"The GPU waits {in_words(lost_ms)} of each step for the data loader, which works {place}{advice.limit_clause}",
            advice.action,
            note=advice.note,
            risk=COPIES_RISK,
            changes=advice.changes,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=advice.edits,
        confidence="high" if advice.is_measured else "medium",
        rows=context.gap_evidence("data_wait"),
    )


class _LoaderAdvice(NamedTuple):
    """What to do about the loader.

    ``limit_clause`` ends the title with the loader's limit. ``is_measured`` says whether the limit was measured.
    """

    limit_clause: str
    action: Action
    edits: list[Edit]
    note: str
    changes: tuple[CodeChange, ...]
    is_measured: bool


def _advice_for_inline_loader(context: RuleContext, lost_ms: float, rest_ms: float | None) -> _LoaderAdvice:
    """Return the advice for a training process without workers: load in parallel in workers."""
    facts = context.run.manifest.facts
    workers = workers_to_begin_with(context, lost_ms, rest_ms)
    cores = SEVERAL_CORES if workers > UNSHARED_WORKERS else 1.0
    edit = loading_time_edit(facts, workers) or WithoutHostCause("data_wait", loader_limit_ms=lost_ms / workers / cores)
    limit_clause, _ = loader_limit(facts, context.run.telemetry.host) or ("", "")
    processes = "a worker process" if workers == 1 else f"{workers} worker processes"
    action = Action("Load", f"data in {processes}", INTO_WORKERS_DETAIL)
    if limiting_stage(facts) in ("collate", "pinning"):
        action = with_more_advice(action, cheaper_advice(facts).sentence)
    action = with_more_advice(action, workers_needed(facts, rest_ms))
    changes = tuple(replace(change.filled(workers=str(workers)), of_run=False) for change in CHANGES)
    note = f"{ALWAYS_FED_NOTE}{_loading_limit_note(workers, edit)}"
    return _LoaderAdvice(limit_clause, action, [edit], note, changes, is_measured=True)


def _advice_for_workers(context: RuleContext, rest_ms: float | None) -> _LoaderAdvice:
    """Return the advice for slow workers, from samples of the host or else from the loader's own times."""
    facts, host = context.run.manifest.facts, context.run.telemetry.host
    host_limit = host.limit_of_loader() if host is not None else None
    timed_limit = loader_limit(facts)  # Used if a short recording has too few samples of the host.
    changes = loader_changes(facts, CHANGES, workers_for(context, rest_ms, host_limit))
    if (pinning := pinning_limit(context)) is not None:  # Pinning limits the loader independently of the workers.
        return _LoaderAdvice(pinning.limit_clause, pinning.action, [], PINNING_NOTE, (pinning.change,), is_measured=True)
    sampled_limit = host_limit_words(host, host_limit) if host is not None and host_limit is not None else None
    limit_clause, action = sampled_limit or timed_limit or ("", MORE_WORKERS)
    best = best_workers(facts) if host_limit in (None, "worker") else None
    edits: list[Edit]
    if best is None:
        edits, limit_note = loader_keeps_up(context, host if host_limit == "worker" else None)
    else:
        edits = [best.edit]
        limit_note = _loading_limit_note(best.workers, best.edit) if best.ms > (rest_ms or 0.0) else ""
    action = with_more_advice(action, workers_needed(facts, rest_ms))
    is_measured = host_limit is not None or timed_limit is not None
    return _LoaderAdvice(limit_clause, action, edits, f"{ALWAYS_FED_NOTE}{limit_note}", changes, is_measured)


def _loading_limit_note(workers: int, edit: WithoutHostCause) -> str:
    subject = "One worker takes" if workers == 1 else f"{workers} workers take"
    return LOADING_LIMIT_NOTE.format(workers=subject, ms=in_words(edit.loader_limit_ms))


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding if the loop of a run without GPU work waits for batches."""
    step_ms, facts = result.metrics["best_step_time_ms"].value, result.manifest.facts
    waits_ms = host_parts(result).get(HOST_LOADING, 0.0) - worker_starts_ms(result)  # Another rule reports the starts.
    if not step_ms:
        return
    if not waits_ms and result.host is None:
        yield from _loop_at_loader_rate(facts, step_ms)
    if waits_ms < FEW_LINES_TO_CHANGE.share * step_ms:
        return
    workers = int(facts.loader_workers or 0)
    inline = not workers if result.host is None or facts.loader_workers is not None else result.host.loads_inline
    cost, rest_ms = sample_cost(facts), step_ms - waits_ms
    place = "which it loads itself (num_workers=0)" if inline else "which worker processes load"
    limit_clause, limit_action = loader_limit(facts, result.telemetry.host) or ("", COMPUTE_LESS_ON_CPU)
    no_core = limit_action is ASK_FOR_CORES
    enough, after_ms, low_ms = enough_workers(cost, facts, rest_ms, inline) if cost is not None else (None, None, None)
    high_ms = SHARED_CORES_FACTOR * after_ms if after_ms is not None else math.inf
    is_crowded = no_core or (not inline and workers_crowd_training(result))
    if is_crowded:
        enough = after_ms = None
    has_enough = not inline and enough is not None and enough <= workers  # More workers would only share the same cores.
    changes: tuple[CodeChange, ...]
    if is_crowded:
        next_step = "Then load in worker processes." if inline else ""
        action, changes = (
            (with_more_advice(limit_action, next_step), ())
            if no_core
            else (COMPUTE_LESS_ON_CPU, (cheaper_batch_change(facts),))
        )
    elif has_enough:
        action, changes = with_more_advice(cheaper_advice(facts), workers_needed(facts, after_ms or rest_ms)), ()
    else:
        action = with_more_advice(workers_action(inline, enough, workers), workers_needed(facts, after_ms or rest_ms))
        changes = (num_workers_change(0 if inline else workers, enough),)
    gains = after_ms is not None and after_ms < (1 - FEW_LINES_TO_CHANGE.share) * step_ms and not has_enough
    is_sure = gains and high_ms < step_ms
    predicted_ms = after_ms if is_sure else None
    gain_note = FED_NOTE if is_sure else TOO_FEW_CORES_NOTE
    no_gain_note = NOT_TIMED_NOTE if cost is None else SMALL_GAIN_NOTE
    yield Finding(
        rule=RULE.slug,
        severity=severity_of(waits_ms / step_ms),
        title=f"The loop waits {in_words(waits_ms)} of each {in_words(step_ms)} step for batches, {place}{limit_clause}",
        action=replace(action, amount=None if has_enough else enough),
        confidence="medium",
        ceiling_ms_per_step=waits_ms,
        predicted_step_ms=predicted_ms,
        predicted_low_ms=low_ms if is_sure else None,
        predicted_high_ms=high_ms if is_sure else None,
        predicted_speedup=step_ms / predicted_ms if predicted_ms else None,
        prediction_note=f"{gain_note if gains else no_gain_note}{SHARED_CORES_NOTE}",
        risk=COPIES_RISK,
        changes=changes,
        explains=RULE.explains,
    )


def _loop_at_loader_rate(facts: UserFacts, step_ms: float) -> Iterator[Finding]:
    """Yield a finding if there are only step marks and the loop is as fast as its loader's workers."""
    cost, workers, rates = sample_cost(facts), int(facts.loader_workers or 0), loader_rates(facts, step_ms)
    if cost is None or not workers or rates is None:
        return
    loaded, used = rates
    if not loaded.low <= used <= loaded.high:
        return
    cores = cores_of(facts)
    rates_with_more = [predict(cost, n, cores, workers) for n in range(workers + 1, MAX_WORKERS_PER_CORE * cores + 1)]
    fastest = max(rates_with_more, key=lambda rate: rate.value, default=loaded)
    rate_with_more = next((rate for rate in rates_with_more if rate.value >= 2 * loaded.value), fastest)
    limit_clause, _ = loader_limit(facts) or ("", "")
    helps = rate_with_more.value > MIN_RATE_FACTOR * loaded.value
    max_gain_ms = step_ms - 1e3 * cost.batch / rate_with_more.value if helps else None
    more_workers = with_more_advice(
        workers_action(False, rate_with_more.workers, workers), f"They can load {rate_with_more.value:,.0f} samples/s."
    )
    yield Finding(
        rule=RULE.slug,
        severity=severity_of((max_gain_ms or 0.0) / step_ms),
        title=f"The loop uses {used:,.0f} samples/s, all that its {workers} loader workers can load{limit_clause}",
        action=more_workers if helps else cheaper_advice(facts),
        confidence="low",
        ceiling_ms_per_step=max_gain_ms,
        prediction_note=UNPROFILED_NOTE,
        risk=COPIES_RISK,
        changes=(num_workers_change(workers, rate_with_more.workers),) if helps else (),
        explains=RULE.explains,
    )


RULE = Rule(
    "data-loader-starves-gpu",
    measure,
    reads=TRACE_SOURCES | {"telemetry", "host_telemetry", "loader_timing"},
    explains=Explains(("data_wait",), sets=("loader",)),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
    host_check=check_host,
)

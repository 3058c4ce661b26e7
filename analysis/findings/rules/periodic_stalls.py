"""Some steps take much longer than the others, or the loop pauses between them.

What it checks
    Pauses between training steps, by the loop's own step marks: pauses for a checkpoint, and pauses that are too rare for the
    loop's normal work. An evaluation counts only if some ranks evaluate while the others wait. Rare long steps count, too, if
    telemetry shows the GPU of one rank idle and the others active. Without such pauses, the rule checks the profile for steps
    that take at least 1.5 times the median, unless an evaluation or a checkpoint explains them.
Why it costs time
    Work that happens every N steps (logging, checkpoints, evaluation, garbage collection, a slow batch) adds to the average
    step.
What to do
    Evaluate on all ranks, each with a share of the data. Save in the background. Otherwise, look at the host's work in the slow
    steps, and do this work less often or in parallel with the loop. If the slow steps have more GPU work, look at the kernels
    that they add.
When it is wrong
    There are few profiled steps, so one slow step does not show how often such steps occur. Two pauses among all marked steps do
    not show it either.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting_passes
from sawtooth.analysis.findings.loops.evaluation import alone_longer, evaluates_in
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, PredictedStep, Row, Rule
from sawtooth.analysis.findings.policy import RARE_EVENTS
from sawtooth.analysis.findings.queries.copies import FEWER_CHECKPOINTS_RISK, SAVE_ASYNC, SAVE_LESS, checkpoint_copies
from sawtooth.analysis.findings.queries.loading import profiles_first_read
from sawtooth.analysis.findings.straggler_limits import stalls_in_few_steps
from sawtooth.analysis.intervals import union
from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.ranks.heatmap import RankStalls
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_times, in_words, significant

SLOW_FACTOR = 1.5  # Multiple of the median step. Clocks and batches change steps by less.
MIN_STEPS = 4  # Among three steps, any one can be the median.
WARNING_SHARE = 0.1  # Share of the mean step. From this share on, the finding is a warning.
MAJORITY = 0.5  # Share of the slow steps' extra time. Waits for data, or GPU work, with a larger share explain the slow steps.
PROFILED_FACTOR = 2.0  # Profiled host work takes up to twice as long, so a profiled pause may, too.
EVALUATE_ON_ALL = Action("Evaluate", "on all ranks, with a share of the data each", ", or less often.")
SHARED_NOTE = (
    "Predicted for an evaluation whose data the {world} ranks share. Evaluating less often can save up to all of this time."
)
CHECKPOINT_NOTE = "The gain is at most this time, because a checkpoint in the background still copies the state once."
NOT_IN_STEP_NOTE = "This pause is not part of the step time. Without the pause, the run does more steps per hour."

UNKNOWN_WORK_NOTE = (
    "Not predicted: the other ranks wait in these steps, and the trace does not show what the additional work is for. An evaluation "
    "on one rank looks like this."
)
OTHER_RULES_NOTE = "Not predicted: the cause of each slow step has its own rule."

IDLE_NOTE = (
    "In these steps, telemetry shows an idle GPU on this rank and active GPUs on the others, which wait in a collective."
)
FIND_PAUSE_WORK = Action(
    "Look",
    "at what the loop does during the pauses",
    ", such as writing a checkpoint, evaluating or loading data. Do it less often, or in parallel with the loop.",
)

SEE_HOST_WORK = Action(
    "Open",
    "the slow steps on the timeline and see what the host does there",
    ". Do this work less often, or in parallel with the loop.",
)
SEE_KERNELS = Action(
    "Open",
    "the slow steps on the timeline and see which kernels they add",
    ". More kernels are normal for the optimizer's step after several micro-batches. An evaluation may run less often.",
)
CHANGES = (
    CodeChange(
        "PyTorch",
        "if step % 10 == 0:\n    log(loss.item()); save()",
        "if step % 1000 == 0:\n    log(loss.item()); save()",
    ),
)


EVALUATION_CHANGES = (
    CodeChange(
        "PyTorch",
        "if rank == 0 and step % 100 == 0:\n    loss = evaluate(model, data)",
        "if step % 100 == 0:   # on every rank\n    share = torch.utils.data.Subset(data, range(rank, len(data), world_size))\n    loss = evaluate(model, share)\n    torch.distributed.all_reduce(loss)\n    loss /= world_size",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if pauses between steps, or else slow steps, cost a relevant share of the mean step."""
    step_ms = context.step_ms or 0.0
    pauses = [
        pause
        for pause in context.rank.best.pauses
        if (pause.reason != "evaluation" or pause.ranks) and pause.share(step_ms) >= RARE_EVENTS.share
    ]
    if len(checkpoint_copies(context).frame):
        pauses = [pause for pause in pauses if pause.reason == "evaluation"]  # Another rule reports the cost of checkpoints.
        if not pauses:
            return
    if pauses:
        longest = max(pauses, key=lambda pause: pause.ms_per_step)
        if not longest.ranks:
            yield _evidence_of_pauses(longest, step_ms)
        elif longest.reason == "unknown":
            yield _evidence_of_rare_stalls(longest, step_ms)
        else:
            yield _evidence_of_some_ranks(context, longest, step_ms)
    # In a loop with rounds, the first step of each round is longer because of the round's own work. The rule straggling-rank
    # reports the stalls of one rank.
    elif context.rank.best.round is None and acting_passes(context) is None and stalls_in_few_steps(context) is None:
        yield from _evidence_of_slow_steps(context)


def _evidence_of_pauses(pauses: Pauses, step_ms: float) -> Evidence:
    is_checkpoint, share = pauses.reason == "checkpoint", pauses.share(step_ms)
    repeats = len(pauses.steps) > 1
    place = "" if is_checkpoint else f", before step{'s' if repeats else ''} {' and '.join(map(str, pauses.steps))}"
    beginning = "Writing a checkpoint takes the loop" if is_checkpoint else "The loop pauses between its steps for"
    return Evidence(
        Advice(
            f"{beginning} {pauses.length_text}, {pauses.frequency_text}{place}: {significant(100 * share, 2)} % of the time",
            SAVE_LESS if is_checkpoint else FIND_PAUSE_WORK,
            note=_frequency_note(pauses, step_ms),
            risk=FEWER_CHECKPOINTS_RISK if is_checkpoint else "It depends on the cause.",
            changes=CHANGES,
        ),
        lost_ms=pauses.ms_per_step if pauses.in_step else None,
        confidence="medium" if is_checkpoint or pauses.period is not None else "low",
        severity="warning" if repeats and share >= WARNING_SHARE else "info",
        rows=_rows(pauses),
        samples_per_second_times=1 / (1 - share) if repeats and not pauses.in_step else None,
    )


def _evidence_of_some_ranks(context: RuleContext, pauses: Pauses, step_ms: float) -> Evidence:
    """Return the evidence of an evaluation or a checkpoint of some ranks, for which the other ranks wait."""
    ranks = f"rank{'s' if len(pauses.ranks) > 1 else ''} {', '.join(map(str, pauses.ranks))}"
    is_checkpoint, world = pauses.reason == "checkpoint", max(len({rank.rank for rank in context.run.ranks}), 2)
    work = "Writing a checkpoint" if is_checkpoint else "Evaluation"
    gain_ms = pauses.ms_per_step * (1 - len(pauses.ranks) / world)  # All ranks share the data of the evaluation.
    shared = PredictedStep(step_ms - gain_ms, (max(step_ms - pauses.ms_per_step, 0.0), step_ms - gain_ms / 2))
    return Evidence(
        Advice(
            f"{work} takes {ranks} {in_words(pauses.mean_ms)}, {pauses.frequency_text}, while the other ranks wait: {in_words(pauses.ms_per_step)} per step on average",
            SAVE_LESS if is_checkpoint else EVALUATE_ON_ALL,
            note=f"{_seen(pauses)}. {NOT_IN_STEP_NOTE if not pauses.in_step else CHECKPOINT_NOTE if is_checkpoint else SHARED_NOTE.format(world=world)}",
            risk=FEWER_CHECKPOINTS_RISK if is_checkpoint else "A batch metric must be averaged over all ranks.",
            changes=(SAVE_ASYNC,) if is_checkpoint else EVALUATION_CHANGES,
        ),
        lost_ms=pauses.ms_per_step if pauses.in_step else None,
        predicted=shared if pauses.in_step and not is_checkpoint else None,
        confidence="high" if pauses.period is not None else "medium",
        severity=None if pauses.in_step else "warning" if pauses.share(step_ms) >= WARNING_SHARE else "info",
        rows=_rows(pauses),
        samples_per_second_times=None if pauses.in_step else 1 / (1 - pauses.share(step_ms)),
    )


def _evidence_of_rare_stalls(pauses: Pauses, step_ms: float) -> Evidence:
    """Return the evidence of rare steps in which one rank stalls and the others wait."""
    rank, after_ms = f"rank {pauses.ranks[0]}", max(step_ms - pauses.ms_per_step, 0.0)
    return Evidence(
        Advice(
            f"{rank.capitalize()} stalls for {in_words(pauses.mean_ms)}, {pauses.frequency_text}, while the other ranks wait: {in_words(pauses.ms_per_step)} per step on average",
            Action(
                "Look",
                f"at what {rank} does before these steps",
                ", such as an evaluation, a checkpoint or a log on its host. Share it with the other ranks, or do it less often or in another thread.",
            ),
            note=f"{_seen(pauses)}. {IDLE_NOTE}",
            risk="It depends on the cause.",
            changes=CHANGES,
        ),
        lost_ms=pauses.ms_per_step,
        predicted=PredictedStep(after_ms, (after_ms, step_ms - pauses.ms_per_step / 2)),
        rows=_rows(pauses),
    )


def _seen(pauses: Pauses) -> str:
    return f"Seen {in_times(len(pauses.steps))} in {pauses.step_count:,} marked steps"


def _rows(pauses: Pauses) -> list[Row]:
    """Return each pause as a row of evidence."""
    return [{"before step": step, "ms": ms} for step, ms in zip(pauses.steps, pauses.ms, strict=True)]


def _frequency_note(pauses: Pauses, step_ms: float) -> str:
    """Return how often pauses come, in words, and whether they are part of the step time."""
    outside_note = f"Not part of the step time of {in_words(step_ms)}. Without the pauses, a step takes the same time, but the run does more steps per hour."
    frequency = "their frequency is not known more precisely"
    if pauses.period is not None:
        mean = in_words(pauses.mean_ms / pauses.period)
        frequency = f"about once every {pauses.period:,.0f} steps, {mean} per step on average"
    return " ".join([*([] if pauses.in_step else [outside_note]), f"{_seen(pauses)}: {frequency}."])


def _evidence_of_slow_steps(context: RuleContext) -> Iterator[Evidence]:
    steps_ms = sorted(context.rank.device_step_ms)
    if len(steps_ms) < MIN_STEPS:
        return
    median_ms = float(np.median(steps_ms))
    slow_ms = [ms for ms in steps_ms if ms >= SLOW_FACTOR * median_ms]
    extra_ms = sum(ms - median_ms for ms in slow_ms) / len(steps_ms)
    lost_ms = context.scaled_to_run(extra_ms)
    if not slow_ms or len(slow_ms) * 2 >= len(steps_ms) or context.is_negligible(lost_ms):
        return
    if any(_explains(pauses, [ms - median_ms for ms in slow_ms], len(steps_ms)) for pauses in context.rank.best.pauses):
        return
    waits_ms = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.cause == "data_wait")
    if waits_ms >= MAJORITY * extra_ms and profiles_first_read(context):
        return  # In later epochs, the data comes from memory.
    rows = context.rank.counted.assign(ms=context.rank.device_step_ms).nlargest(5, "ms")
    more_gpu_work = _extra_gpu_work_ms(context, SLOW_FACTOR * median_ms) >= MAJORITY * extra_ms
    alone = alone_longer(context)
    if alone is not None and evaluates_in(context, alone.steps):
        yield _evidence_of_evaluation(context, alone, lost_ms)
        return
    yield Evidence(
        Advice(
            f"Some profiled steps {'have more GPU work' if more_gpu_work else 'are slow'}: {len(slow_ms)} of {len(steps_ms)} take{'s' if len(slow_ms) == 1 else ''} up to {in_words(steps_ms[-1])}, the others {in_words(median_ms)} ({in_words(lost_ms)} per step on average)",
            SEE_KERNELS if more_gpu_work else SEE_HOST_WORK,
            note=UNKNOWN_WORK_NOTE if more_gpu_work and alone is not None else OTHER_RULES_NOTE,
            risk="It depends on the cause.",
            changes=() if more_gpu_work else CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        confidence="low",
        severity="warning" if context.share(lost_ms) >= WARNING_SHARE and not more_gpu_work else "info",
        rows=[
            {"name": str(r.name), "start_ns": int(r.start_ns), "end_ns": int(r.end_ns), "ms": float(r.ms)}
            for r in rows.itertuples(index=False)
        ],
    )


def _evidence_of_evaluation(context: RuleContext, alone: RankStalls, lost_ms: float) -> Evidence:
    """Return the evidence of an evaluation of the analysed rank, for which the other ranks wait."""
    name = f"rank {context.rank.rank}" if context.rank.rank is not None else f"device {context.rank.device}"
    return Evidence(
        Advice(
            f"Evaluation takes {name} {in_words(alone.mean_ms)} in {alone}, while the other ranks wait",
            EVALUATE_ON_ALL,
            note="Not predicted: the profile does not show how often the run evaluates. Step marks (`sawtooth run`) show it.",
            risk="A batch metric must be averaged over all ranks.",
            changes=EVALUATION_CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        confidence="low",
        severity="warning" if context.share(lost_ms) >= WARNING_SHARE else "info",
        rows=[
            {"name": str(step.name), "start_ns": int(step.start_ns), "end_ns": int(step.end_ns)}
            for step in context.rank.counted.itertuples(index=False)
            if step.name in alone.steps
        ],
    )


def _explains(pauses: Pauses, extra_ms: list[float], steps: int) -> bool:
    """Return whether ``pauses`` explain the profiled steps that take ``extra_ms`` longer than the median."""
    as_long = all(min(pauses.ms) / PROFILED_FACTOR <= ms <= max(pauses.ms) * PROFILED_FACTOR for ms in extra_ms)
    as_rare = len(extra_ms) <= ceil(steps / pauses.every)
    return pauses.reason != "unknown" and as_long and as_rare


def _extra_gpu_work_ms(context: RuleContext, slow_ms: float) -> float:
    """Return the extra GPU work of the slow steps compared with the median step, in ms per counted step."""
    rank = context.rank
    if not len(context.work):
        return 0.0
    work_ms = context.work.groupby("step").apply(lambda rows: union(rows["start_ns"], rows["end_ns"]).total / 1e6)
    ms = rank.counted["step"].map(work_ms).fillna(0.0).to_numpy(float)
    slow = np.asarray(rank.device_step_ms) >= slow_ms
    return float(np.maximum(ms[slow] - np.median(ms), 0.0).sum() / max(len(ms), 1))


RULE = Rule(
    "periodic-stalls",
    measure,
    reads=TRACE_SOURCES | {"telemetry"},
    requires=("steps",),
    threshold=RARE_EVENTS,
)

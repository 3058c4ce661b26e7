"""Some steps take much longer than the others, or the loop pauses between them.

What it checks
    Pauses between training steps, by the loop's own step marks: those for a checkpoint, and those too rare to be part of the
    loop's normal work (evaluation is shown next to the step time). Then the counted steps of the profile: steps that take at
    least 1.5 times the median, unless an evaluation or a checkpoint explains them. An evaluation that only some ranks do, while
    the others wait for them, is reported as well.
Why it costs time
    Work that happens every N steps (logging, checkpoints, evaluation, garbage collection, a slow batch) adds to the average
    step.
What to do
    Evaluate on all ranks, each with a share of the data. Save in the background. Otherwise, look at the host's work in the slow
    steps. Do it less often, or in parallel with the loop. If the slow steps have more GPU
    work, look at the kernels that they add.
When it is wrong
    There are few profiled steps, so one slow step says little about how often it happens. The same is true for two pauses
    among all marked steps.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting
from sawtooth.analysis.findings.loops.evaluation import alone_longer, evaluates_in
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Predicted, Rule
from sawtooth.analysis.findings.policy import RARE_EVENTS
from sawtooth.analysis.findings.queries.copies import LOSES_MORE, SAVE_BESIDE, SAVE_LESS, checkpoint_copies
from sawtooth.analysis.findings.queries.loading import of_first_read
from sawtooth.analysis.findings.straggler_limits import stalls_in_few_steps
from sawtooth.analysis.intervals import union
from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.ranks.heatmap import Stalls
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_times, in_words, significant

SLOWER = 1.5  # Multiple of the median step. Clocks and batches change steps by less.
MIN_STEPS = 4  # Among three steps, any one can be the median.
SEVERE = 0.1  # Share of the mean step. From it on, the finding is a warning.
MOSTLY = 0.5  # Share of the slow steps' cost. From it on, waits for data explain the slow steps.

# The largest ratio of a pause in the profile to one outside it. Profiled host work takes up to twice as long.
PROFILED_FACTOR = 2.0
EVALUATE_ON_ALL = Action("Evaluate", "on all ranks, with a share of the data each", ", or less often.")
SHARED = "Predicted for an evaluation whose data the {world} ranks share. If the run evaluates less often, it gains up to the whole time."
AT_MOST = "The gain is at most this time: a checkpoint in the background still copies the state once."
NOT_IN_STEP = "Not part of the step time: without it, the run does more steps per hour."

UNKNOWN_ALONE = (
    "Not predicted: the other ranks wait in these steps, and the trace does not show what the additional work is for. An evaluation "
    "on one rank looks like this."
)

LOOK_THERE = Action(
    "Look",
    "at what the loop does during the pauses",
    ", such as writing a checkpoint, evaluating or loading data. Do it less often, or in parallel with the loop.",
)

SEE_HOST = Action(
    "Open",
    "the slow steps on the timeline and see what the host does there",
    ". Do this work less often, or in parallel with the loop.",
)
SEE_KERNELS = Action(
    "Open",
    "the slow steps on the timeline and see which kernels they add",
    ". This is normal for the optimizer's step after several micro-batches. An evaluation may be done less often.",
)
CHANGES = (
    CodeChange(
        "PyTorch",
        "if step % 10 == 0:\n    log(loss.item()); save()",
        "if step % 1000 == 0:\n    log(loss.item()); save()",
    ),
)


EVALUATING = (
    CodeChange(
        "PyTorch",
        "if rank == 0 and step % 100 == 0:\n    loss = evaluate(model, data)",
        "if step % 100 == 0:   # on every rank\n    share = torch.utils.data.Subset(data, range(rank, len(data), world_size))\n    loss = evaluate(model, share)\n    torch.distributed.all_reduce(loss)\n    loss /= world_size",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if pauses between steps cost a relevant share of the mean step.

    Without such pauses, slow steps of the profile may give a finding.
    """
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
        most = max(pauses, key=lambda pause: pause.ms_per_step)
        yield _on_some_ranks(context, most, step_ms) if most.ranks else _between_steps(context, most, step_ms)
    # In a loop with rounds, the first step of each round is longer because of the round's own work. The rule for late ranks
    # reports the stalls of one rank.
    elif context.rank.best.round is None and acting(context) is None and stalls_in_few_steps(context) is None:
        yield from _in_profile(context)


def _between_steps(context: RuleContext, pauses: Pauses, step_ms: float) -> Evidence:
    """Return a finding on pauses.

    A pause outside the step time does not lengthen a step. Without the pause, the run does more steps per hour.
    """
    is_checkpoint, share = pauses.reason == "checkpoint", pauses.share(step_ms)
    again = len(pauses.steps) > 1
    place = "" if is_checkpoint else f", before step{'s' if again else ''} {' and '.join(map(str, pauses.steps))}"
    beginning = "Writing a checkpoint takes the loop" if is_checkpoint else "The loop pauses between its steps for"
    return Evidence(
        Advice(
            f"{beginning} {pauses.long}, {pauses.often}{place}: {significant(100 * share, 2)} % of the time",
            SAVE_LESS if is_checkpoint else LOOK_THERE,
            note=_how_often(pauses, step_ms),
            risk=LOSES_MORE if is_checkpoint else "It depends on the cause.",
            changes=CHANGES,
        ),
        lost_ms=pauses.ms_per_step if pauses.in_step else None,
        confidence="medium" if is_checkpoint or pauses.period is not None else "low",
        severity="warning" if again and share >= SEVERE else "info",
        rows=[{"before step": step, "ms": ms} for step, ms in zip(pauses.steps, pauses.ms, strict=True)],
        samples_per_second_times=1 / (1 - share) if again and not pauses.in_step else None,
    )


def _on_some_ranks(context: RuleContext, pauses: Pauses, step_ms: float) -> Evidence:
    """Return a finding on an evaluation or a checkpoint of some ranks, for which the other ranks wait."""
    one = pauses.ranks[0] if len(pauses.ranks) == 1 else None
    ranks = f"rank {one}" if one is not None else f"ranks {', '.join(map(str, pauses.ranks))}"
    is_checkpoint, world = pauses.reason == "checkpoint", max(len({rank.rank for rank in context.run.ranks}), 2)
    what = "Writing a checkpoint" if is_checkpoint else "Evaluation"
    spread = pauses.ms_per_step * (1 - len(pauses.ranks) / world)
    shared = Predicted(step_ms - spread, (max(step_ms - pauses.ms_per_step, 0.0), step_ms - spread / 2))
    frequency = f"Seen {in_times(len(pauses.steps))} in {pauses.among:,} marked steps."
    return Evidence(
        Advice(
            f"{what} takes {ranks} {in_words(pauses.mean_ms)}, {pauses.often}, while the other ranks wait: {in_words(pauses.ms_per_step)} per step on average",
            SAVE_LESS if is_checkpoint else EVALUATE_ON_ALL,
            note=f"{frequency} {NOT_IN_STEP if not pauses.in_step else AT_MOST if is_checkpoint else SHARED.format(world=world)}",
            risk=LOSES_MORE if is_checkpoint else "A batch metric must be averaged over all ranks.",
            changes=(SAVE_BESIDE,) if is_checkpoint else EVALUATING,
        ),
        lost_ms=pauses.ms_per_step if pauses.in_step else None,
        predicted=shared if pauses.in_step and not is_checkpoint else None,
        confidence="high" if pauses.period is not None else "medium",
        severity=None if pauses.in_step else "warning" if pauses.share(step_ms) >= SEVERE else "info",
        rows=[{"before step": step, "ms": ms} for step, ms in zip(pauses.steps, pauses.ms, strict=True)],
        samples_per_second_times=None if pauses.in_step else 1 / (1 - pauses.share(step_ms)),
    )


def _how_often(pauses: Pauses, step_ms: float) -> str:
    """Return in words how often pauses come and how certain that is.

    The text also says if they are not part of the step.
    """
    apart = f"Not part of the step time of {in_words(step_ms)}. Without the pauses, a step takes the same time, but the run does more steps per hour."
    frequency = f"Seen {in_times(len(pauses.steps))} in {pauses.among:,} marked steps"
    frequency_note = "their frequency is not known more precisely"
    if pauses.period is not None:
        mean = in_words(pauses.mean_ms / pauses.period)
        frequency_note = f"about once every {pauses.period:,.0f} steps, {mean} per step on average"
    return " ".join([*([] if pauses.in_step else [apart]), f"{frequency}: {frequency_note}."])


def _in_profile(context: RuleContext) -> Iterator[Evidence]:
    times = sorted(context.rank.device_step_ms)
    if len(times) < MIN_STEPS:
        return
    median = float(np.median(times))
    slow = [ms for ms in times if ms >= SLOWER * median]
    recorded_ms = sum(ms - median for ms in slow) / len(times)
    lost = context.of_run(recorded_ms)
    if not slow or len(slow) * 2 >= len(times) or context.is_trifle(lost):
        return
    if any(_explains(pauses, [ms - median for ms in slow], len(times)) for pauses in context.rank.best.pauses):
        return
    waits = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.cause == "data_wait")
    if waits >= MOSTLY * recorded_ms and of_first_read(context):
        return  # In later epochs, the data that these steps wait for is in memory.
    rows = context.rank.counted.assign(ms=context.rank.device_step_ms).nlargest(5, "ms")
    of_gpu = _more_work_ms(context, SLOWER * median) >= MOSTLY * recorded_ms
    alone = alone_longer(context)
    if alone is not None and evaluates_in(context, alone.steps):
        yield _evaluation_in_profile(context, alone, lost)
        return
    yield Evidence(
        Advice(
            f"Some profiled steps {'have more GPU work' if of_gpu else 'are slow'}: {len(slow)} of {len(times)} take{'s' if len(slow) == 1 else ''} up to {in_words(times[-1])}, the others {in_words(median)} ({in_words(lost)} per step on average)",
            SEE_KERNELS if of_gpu else SEE_HOST,
            note=UNKNOWN_ALONE
            if of_gpu and alone is not None
            else "Not predicted: the cause of each slow step has its own rule.",
            risk="It depends on the cause.",
            changes=() if of_gpu else CHANGES,
        ),
        lost_ms=lost,
        cost_ms=lost,
        confidence="low",
        severity="warning" if context.share(lost) >= SEVERE and not of_gpu else "info",
        rows=[
            {"name": str(r.name), "start_ns": int(r.start_ns), "end_ns": int(r.end_ns), "ms": float(r.ms)}
            for r in rows.itertuples(index=False)
        ],
    )


def _evaluation_in_profile(context: RuleContext, alone: Stalls, lost: float) -> Evidence:
    """Return a finding on an evaluation of the analysed rank in profiled steps.

    The other ranks wait for it.
    """
    name = f"rank {context.rank.rank}" if context.rank.rank is not None else f"device {context.rank.device}"
    return Evidence(
        Advice(
            f"Evaluation takes {name} {in_words(alone.mean_ms)} in {alone}, while the other ranks wait",
            EVALUATE_ON_ALL,
            note="Not predicted: the profile does not show how often the run evaluates. Step marks (`sawtooth run`) show it.",
            risk="A batch metric must be averaged over all ranks.",
            changes=EVALUATING,
        ),
        lost_ms=lost,
        cost_ms=lost,
        confidence="low",
        severity="warning" if context.share(lost) >= SEVERE else "info",
        rows=[
            {"name": str(step.name), "start_ns": int(step.start_ns), "end_ns": int(step.end_ns)}
            for step in context.rank.counted.itertuples(index=False)
            if step.name in alone.steps
        ],
    )


def _explains(pauses: Pauses, longer_ms: list[float], steps: int) -> bool:
    """Return whether ``pauses`` explain the profiled steps that are longer by ``longer_ms``."""
    as_long = all(min(pauses.ms) / PROFILED_FACTOR <= ms <= max(pauses.ms) * PROFILED_FACTOR for ms in longer_ms)
    return pauses.reason != "unknown" and as_long and len(longer_ms) <= ceil(steps / pauses.every)


def _more_work_ms(context: RuleContext, slow_ms: float) -> float:
    """Return by how much more GPU work the slow steps have than the median step, in ms per counted step."""
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
    reads=OF_TRACE | {"telemetry"},
    requires=("steps",),
    threshold=RARE_EVENTS,
)

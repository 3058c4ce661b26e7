"""The stages of a pipeline wait for each other longer than necessary.

What it checks
    The stages of a pipeline, its microbatches and the GPU work of each stage per step. From these come the time to fill and
    drain the pipeline, and the time in which the other stages wait for the slowest one.
Why it costs time
    Stages have no work while the first microbatch travels to the last stage and the last gradient travels back. With p equal
    stages and m microbatches, this is (p - 1) / (m + p - 1) of the step. A stage with more work than the others delays them
    once for each microbatch.
What to do
    Use more microbatches per step, up to four for each stage, if the host can launch them. Each microbatch launches the same
    number of kernels, even if it is small. If the host is too slow, reduce launches first. If smaller microbatches would take
    longer than the filling saves, use more of the same size, in a larger batch. Move layers from the slowest stage to the
    others. Or use an interleaved or zero-bubble schedule.
When it is wrong
    Libraries choose other kernels for smaller microbatches than expected. The kernel-time model predicts them from the
    slowest rank's stage.
References
    https://docs.pytorch.org/docs/stable/distributed.pipelining.html
    https://arxiv.org/abs/1811.06965
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.batch.step import kernels_at
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Predicted, Rule
from sawtooth.analysis.findings.policy import CHOICE
from sawtooth.analysis.ranks.pipeline import shortest_ms
from sawtooth.analysis.replay.edits import ScaledOps, WithoutWaits
from sawtooth.analysis.run.job import Pipeline
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MICROBATCHES_PER_STAGE = 4  # From this number on, the bubble is small (Huang et al., GPipe).

CHANGES = (
    CodeChange(
        "PyTorch",
        "schedule = ScheduleGPipe(stage, n_microbatches=2)",
        "schedule = Schedule1F1B(stage, n_microbatches=8)   # fewer activations are kept, so more microbatches fit",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if more microbatches or equal stages would make the pipeline's step much shorter.

    Also yield one if only the host prevents this.
    """
    communication = context.run.communication
    pipeline = communication.schedule if communication is not None else None
    if communication is None or pipeline is None or context.step_ms is None:
        return
    stages, micro = len(pipeline.stages), pipeline.microbatches
    host_ms = _host_ms(context)
    microbatches, gains_ms, for_gpu_ms = _more_microbatches(context, pipeline, host_ms)
    even_ms = _even_stages_ms(pipeline, host_ms)
    host_forbids = context.share(max(gains_ms, even_ms)) < CHOICE.share
    if host_forbids and context.share(for_gpu_ms) < CHOICE.share:
        yield from _larger_batch(context, pipeline, host_ms)
        return
    title = _fill_title(pipeline)
    if host_forbids:
        action = Action(
            "Reduce",
            "the host's launches",
            " first (torch.compile, CUDA graphs). Then cut the batch into more microbatches: the host launches all kernels for each.",
        )
        note = f"No gain is predicted: the host takes {in_words(host_ms)} to launch {micro} microbatches, and this time grows with their number."
    elif gains_ms >= even_ms:
        action = Action(
            "Cut",
            "the batch into $amount microbatches",
            f"{', four for each stage' if microbatches == MICROBATCHES_PER_STAGE * stages else ''}.",
            amount=microbatches,
        )
        note = f"Predicted from the stages' kernels, each launched for {microbatches} smaller microbatches instead of {micro}, and the host's time to launch them."
    else:
        slowest = pipeline.stage_ms.index(max(pipeline.stage_ms))
        mean_ms = sum(pipeline.stage_ms) / stages
        title = f"Stage {slowest} of the pipeline works for {in_words(pipeline.stage_ms[slowest])} of each step, and the stages on average for {in_words(mean_ms)}"
        action = Action(
            "Move", f"layers from stage {slowest} to the others", ": its work determines the step time of all stages."
        )
        note = "Predicted from the stages' kernels, as if their work were equal."
    gaps = context.gap_evidence("comm_wait", "comm_transfer", "unattributed")
    yield Evidence(
        Advice(
            title,
            action,
            note=note,
            risk="More microbatches keep more activations, unless backward passes begin early (1F1B).",
            changes=CHANGES,
        ),
        lost_ms=pipeline.fill_ms + even_ms,
        cost_ms=max(gains_ms, even_ms, for_gpu_ms if host_forbids else 0.0),
        severity="info" if host_forbids else None,
        rows=[
            *(
                {"stage": stage, "works_ms_per_step": ms, "ranks": len(pipeline.stages[stage])}
                for stage, ms in enumerate(pipeline.stage_ms)
            ),
            *gaps,
        ],
        predicted=None if host_forbids else Predicted(context.step_ms - max(gains_ms, even_ms)),
    )


def _larger_batch(context: RuleContext, pipeline: Pipeline, host_ms: float) -> Iterator[Evidence]:
    """Yield a finding if more microbatches of the present size would train many more samples per second."""
    stages, micro = len(pipeline.stages), pipeline.microbatches
    times = MICROBATCHES_PER_STAGE * stages / micro
    works_ms = shortest_ms([times * ms for ms in pipeline.stage_ms], MICROBATCHES_PER_STAGE * stages * pipeline.chunks)
    rate = times * pipeline.step_ms / (max(works_ms, times * host_ms) + pipeline.rest_ms)
    if times <= 1 or rate < 1 + CHOICE.share:
        return
    yield Evidence(
        Advice(
            _fill_title(pipeline),
            Action(
                "Raise",
                "the batch to $amount microbatches of this size",
                ": smaller microbatches of the same batch would cost more time than they save.",
                amount=MICROBATCHES_PER_STAGE * stages,
            ),
            note="Predicted from the stages' kernels: a longer step also fills and drains the pipeline only once.",
            risk="A larger batch changes the optimization. More microbatches keep more activations, unless backward passes begin early (1F1B).",
            changes=CHANGES,
        ),
        severity="info",
        rows=context.gap_evidence("comm_wait", "comm_transfer", "unattributed"),
        samples_per_second_times=rate,
        cost_ms=pipeline.fill_ms,
    )


def _fill_title(pipeline: Pipeline) -> str:
    """Return how long the pipeline fills and drains, as a finding's title."""
    return f"{pipeline.microbatches} microbatches on {len(pipeline.stages)} stages: the pipeline fills and drains for {in_words(pipeline.fill_ms)} of each step"


def _more_microbatches(context: RuleContext, pipeline: Pipeline, host_ms: float) -> tuple[int, float, float]:
    """Return the best number of microbatches, its gain per step, and the gain without launch time, ms.

    The last value is for MICROBATCHES_PER_STAGE microbatches per stage.
    """
    micro, now_ms = pipeline.microbatches, shortest_ms(pipeline.stage_ms, pipeline.turns)
    max_microbatches = max(MICROBATCHES_PER_STAGE * len(pipeline.stages), micro)
    for_gpu_ms = {}
    for m in (*range(2 * micro, max_microbatches, micro), max_microbatches):
        longer = _work_factor(context, pipeline, m / micro)
        for_gpu_ms[m] = now_ms - shortest_ms([ms * longer for ms in pipeline.stage_ms], m * pipeline.chunks)
    gains_ms = {m: min(ms, max(now_ms, host_ms) - host_ms * m / micro) for m, ms in for_gpu_ms.items()}
    best = max(gains_ms, key=lambda m: gains_ms[m])
    return best, max(gains_ms[best], 0.0), for_gpu_ms[max_microbatches]


def _work_factor(context: RuleContext, pipeline: Pipeline, times: float) -> float:
    """Return how many times as long a stage works with ``times`` as many microbatches.

    Each kernel is then launched more often, for less work, and the GPU waits for its dispatch each time. Work after the
    backward pass does not change. The rank in ``context`` represents all stages.
    """
    work = context.work
    if work.empty:
        return 1.0
    stays = (work["category"] == "communication").to_numpy() | _after_backward(context)
    now_ns, new_ns = work["dur_ns"].to_numpy(float), np.array(kernels_at(context, work, 1 / times).dur_ns, float)
    added_ms = np.where(stays, 0.0, times * new_ns - now_ns).sum() / context.work_steps / 1e6
    dispatch_ms = context.lost_ms("launch_latency") * float((~stays).mean()) * (times - 1)
    return 1 + max(float(added_ms) + dispatch_ms, 0.0) / max(pipeline.stage_ms)


def _after_backward(context: RuleContext) -> NDArray[np.bool_]:
    """Return which operations of ``context.work`` run after the last one of their step's backward pass.

    They run once per step, for any number of microbatches.
    """
    last = np.full(context.work_steps, -1)
    step = context.work["step"].rank(method="dense").to_numpy(np.int64) - 1
    backward = context.launches.in_backward()
    np.maximum.at(last, step[backward], backward)
    return (last[step] >= 0) & (np.arange(len(step)) > last[step])


def _even_stages_ms(pipeline: Pipeline, host_ms: float) -> float:
    """Return the gain per step of stages with equal work, ms.

    Layers that leave a stage take their launches with them.
    """
    now_ms = max(shortest_ms(pipeline.stage_ms, pipeline.turns), host_ms)
    launched_ms = host_ms * sum(pipeline.stage_ms) / len(pipeline.stage_ms) / max(pipeline.stage_ms)
    return max(min(pipeline.imbalance_ms, now_ms - launched_ms), 0.0)


def _host_ms(context: RuleContext) -> float:
    """Return the host's time to launch a step if the GPU never delays it, ms; 0 if not known."""
    if context.whatif is None:
        return 0.0
    ops = tuple(context.whatif.problem.ops.op.tolist())
    return context.predict_ms([ScaledOps(ops, 0.0), WithoutWaits()]) or 0.0


RULE = Rule(
    "pipeline-bubble",
    measure,
    reads=OF_TRACE | {"shapes", "gpu_peaks", "other_ranks"},
    explains=Explains(topics=frozenset({"schedule"}), sets=("micro_batches", "schedule")),
    requires=("steps", "ranks"),
    threshold=CHOICE,
)

"""The stages of a pipeline wait for each other longer than necessary.

What it checks
    The stages of a pipeline, the microbatches per step and the GPU work of each stage per step. They determine the time to fill
    and drain the pipeline, and the time in which other stages wait for the slowest stage.
Why it costs time
    Stages have no work while the first microbatch travels to the last stage and the last gradient travels back. With p equal
    stages and m microbatches, this time is (p - 1) / (m + p - 1) of the step. A stage with more work delays the other stages once
    for each microbatch.
What to do
    Use more microbatches per step, up to four for each stage, if the host can launch them. Each microbatch launches the same
    number of kernels, even if it is small. If the host is too slow, reduce launches first. If smaller microbatches would cost
    more time than they save, use a larger batch with more microbatches of the present size. If the host takes much longer to
    launch the microbatches than the GPUs work, use fewer, larger microbatches. Move layers from the slowest stage to the others.
    Or use an interleaved or zero-bubble schedule.
When it is wrong
    For smaller microbatches, libraries choose other kernels than the kernel-time model expects. The model uses only the kernels
    of the slowest rank's stage.
References
    https://docs.pytorch.org/docs/stable/distributed.pipelining.html
    https://arxiv.org/abs/1811.06965
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.batch.microbatches import (
    MICROBATCHES_PER_STAGE,
    FewerMicrobatches,
    HostTime,
    even_stages_gain_ms,
    fewer_microbatches,
    host_time,
    more_microbatches,
)
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, PredictedStep, Rule
from sawtooth.analysis.findings.policy import CHOICE_WITH_COSTS
from sawtooth.analysis.ranks.pipeline import shortest_ms
from sawtooth.analysis.run.job import Pipeline
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "schedule = ScheduleGPipe(stage, n_microbatches=2)",
        "schedule = Schedule1F1B(stage, n_microbatches=8)   # fewer activations are kept, so more microbatches fit",
    ),
)
FEWER_CHANGES = (
    CodeChange(
        "PyTorch",
        "schedule = Schedule1F1B(stage, n_microbatches=16)",
        "schedule = Schedule1F1B(stage, n_microbatches=4)   # of the same batch, so each microbatch is four times as large",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if another number of microbatches, or equal stages, make the step much shorter.

    If only the host prevents this, yield an info finding.
    """
    communication = context.run.communication
    pipeline = communication.schedule if communication is not None else None
    if communication is None or pipeline is None or context.step_ms is None:
        return
    stages, now_count = len(pipeline.stages), pipeline.microbatches
    host = host_time(context)
    microbatches, gain_ms, gain_without_host_ms = more_microbatches(context, pipeline, host)
    even_gain_ms = even_stages_gain_ms(pipeline, host.ms)
    fewer_microbatches_step = fewer_microbatches(context, pipeline, host)
    fewer_gain_ms = 0.0 if fewer_microbatches_step is None else context.step_ms - fewer_microbatches_step.high_ms
    if (
        fewer_microbatches_step is not None
        and fewer_gain_ms > max(gain_ms, even_gain_ms)
        and context.share(fewer_gain_ms) >= CHOICE_WITH_COSTS.share
    ):
        yield _evidence_for_larger_microbatches(context, pipeline, host, fewer_microbatches_step)
        if context.share(even_gain_ms) < CHOICE_WITH_COSTS.share:
            return
        gain_ms = 0.0
    host_forbids = context.share(max(gain_ms, even_gain_ms)) < CHOICE_WITH_COSTS.share
    if host_forbids and context.share(gain_without_host_ms) < CHOICE_WITH_COSTS.share:
        yield from _evidence_for_larger_batch(context, pipeline, host)
        return
    title = _fill_title(pipeline)
    if host_forbids:
        action = Action(
            "Reduce",
            "the host's launches",
            " first (torch.compile, CUDA graphs). Then cut the batch into more microbatches: the host launches all kernels for each.",
        )
        note = f"No gain is predicted: the host takes {in_words(host.ms)} to launch {now_count} microbatches, and this time grows with their number."
    elif gain_ms >= even_gain_ms:
        action = Action(
            "Cut",
            "the batch into $amount microbatches",
            f"{', four for each stage' if microbatches == MICROBATCHES_PER_STAGE * stages else ''}.",
            amount=microbatches,
        )
        note = f"Predicted from the host's launches and the stages' kernels, for {microbatches} smaller microbatches instead of {now_count}."
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
        lost_ms=pipeline.fill_ms + even_gain_ms,
        cost_ms=max(gain_ms, even_gain_ms, gain_without_host_ms if host_forbids else 0.0),
        severity="info" if host_forbids else None,
        rows=[
            *(
                {"stage": stage, "works_ms_per_step": ms, "ranks": len(pipeline.stages[stage])}
                for stage, ms in enumerate(pipeline.stage_ms)
            ),
            *gaps,
        ],
        predicted=None if host_forbids else PredictedStep(context.step_ms - max(gain_ms, even_gain_ms)),
    )


def _evidence_for_larger_microbatches(
    context: RuleContext, pipeline: Pipeline, host: HostTime, fewer: FewerMicrobatches
) -> Evidence:
    """Return the evidence that the host launches the microbatches for longer than the GPUs compute."""
    micro, gain_ms = pipeline.microbatches, (context.step_ms or 0.0) - fewer.step_ms
    return Evidence(
        Advice(
            f"{micro} microbatches on {len(pipeline.stages)} stages: the host takes {in_words(host.ms)} to launch a step, "
            f"and the GPUs need {in_words(shortest_ms(pipeline.stage_ms, pipeline.turns))}",
            Action(
                "Cut",
                "the batch into $amount larger microbatches",
                ": the host launches every kernel once for each microbatch.",
                amount=fewer.microbatches,
            ),
            note=f"Predicted from the host's launches and the stages' kernels, for {fewer.microbatches} larger microbatches instead of {micro}.",
            risk="Larger microbatches keep larger activations, and the pipeline fills and drains for longer.",
            changes=FEWER_CHANGES,
        ),
        lost_ms=gain_ms,
        cost_ms=gain_ms,
        rows=context.gap_evidence("launch_bound", "python_host"),
        predicted=PredictedStep(fewer.step_ms, (fewer.low_ms, fewer.high_ms)),
    )


def _evidence_for_larger_batch(context: RuleContext, pipeline: Pipeline, host: HostTime) -> Iterator[Evidence]:
    """Yield a finding if more microbatches of the present size would train many more samples per second."""
    stages, micro = len(pipeline.stages), pipeline.microbatches
    times = MICROBATCHES_PER_STAGE * stages / micro
    work_ms = shortest_ms([times * ms for ms in pipeline.stage_ms], MICROBATCHES_PER_STAGE * stages * pipeline.chunks)
    rate = times * pipeline.step_ms / (max(work_ms, host.ms_for(times)) + pipeline.rest_ms)
    if times <= 1 or rate < 1 + CHOICE_WITH_COSTS.share:
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
            note="Predicted from the stages' kernels. A step with more microbatches also fills and drains the pipeline only once.",
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


RULE = Rule(
    "pipeline-bubble",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks", "other_ranks"},
    explains=Explains(topics=frozenset({"schedule"}), sets=("micro_batches", "schedule")),
    requires=("steps", "ranks"),
    threshold=CHOICE_WITH_COSTS,
)

"""A pipeline's stages wait for each other longer than they need.

What it checks
    The stages of a pipeline, its microbatches and what each stage's GPU works in a step: the time in which the pipeline fills and drains, and the
    time in which the others wait for the slowest stage.
Why it costs time
    While the first microbatch travels to the last stage and the last gradient back, stages have nothing to do: of p equal stages and m microbatches
    (p - 1) / (m + p - 1) of the step. A stage that works longer than the others holds them up once for each microbatch.
What to do
    More microbatches a step, at least four for each stage; layers moved from the slowest stage to the others; an interleaved or zero-bubble schedule.
When it is wrong
    Smaller microbatches use the GPU less well and launch as many kernels each, which the prediction leaves out: measure the kernels of the smaller ones.
References
    https://docs.pytorch.org/docs/stable/distributed.pipelining.html
    https://arxiv.org/abs/1811.06965
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.rule import Rule, RuleContext, in_words
from sawtooth.analysis.ranks.pipeline import shortest_ms
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = (
    0.10  # of the step: with four microbatches a stage the bubble is below a fifth, and hardly anybody halves it again
)
EACH_STAGE = 4  # microbatches for each stage: from there on the bubble is small (Huang et al., GPipe)

CHANGES = (
    CodeChange(
        "PyTorch",
        "schedule = ScheduleGPipe(stage, n_microbatches=2)",
        "schedule = Schedule1F1B(stage, n_microbatches=8)   # fewer activations are kept, so more microbatches fit",
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding where more microbatches, or stages of equal work, would make the pipeline's step much shorter."""
    communication = context.run.communication
    pipeline = communication.schedule if communication is not None else None
    if communication is None or pipeline is None or context.step_ms is None:
        return
    stages = len(pipeline.stages)
    now_ms = shortest_ms(pipeline.stage_ms, pipeline.turns)
    more = EACH_STAGE * stages
    gains_ms = now_ms - shortest_ms(pipeline.stage_ms, max(more, pipeline.microbatches) * pipeline.chunks)
    even_ms = pipeline.imbalance_ms
    largest = max(gains_ms, even_ms)
    if context.share(largest) < WORTH_NAMING:
        return
    slowest = max(range(stages), key=lambda stage: pipeline.stage_ms[stage])
    mean_ms = sum(pipeline.stage_ms) / stages
    if gains_ms >= even_ms:
        title = f"{pipeline.microbatches} microbatches on {stages} stages: the pipeline fills and drains for {in_words(pipeline.fill_ms)} of each step"
        fix = f"Cut the batch into {more} microbatches, four for each stage."
        note = f"Predicted from the stages' kernels for {more} microbatches that take as long together as the {pipeline.microbatches} do now."
    else:
        title = f"Stage {slowest} of the pipeline works {in_words(pipeline.stage_ms[slowest])} of each step, the mean stage {in_words(mean_ms)}"
        fix = f"Move layers from stage {slowest} to the others: its work sets the pace of all."
        note = "Predicted from the stages' kernels, were their work equal."
    where = context.gap_evidence("comm_wait", "comm_transfer", "unattributed")
    yield context.finding(
        RULE.slug,
        title,
        fix,
        ceiling_ms=pipeline.fill_ms + even_ms,
        predicted_ms=context.step_ms - largest,
        confidence="medium",
        note=note,
        risk="Smaller microbatches use the GPU less well; more of them keep more activations, unless backward passes begin early (1F1B).",
        changes=CHANGES,
        evidence=[
            *(
                {"stage": stage, "works_ms_per_step": ms, "ranks": len(pipeline.stages[stage])}
                for stage, ms in enumerate(pipeline.stage_ms)
            ),
            *where,
        ],
    )


RULE = Rule("pipeline-bubble", ("steps", "ranks"), check, Explains())

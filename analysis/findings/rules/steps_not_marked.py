"""The trace does not mark its steps.

What it checks
    How this analysis found the steps.
Why it costs time
    All values per step (time, MFU, gains) depend on where steps begin and end. Inferred steps can be wrong.
What to do
    Call ``profiler.step()`` after each step, with a schedule. Under Nsight Systems, mark each step with an NVTX range.
When it is wrong
    The trace has only one step on purpose, so it needs no marks.
References
    https://docs.pytorch.org/docs/stable/profiler.html#torch.profiler.schedule
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.run.model import Action, CodeChange, Explains

MARKED = ("profiler_step",)
FOUND_BY = {"annotation": "taken from annotations", "inferred": "inferred from the host's repeated work"}

CHANGES = (
    CodeChange(
        "PyTorch",
        "with profile() as prof:\n    for batch in loader:\n        train(batch)",
        "with profile(schedule=schedule(wait=5, warmup=3, active=5)) as prof:\n    for batch in loader:\n        train(batch)\n        prof.step()",
    ),
    CodeChange(
        "Lightning",
        'Trainer(profiler="pytorch")',
        "Trainer(profiler=PyTorchProfiler(schedule=schedule(wait=5, warmup=3, active=5)))",
    ),
    CodeChange(
        "Transformers",
        "trainer.train()",
        "class Step(TrainerCallback):\n    def on_step_end(self, *a, **k): prof.step()\ntrainer.add_callback(Step())\ntrainer.train()",
    ),
)


# vLLM names each iteration after its requests: execute_context_0(0)_generation_32(32), in some builds execute_32_context_….
OF_SERVER = r"^execute_(\d+_)?context_\d+.*_generation_\d+"

NSIGHT_CHANGES = (
    CodeChange(
        "PyTorch",
        "for batch in loader:\n    train(batch)",
        'for batch in loader:\n    with torch.cuda.nvtx.range("step"):\n        train(batch)',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if neither the profiler nor the run itself marked the steps."""
    nsight, none = context.rank.trace.by_nsight, context.rank.step_source == "none"
    annotated = nsight and context.rank.step_source == "annotation"
    marked_by_run = context.rank.best.source == "marks" and not none
    if context.rank.step_source in MARKED or annotated or marked_by_run:
        return
    serves = bool(context.recording.named(OF_SERVER))
    if serves and not none:
        return  # The server calls the profiler, and its iterations were found.
    yield Evidence(
        Advice(
            "The trace marks no steps, so nothing can be said per step"
            if none
            else f"The trace marks no profiler steps: {len(context.rank.counted)} were {FOUND_BY[context.rank.step_source]}",
            Action("Mark", "each step with an NVTX range")
            if nsight
            else Action("Profile", "more iterations of the server", ", so that steps can be found by what they repeat.")
            if serves
            else Action("Call", "profiler.step() after each step", ", with a schedule."),
            note="This does not change the step time.",
            risk="None.",
            changes=NSIGHT_CHANGES if nsight else () if serves else CHANGES,
        ),
        confidence="high",
        severity="warning" if none else "info",
        rows=[{"step_source": context.rank.step_source}],
    )


RULE = Rule(
    "steps-not-marked",
    measure,
    reads=frozenset({"gpu_records", "launch_links", "host_records"}),
    explains=Explains(topics=frozenset({"marks_steps"})),
)

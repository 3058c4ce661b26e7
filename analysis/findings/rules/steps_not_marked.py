"""The trace does not mark its steps.

What it checks
    How this analysis found the steps.
Why it costs time
    All values per step (time, MFU, gains) depend on where steps begin and end. Steps that the analysis infers can be wrong.
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

PROFILER_MARKS = ("profiler_step",)
SOURCES_IN_WORDS = {"annotation": "taken from annotations", "inferred": "inferred from the host's repeated work"}

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
SERVER_ITERATIONS = r"^execute_(\d+_)?context_\d+.*_generation_\d+"

NSIGHT_CHANGES = (
    CodeChange(
        "PyTorch",
        "for batch in loader:\n    train(batch)",
        'for batch in loader:\n    with torch.cuda.nvtx.range("step"):\n        train(batch)',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if neither the profiler nor the run itself marked the steps."""
    step_source, by_nsight = context.rank.step_source, context.rank.trace.by_nsight
    no_steps = step_source == "none"
    marked_by_nvtx = by_nsight and step_source == "annotation"
    marked_by_run = context.rank.best.source == "marks" and not no_steps
    if step_source in PROFILER_MARKS or marked_by_nvtx or marked_by_run:
        return
    is_server = bool(context.recording.named(SERVER_ITERATIONS))
    if is_server and not no_steps:
        return  # The analysis found the server's iterations.
    if by_nsight:
        action = Action("Mark", "each step with an NVTX range")
    elif is_server:
        action = Action(
            "Profile", "more iterations of the server", ", so that the analysis finds steps by their repeated work."
        )
    else:
        action = Action("Call", "profiler.step() after each step", ", with a schedule.")
    yield Evidence(
        Advice(
            "The trace marks no steps, so no value per step is known"
            if no_steps
            else f"The trace marks no profiler steps, so {len(context.rank.counted)} were {SOURCES_IN_WORDS[step_source]}",
            action,
            note="This does not change the step time.",
            risk="None.",
            changes=NSIGHT_CHANGES if by_nsight else () if is_server else CHANGES,
        ),
        confidence="high",
        severity="warning" if no_steps else "info",
        rows=[{"step_source": step_source}],
    )


RULE = Rule(
    "steps-not-marked",
    measure,
    reads=frozenset({"gpu_records", "launch_links", "host_records"}),
    explains=Explains(topics=frozenset({"marks_steps"})),
)

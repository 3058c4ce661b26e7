"""The profile found the loader's queue full, the run finds it empty.

What it checks
    A trace with loader workers whose step, without the profiler, is shorter than telemetry says of the run outside the profile.
Why it costs time
    Workers fill the prefetch queue while the profiler starts. The few profiled steps drain it and never wait; the run does, step after step.
What to do
    Give the loader more workers, or make a sample cheaper. Then profile more steps than the queue holds (workers × prefetch_factor).
When it is wrong
    Other rare work outside the profiled steps (checkpoints, evaluation) leaves the same mark in telemetry.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.loading import keeps_up
from sawtooth.analysis.findings.rule import Rule, RuleContext, in_words
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

LOADER = r"_MultiProcessingDataLoaderIter"

CHANGES = (
    CodeChange(
        "PyTorch",
        "DataLoader(dataset, batch_size=64, num_workers=2)",
        "DataLoader(dataset, batch_size=64, num_workers=12, pin_memory=True, persistent_workers=True, prefetch_factor=4)",
    ),
    CodeChange(
        "Lightning", "DataLoader(dataset, num_workers=2)", "DataLoader(dataset, num_workers=12, persistent_workers=True)"
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_num_workers=2)",
        "TrainingArguments(dataloader_num_workers=12, dataloader_persistent_workers=True)",
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when telemetry contradicts the profile of a run with loader workers."""
    profile_fit, estimate = context.rank.represents, context.rank.best.estimate.value
    workers = context.recording.rows("SELECT 1 FROM names WHERE regexp_matches(name, ?) LIMIT 1", [LOADER])
    if profile_fit is None or profile_fit.represents is not False or not profile_fit.step_ns or estimate is None or not workers:
        return
    run = profile_fit.step_ns / 1e6
    if keeps_up(context.run.manifest.facts, context.step_ms):
        return  # the workers were timed: what the run waits for is something else
    yield context.finding(
        RULE.slug,
        f"The profile hides a wait: its steps take {in_words(estimate)}, telemetry says about {in_words(run)} for the run. The loader's full queue is the likeliest reason",
        "Give the loader more workers, or make a sample cheaper; then profile more steps than workers × prefetch_factor.",
        ceiling_ms=max(run - estimate, 0.0),
        predicted_ms=estimate,
        severity="critical",
        confidence="medium",
        note="The step as profiled, in which the loader kept up. From telemetry the run's step is good to 10 %.",
        risk="More workers need more host memory and CPU cores; where storage is the limit they only queue there.",
        changes=CHANGES,
        evidence=[
            {"telemetry": profile_fit.sentence},
            *(
                {"name": str(s.name), "start_ns": int(s.start_ns), "end_ns": int(s.end_ns)}
                for s in context.rank.counted.itertuples()
            ),
        ],
    )


RULE = Rule("prefetch-queue-hid-the-loader", ("steps", "telemetry"), check, Explains(("data_wait",), hidden=True))

"""The profiler makes the run slower than it is.

What it checks
    The step as profiled against the run's own: by its stopwatch, its step marks or telemetry, else estimated without the profiler.
Why it costs time
    Recording costs the host a microsecond or more an event. A run that waits for its host shows it in full.
What to do
    Read the run's own step. For a truer profile: no stacks, no shapes, fewer active steps; or give the stopwatch's step time with the run.
When it is wrong
    Where nothing but an estimate tells the run's step, and it is wrong.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import DISTORTED
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "profile(with_stack=True, record_shapes=True, profile_memory=True)",
        "profile()   # add one at a time, when you need it",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield information where the profiled step is far longer than the run's."""
    best = context.rank.best
    profiled, run = best.profiled.value, best.ms
    if profiled is None or not run:
        return
    guessed = STEP_SOURCES[best.source].of_trace
    yield Evidence(
        Advice(
            f"Under the profiler a step takes {in_words(profiled)}, without it about {in_words(run)}"
            + ("" if guessed else f" by {STEP_SOURCES[best.source].name}"),
            Action(
                "Read", "the estimate", ", not the profile, for what a step costs. Give the run its stopwatch time to be sure."
            )
            if guessed
            else Action("Read", "the run's own step", ", not the profile, for what a step costs."),
            note="Nobody runs under the profiler, so there is nothing to gain.",
            risk="Without shapes MFU cannot be counted; without stacks no source lines are named.",
            changes=CHANGES,
        ),
        confidence="medium" if guessed else "high",
        share=profiled / run,
        severity="info",
        rows=[{"profiled_ms": profiled, "run_ms": run}],
    )


RULE = Rule(
    "profiler-distorts",
    measure,
    reads=OF_TRACE | {"telemetry"},
    requires=("steps",),
    bar=DISTORTED,
)

"""The profiler makes the run slower than it is.

What it checks
    The step as profiled against the step estimated without the profiler.
Why it costs time
    Recording costs the host a microsecond or more an event. A run that waits for its host shows it in full.
What to do
    Read the estimate. For a truer profile: no stacks, no shapes, fewer active steps; or give the stopwatch's step time with the run.
When it is wrong
    Where the estimate is missing or the stopwatch disagrees.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.rule import Rule, RuleContext, in_words
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 1.3  # times the estimate: below it the shape of the profile still holds

CHANGES = (
    CodeChange(
        "PyTorch",
        "profile(with_stack=True, record_shapes=True, profile_memory=True)",
        "profile()   # add one at a time, when you need it",
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield information where the profiled step is far longer than the estimate."""
    profiled, estimate = context.rank.best.profiled.value, context.rank.best.estimate.value
    if profiled is None or estimate is None or profiled < WORTH_NAMING * estimate:
        return
    yield context.finding(
        RULE.slug,
        f"Under the profiler a step takes {in_words(profiled)}, without it about {in_words(estimate)}",
        "Read the estimate, not the profile, for what a step costs. Give the run its stopwatch time to be sure.",
        ceiling_ms=None,
        severity="info",
        confidence="medium",
        note="Nobody runs under the profiler, so there is nothing to gain.",
        risk="Without shapes MFU cannot be counted; without stacks no source lines are named.",
        changes=CHANGES,
        evidence=[{"profiled_ms": profiled, "estimated_ms": estimate}],
    )


RULE = Rule("profiler-distorts", ("steps",), check, Explains())

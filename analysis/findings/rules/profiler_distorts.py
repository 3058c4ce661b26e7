"""Profiled steps take longer than the steps of the run.

What it checks
    The ratio of the profiled step to the run's step, if that is an estimate without the profiler's cost. With a stopwatch,
    step marks or telemetry the run's step is measured, so there is nothing to do.
Why it costs time
    Recording takes the host at least a microsecond per event. If the run waits for its host, recording makes the step longer.
What to do
    Use the estimate. For a more accurate profile, record without stacks and shapes and with fewer active steps. Or enter a
    step time that you measured.
When it is wrong
    The estimate is wrong.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
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
    """Yield an info finding if the run's step is an estimate and the profiled step is much longer.

    A measured step needs no confirmation: the report gives both times.
    """
    best = context.rank.best
    profiled_ms, run_ms = best.profiled.value, best.ms
    if profiled_ms is None or not run_ms or not STEP_SOURCES[best.source].of_trace:
        return
    yield Evidence(
        Advice(
            f"Under the profiler, a step takes {in_words(profiled_ms)}; without it, about {in_words(run_ms)}",
            Action(
                "Use", "the estimate", " as the step time, not the profile. To confirm it, enter a step time that you measured."
            ),
            note="The training does not normally run under the profiler, so there is nothing to gain.",
            risk="Without shapes, MFU is not known. Without stacks, findings name no source lines.",
            changes=CHANGES,
        ),
        confidence="medium",
        share=profiled_ms / run_ms,
        severity="info",
        rows=[{"profiled_ms": profiled_ms, "run_ms": run_ms}],
    )


RULE = Rule(
    "profiler-distorts",
    measure,
    reads=TRACE_SOURCES | {"telemetry"},
    requires=("steps",),
    threshold=DISTORTED,
)

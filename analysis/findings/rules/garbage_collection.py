"""Python collects garbage inside the step.

What it checks
    Calls of ``gc.collect`` in the counted steps of a trace with Python stacks.
Why it costs time
    A full collection visits every Python object. Meanwhile the host launches nothing.
What to do
    Do not call ``gc.collect`` in the loop. Use ``gc.freeze()`` after start-up, and collect every thousand steps if memory needs it.
When it is wrong
    Python collects automatically. Such collections are not recorded as calls, so the trace shows only pauses.
References
    https://docs.python.org/3/library/gc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import python_events
from sawtooth.analysis.findings.recorded.source_lines import dominant_line
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_times, in_words

COLLECTION_FRAMES = r"built-in function collect>|gc\.py|: gc_collect"

CHANGES = (
    CodeChange(
        "PyTorch",
        "gc.collect()                    # every step",
        "gc.collect(); gc.freeze()       # once, after the first steps\ngc.disable()                    # then gc.collect() every 1,000 steps",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if collections take a relevant share of the step."""
    collections = python_events(context, COLLECTION_FRAMES)
    collections_ms = context.scaled_to_run(collections.ms_per_step)
    if context.is_negligible(collections_ms):
        return
    lost_ms = min(collections_ms, context.lost_ms("python_host"))
    line = dominant_line(context.recording, collections.frame)
    called = f", called at {line}" if line else ""
    yield Evidence(
        Advice(
            f"Python collects garbage {in_times(collections.count_per_step)} per step: {in_words(collections_ms)} of the host's time{called}",
            Action(
                "Take",
                "gc.collect() out of the loop",
                "; freeze objects that live for the whole run, and collect every thousand steps.",
            ),
            note="Predicted by the replay without this Python time of the host.",
            risk="Reference cycles keep their GPU tensors in memory for longer.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=collections_ms,
        edits=[WithoutHostCause("python_host")] if lost_ms else [],
        confidence="high",
        rows=collections.rows(),
        spans=collections.spans(),
    )


RULE = Rule(
    "garbage-collection",
    measure,
    reads=TRACE_SOURCES | {"python_stacks"},
    explains=Explains(("python_host",), called="Python's garbage collection"),
    requires=("steps", "stacks"),
    threshold=ONE_LINE_TO_CHANGE,
)

"""Python collects garbage inside the step.

What it checks
    Calls of ``gc.collect`` in the counted steps of a trace with Python stacks.
Why it costs time
    A full collection visits every Python object. Meanwhile the host launches nothing.
What to do
    Do not call it in the loop. Use ``gc.freeze()`` after start-up, and collect every thousand steps if memory needs it.
When it is wrong
    The collections are automatic. They are not recorded as calls, so the trace shows only a pause.
References
    https://docs.python.org/3/library/gc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.calls import frames
from sawtooth.analysis.findings.recorded.source_lines import most_from
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_times, in_words

FRAME = r"built-in function collect>|gc\.py|: gc_collect"

CHANGES = (
    CodeChange(
        "PyTorch",
        "gc.collect()                    # every step",
        "gc.collect(); gc.freeze()       # once, after the first steps\ngc.disable()                    # then gc.collect() every 1,000 steps",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if collections take a relevant share of the step."""
    collections = frames(context, FRAME)
    ms = context.of_run(collections.ms)
    if context.is_trifle(ms):
        return
    lost = min(ms, context.lost_ms("python_host"))
    line = most_from(context.recording, collections.frame)
    called = f", called at {line}" if line else ""
    yield Evidence(
        Advice(
            f"Python collects garbage {in_times(collections.count)} per step: {in_words(ms)} of the host's time{called}",
            Action(
                "Take",
                "gc.collect() out of the loop",
                "; freeze objects that live for the whole run, and collect every thousand steps.",
            ),
            note="Predicted by the replay without this Python time of the host.",
            risk="Reference cycles keep their GPU tensors in memory for longer.",
            changes=CHANGES,
        ),
        lost_ms=lost,
        cost_ms=ms,
        edits=[WithoutHostCause("python_host")] if lost else [],
        confidence="high",
        rows=collections.rows(),
        places=collections.places(),
    )


RULE = Rule(
    "garbage-collection",
    measure,
    reads=OF_TRACE | {"python_stacks"},
    explains=Explains(("python_host",), called="Python's garbage collection"),
    requires=("steps", "stacks"),
    threshold=ONE_LINE,
)

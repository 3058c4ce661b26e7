"""Python delays the launches for long stretches.

What it checks
    Stretches of at least 300 µs in which the launch queue is empty and the host is outside any operator (cause
    ``python_host``). In the backward pass and the optimizer the limit is 1 ms, because a slow host takes half a millisecond
    for PyTorch's own Python there.
Why it costs time
    The GPU has no work during this host work (preprocessing, logging, garbage collection, waiting for a lock).
What to do
    Move the work to the loader's workers or to another thread, do it every N steps, or do it on the GPU. Profile with
    ``with_stack=True`` to see the line.
When it is wrong
    The stretches are very short. They are the normal cost of launching from Python and belong to the launch-bound rule.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting
from sawtooth.analysis.findings.loops.long_python_gaps import long_python_gaps
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Judgement, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.copies import checkpoint_copies
from sawtooth.analysis.findings.recorded.source_lines import heaviest_function
from sawtooth.analysis.findings.straggler_limits import stalls_in_few_steps
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

ONCE = {1: "once", 2: "twice"}
MOST = 0.8  # Share of the time in long stretches. Steps that contain the rest only have the usual short stretches.
STALL_PART = 0.5  # Share of the longest stretch. In a rank that stalls in a few steps, such a stretch is a stall.
NOTABLE = 0.25  # Of the mean per step. One long stretch in ten steps leaves 40 % of the mean to equal stretches in the others.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for x, y in loader:\n    x = augment(x)              # on the host, between operators",
        "class Augmented(Dataset):\n    def __init__(self, base):\n        self.base = base\n\n    def __len__(self):\n        return len(self.base)\n\n    def __getitem__(self, i):   # in the workers\n        return augment(self.base[i])\n\nloader = DataLoader(Augmented(dataset), …)",
    ),
    CodeChange("PyTorch", "with profile(...) as prof:", "with profile(..., with_stack=True) as prof:   # names the line"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if long stretches of Python cost a relevant share of the step."""
    if len(checkpoint_copies(context).frame):
        return  # The checkpoint rule reports the Python time of checkpoints.
    rows = long_python_gaps(context)
    acts = acting(context)
    if acts is not None:  # The environment computes there.
        rows = [row for row in rows if row[0] not in acts.calls]
    calls = tuple(sorted({int(call) for call, _, _ in rows}))
    steps = max(len(context.rank.counted), 1)
    if rows and stalls_in_few_steps(context, "python_host") is not None:
        rows = shorter_than_stalls(rows)  # The rule for late ranks reports the stalls.
    # Recording makes calls longer, but hardly a stretch without calls. So the run's Python time belongs to these stretches
    # first.
    lost = min(sum(int(ns) for _, ns, _ in rows) / steps / 1e6, context.lost_ms("python_host"))
    if context.is_trifle(lost):
        return
    few = steps_with_most(rows)
    all_over = len(calls) < steps or 2 * few > steps or in_most_steps(rows, steps)
    frequency = how_often(len(calls), steps) if all_over else f"in {few} of {steps} steps"
    line = heaviest_function(context.recording, context.rank.device, "python_host")
    named = f", {line}" if line else ""
    title = (
        f"Python on the host delays the launches {frequency}: {{cost}} per step{named.replace('{', '{{').replace('}', '}}')}"
    )

    def reworded(advice: Advice, judgement: Judgement) -> Advice:
        """State the full delay of the launches, a part of which other GPU work may hide."""
        return replace(advice, title=title.format(cost=in_words(max(judgement.gain_ms if judgement.gains else 0.0, lost))))

    yield Evidence(
        Advice(
            title.format(cost=in_words(lost)),
            Action(
                "Move",
                "the Python work between launches out of the step",
                ": to the loader's workers, to another thread, or to every N-th step."
                + (
                    ""
                    if named
                    else " Record once with `sawtooth run --stacks` (with_stack=True) to see the line. Typical causes are gc.collect(), logging and checkpoints."
                ),
            ),
            note="Predicted by the replay without this Python time. At best, the CPU operators in these stretches disappear too.",
            risk="Work moved to a thread still shares Python's lock with the launches.",
            changes=CHANGES,
        ),
        lost_ms=lost,
        cost_ms=lost,
        edits=[
            WithoutHostCause("python_host", calls=calls),
            *(WithoutHostCause(cause, 1.0, calls, keep_at_least=0.0) for cause in ("host_compute", "launch_bound")),
        ],
        confidence="high" if named else "medium",
        rows=context.gap_evidence("python_host", before=calls),
        reword=reworded,
    )


def shorter_than_stalls(rows: Sequence[tuple[int, int, int | None]]) -> list[tuple[int, int, int | None]]:
    """Return ``rows`` (call, ns, step) without stalls.

    A stall is at least STALL_PART as long as the longest stretch.
    """
    longest = max(ns for _, ns, _ in rows)
    return [row for row in rows if row[1] < STALL_PART * longest]


def steps_with_most(rows: Sequence[tuple[int, int, int | None]]) -> int:
    """Return the smallest number of steps that contain MOST of the time of ``rows`` (call, ns, step)."""
    longest = list(accumulate(sorted(_time_in_steps(rows), reverse=True)))
    return 1 + sum(ns < MOST * longest[-1] for ns in longest)


def in_most_steps(rows: Sequence[tuple[int, int, int | None]], steps: int) -> bool:
    """Return whether more than half of the steps have at least NOTABLE of the mean time of ``rows``."""
    in_step = _time_in_steps(rows)
    return 2 * sum(ns * steps >= NOTABLE * sum(in_step) for ns in in_step) > steps


def _time_in_steps(rows: Sequence[tuple[int, int, int | None]]) -> list[int]:
    in_step: dict[int | None, int] = {}
    for _, ns, step in rows:
        in_step[step] = in_step.get(step, 0) + int(ns)
    return list(in_step.values())


def how_often(times: int, steps: int) -> str:
    """Return the words for ``times`` in ``steps``, such as "twice in 7 steps" or "once per step"."""
    each, period = (times, f"in {steps} steps") if times < steps else (round(times / steps), "per step")
    return f"{ONCE.get(each, f'{each} times')} {period}"


RULE = Rule(
    "python-between-operators",
    measure,
    reads=OF_TRACE,
    explains=Explains(("python_host",), topics=frozenset({"host_pace"})),
    requires=("steps",),
    threshold=FEW_LINES,
)

"""Python delays the launches for long stretches.

What it checks
    Stretches of at least 300 µs in which the launch queue is empty and the host is outside any operator (cause
    ``python_host``). In the backward pass and the optimizer the limit is 1 ms, because PyTorch's own Python code there may take
    half a millisecond on a slow host.
Why it costs time
    The GPU has no work while Python runs other code (preprocessing, logging, garbage collection, waiting for a lock).
What to do
    Move the work to the loader's workers or to another thread, do it every N steps, or do it on the GPU. Profile with
    ``with_stack=True`` to see the line.
When it is wrong
    The environment of a policy, or code that decides what to launch next, takes the time. This work cannot move.
References
    https://docs.pytorch.org/docs/stable/profiler.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting_passes
from sawtooth.analysis.findings.loops.long_python_gaps import calls_in_gaps, long_python_gaps
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Judgement, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.copies import checkpoint_copies
from sawtooth.analysis.findings.recorded.source_lines import heaviest_function
from sawtooth.analysis.findings.straggler_limits import stalls_in_few_steps
from sawtooth.analysis.replay.edits import WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words, times_and_period

TIMES_IN_WORDS = {1: "once", 2: "twice"}
# Share of the time in long stretches. Steps are counted as slow until they have this share of the time.
LONG_STRETCH_SHARE = 0.8
MIN_STALL_SHARE = 0.5  # Of the longest gap. In a rank that stalls in a few steps, such a gap is a stall.
MIN_MEAN_SHARE = 0.25  # Of the mean time per step. A step with less time is not counted as slow.

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
    acts = acting_passes(context)
    if acts is not None:  # The environment computes in these calls.
        rows = [row for row in rows if row[0] not in acts.calls]
    calls = tuple(sorted({int(call) for call, _, _ in rows}))
    steps = max(len(context.rank.counted), 1)
    if rows and stalls_in_few_steps(context, "python_host") is not None:
        rows = shorter_than_stalls(rows)  # The rule straggling-rank reports the stalls.
    # Recording makes calls longer, but hardly the stretches without calls. So the run's Python time is assigned to these
    # stretches first.
    lost_ms = min(sum(int(ns) for _, ns, _ in rows) / steps / 1e6, context.lost_ms("python_host"))
    if context.is_negligible(lost_ms):
        return
    slow_steps = steps_with_most(rows)
    is_frequent = len(calls) < steps or 2 * slow_steps > steps or in_most_steps(rows, steps)
    frequency = how_often(len(calls), steps) if is_frequent else f"in {slow_steps} of {steps} steps"
    function = heaviest_function(context.recording, context.rank.device, "python_host")
    place = f", {function}".replace("{", "{{").replace("}", "}}") if function else ""
    title = f"Python on the host delays the launches {frequency}: {{cost}} per step{place}"

    def reworded(advice: Advice, judgement: Judgement) -> Advice:
        """Put the gain or the loss into the title, whichever is larger.

        Other GPU work may hide a part of the delay.
        """
        gain_ms = judgement.gain_ms if judgement.gains else 0.0
        return replace(advice, title=title.format(cost=in_words(max(gain_ms, lost_ms))))

    removed = calls_in_gaps(context, calls)
    yield Evidence(
        Advice(
            title.format(cost=in_words(lost_ms)),
            Action(
                "Move",
                "the Python work between launches out of the step",
                ": to the loader's workers, to another thread, or to every N-th step."
                + (
                    ""
                    if function
                    else " Record once with `sawtooth run --stacks` (with_stack=True) to see the line. Typical causes are gc.collect(), logging and checkpoints."
                ),
            ),
            note="Predicted by the replay without this Python time. For the lower end of the interval, the CPU operators in these stretches are removed too.",
            risk="In another thread, the work still shares Python's lock with the launches.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=[
            WithoutHostCause("python_host", calls=removed),
            *(WithoutHostCause(cause, 1.0, removed, keep_at_least=0.0) for cause in ("host_compute", "launch_bound")),
        ],
        confidence="high" if function else "medium",
        rows=context.gap_evidence("python_host", before=calls),
        reword=reworded,
    )


def shorter_than_stalls(rows: Sequence[tuple[int, int, int | None]]) -> list[tuple[int, int, int | None]]:
    """Return the ``rows`` (call, ns, step) with less than MIN_STALL_SHARE of the longest gap."""
    longest_ns = max(ns for _, ns, _ in rows)
    return [row for row in rows if row[1] < MIN_STALL_SHARE * longest_ns]


def steps_with_most(rows: Sequence[tuple[int, int, int | None]]) -> int:
    """Return the smallest number of steps with LONG_STRETCH_SHARE of the time of ``rows``."""
    summed_ns = list(accumulate(sorted(_ns_by_step(rows), reverse=True)))
    return 1 + sum(ns < LONG_STRETCH_SHARE * summed_ns[-1] for ns in summed_ns)


def in_most_steps(rows: Sequence[tuple[int, int, int | None]], steps: int) -> bool:
    """Return whether most ``steps`` have at least MIN_MEAN_SHARE of the mean time of ``rows``."""
    step_ns = _ns_by_step(rows)
    return 2 * sum(ns * steps >= MIN_MEAN_SHARE * sum(step_ns) for ns in step_ns) > steps


def _ns_by_step(rows: Sequence[tuple[int, int, int | None]]) -> list[int]:
    ns_by_step: dict[int | None, int] = {}
    for _, ns, step in rows:
        ns_by_step[step] = ns_by_step.get(step, 0) + int(ns)
    return list(ns_by_step.values())


def how_often(times: int, steps: int) -> str:
    """Return the words for ``times`` in ``steps``, such as "twice in 7 steps" or "once per step"."""
    count, period = times_and_period(times, steps)
    return f"{TIMES_IN_WORDS.get(count, f'{count} times')} {period}"


RULE = Rule(
    "python-between-operators",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("python_host",), topics=frozenset({"host_pace"})),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)

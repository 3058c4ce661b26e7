"""Memory grows with every step.

What it checks
    Whether the memory allocated at the end of each profiled step grows by about the same amount each time, by the allocator's
    events.
Why it costs time
    The program keeps references to tensors: a loss stored with its graph, outputs in a list, a cache without a limit. In the
    end the run fails.
What to do
    Append ``loss.item()`` or ``loss.detach()`` instead of ``loss``. Empty lists of outputs, and limit caches.
When it is wrong
    The growth ends after more steps than the profile has, as with a cache that fills up.
References
    https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.allocator import DETACHED, RETAINED_TENSORS
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.run.model import Action, Explains
from sawtooth.analysis.units import in_memory

MIN_STEPS = 3  # Three steps show two increases. A single increase may have any reason.
MIN_BYTES = 1_000_000  # Per step. Slower growth takes about a day to fill a GPU.
MAX_RATIO = 2.0  # Largest growth of a step ÷ smallest. A leak loses about the same amount in each step.
LONG_RUN_STEPS = 100_000  # Usual length of a run. If memory suffices for more steps, the growth is no danger.


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the allocated memory grows by about the same amount with each step."""
    rows = context.recording.rows(
        "SELECT s.step, s.host_start_ns, s.host_end_ns, arg_max(a.total_allocated_bytes, a.time_ns) FROM allocations a JOIN steps s "
        "ON s.device = a.device AND a.time_ns >= s.host_start_ns AND a.time_ns < s.host_end_ns WHERE a.device_type <> 0 AND a.device = ? "
        "AND a.total_allocated_bytes IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1",
        [context.rank.device],
    )
    allocated_bytes = [int(allocated) for *_, allocated in rows]
    growth = [after - before for before, after in pairwise(allocated_bytes)]
    if len(rows) < MIN_STEPS or min(growth) < MIN_BYTES or max(growth) > MAX_RATIO * min(growth):
        return
    growth_per_step = sum(growth) / len(growth)  # In bytes.
    memory = memory_use(context)
    steps_left = (memory[1] - memory[0]) / growth_per_step if memory else None
    end_clause = f" and is full after about {float(f'{steps_left:.1e}'):,.0f} more steps" if steps_left is not None else ""
    ends_the_run = steps_left is None or steps_left < LONG_RUN_STEPS
    yield Evidence(
        Advice(
            f"Memory grows by {in_memory(growth_per_step)} with every step{end_clause}",
            Action("Find", *RETAINED_TENSORS),
            note="This does not change the step time, but the run ends when memory is full.",
            risk="None, unless other code reads the stored values.",
            changes=DETACHED,
        ),
        confidence="high" if len(rows) > MIN_STEPS else "medium",
        severity="critical" if ends_the_run else "warning",
        rows=[{"step": int(r[0]), "start_ns": int(r[1]), "end_ns": int(r[2]), "allocated_bytes": int(r[3])} for r in rows],
        ends_the_run=ends_the_run,
    )


RULE = Rule(
    "memory-creep",
    measure,
    reads=frozenset({"steps", "allocations"}),
    explains=Explains(topics=frozenset({"memory"})),
    requires=("steps", "memory"),
)

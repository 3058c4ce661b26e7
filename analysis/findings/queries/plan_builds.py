"""Operators that build a plan on the host for each new input shape."""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import CountedEvents

# An operator takes the host 5 to 50 µs, or about 200 µs while recorded. cuDNN takes about 1 ms to plan a convolution, and 45 ms to
# compile the kernels of an attention.
MIN_PLAN_NS = 500_000
MIN_PLAN_FACTOR = 10  # Time of an operator for a new shape ÷ median for known shapes.
# An operator's own time excludes the operators and driver calls inside this operator. The query leaves out operators that wait for
# the GPU, because they search algorithms, and operators without launches, because they compute on the host.
_BUILDS = """
WITH long AS (
    SELECT o.cpu_op_id, o.name_id, o.dur_ns FROM cpu_ops o
    WHERE o.kind = 'op' AND o.signature_id IS NOT NULL AND o.dur_ns >= $least AND o.cpu_op_id IN (SELECT cpu_op_id FROM gpu_ops)),
called AS (
    SELECT parent_id AS cpu_op_id, sum(dur_ns) AS ns FROM cpu_ops WHERE parent_id IN (SELECT cpu_op_id FROM long) GROUP BY 1
    UNION ALL SELECT cpu_op_id, sum(dur_ns) FROM runtime_calls WHERE cpu_op_id IN (SELECT cpu_op_id FROM long) GROUP BY 1),
slow AS (
    SELECT l.cpu_op_id, l.name_id, l.dur_ns - coalesce(sum(c.ns), 0) AS own_ns FROM long l LEFT JOIN called c USING (cpu_op_id)
    WHERE l.cpu_op_id NOT IN (SELECT cpu_op_id FROM named_runtime_calls WHERE cpu_op_id IS NOT NULL AND contains(name, 'Synchronize'))
    GROUP BY l.cpu_op_id, l.name_id, l.dur_ns HAVING l.dur_ns - coalesce(sum(c.ns), 0) >= $least),
calls_by_shape AS (
    SELECT o.*, s.input_dims, row_number() OVER (PARTITION BY o.name_id, s.input_dims, s.input_types ORDER BY o.cpu_op_id) = 1 AS first
    FROM cpu_ops o JOIN signatures s USING (signature_id) WHERE o.name_id IN (SELECT name_id FROM slow)),
known_shapes AS (SELECT name_id, median(dur_ns) AS median_ns FROM calls_by_shape WHERE NOT first GROUP BY 1)
SELECT c.cpu_op_id AS id, n.name, c.start_ns, c.start_ns + c.dur_ns AS end_ns, t.step, c.input_dims, s.own_ns, s.own_ns - k.median_ns AS excess_ns
FROM slow s JOIN calls_by_shape c ON c.cpu_op_id = s.cpu_op_id AND c.first JOIN known_shapes k ON k.name_id = c.name_id JOIN names n ON n.name_id = c.name_id
JOIN steps t ON t.device = $device AND t.counted AND c.start_ns >= t.host_start_ns AND c.start_ns < t.host_end_ns
WHERE s.own_ns >= $factor * k.median_ns ORDER BY id"""
MIN_COMPILATION_SHARE = 0.05  # Share of the step. With more compilation, the steps do not represent later steps.
AFTER_LOADING = "Not predicted: code was compiled or loaded in these steps, unlike in later ones. Profile after the warm-up."


@once
def plan_builds(context: RuleContext) -> CountedEvents:
    """Return the counted steps' operators that are much slower for a new shape than for known shapes.

    Adds the columns input_dims, own_ns (the operator's own time) and excess_ns (own_ns minus the median for known shapes). An
    operator that is slow in only one step is left out, because it may build plans only once in a run.
    """
    parameters = {"device": context.rank.device, "least": MIN_PLAN_NS, "factor": MIN_PLAN_FACTOR}
    builds = CountedEvents(context.recording.frame(_BUILDS, parameters), len(context.rank.counted))
    steps = builds.frame.groupby("name")["step"].nunique()
    return builds.where(builds.frame["name"].isin(steps[steps > 1].index))


def excess_ms(context: RuleContext, builds: CountedEvents) -> float:
    """Return the ms per step that ``builds`` take in addition to the operators' time for known shapes.

    The recorded time counts in full, because the profiler slows operators and launches, but not plan building. If the run's
    step is shorter than the step estimated from the profile, the time is shortened by the same factor.
    """
    ms = float(builds.frame["excess_ns"].sum()) / 1e6 / max(builds.steps, 1)
    best = context.rank.best
    profiled_ms, run_ms = best.estimate.value or best.profiled.value, context.step_ms
    return ms * min(run_ms / profiled_ms, 1.0) if profiled_ms and run_ms else ms


def loads_code(context: RuleContext) -> bool:
    """Return whether the steps compile or load so much code that they do not represent later steps."""
    return context.share(context.lost_ms("compilation")) >= MIN_COMPILATION_SHARE

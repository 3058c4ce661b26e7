"""Operators that build a plan on the host for each new input shape."""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import CountedEvents

# Without its launches, an operator takes the host 5 to 50 µs, or about 200 µs while recorded. cuDNN takes about 1 ms to plan
# a convolution, and 45 ms for attention, for which it compiles kernels.
AT_LEAST_NS = 500_000
TIMES_USUAL = 10  # An operator builds a plan if it takes this multiple of its time for a known shape.
# An operator's own time excludes the operators and driver calls inside it: these load code, allocate, wait, or have their own
# timing. An operator that waits for the GPU searches algorithms, which is another problem. Operators without launches compute
# on the host and do not count.
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
met AS (
    SELECT o.*, s.input_dims, row_number() OVER (PARTITION BY o.name_id, s.input_dims, s.input_types ORDER BY o.cpu_op_id) = 1 AS first
    FROM cpu_ops o JOIN signatures s USING (signature_id) WHERE o.name_id IN (SELECT name_id FROM slow)),
usual AS (SELECT name_id, median(dur_ns) AS usual_ns FROM met WHERE NOT first GROUP BY 1)
SELECT m.cpu_op_id AS id, n.name, m.start_ns, m.start_ns + m.dur_ns AS end_ns, t.step, m.input_dims, s.own_ns, s.own_ns - u.usual_ns AS excess_ns
FROM slow s JOIN met m ON m.cpu_op_id = s.cpu_op_id AND m.first JOIN usual u ON u.name_id = m.name_id JOIN names n ON n.name_id = m.name_id
JOIN steps t ON t.device = $device AND t.counted AND m.start_ns >= t.host_start_ns AND m.start_ns < t.host_end_ns
WHERE s.own_ns >= $times * u.usual_ns ORDER BY id"""
LOADS_CODE = 0.05  # If compilation takes at least this share of the step, the steps do not represent later ones.
AFTER_LOADING = "Not predicted: code was compiled or loaded in these steps, unlike in later ones. Profile after the warm-up."


@once
def plan_builds(context: RuleContext) -> CountedEvents:
    """Return the operators of the counted steps that are much slower than usual for a new shape.

    Adds the columns input_dims, own_ns (the operator's own time) and excess_ns (beyond the usual time). An operator that is slow
    in only one step is left out, because it may build plans only once in a run.
    """
    parameters = {"device": context.rank.device, "least": AT_LEAST_NS, "times": TIMES_USUAL}
    builds = CountedEvents(context.recording.frame(_BUILDS, parameters), len(context.rank.counted))
    steps = builds.frame.groupby("name")["step"].nunique()
    return builds.where(builds.frame["name"].isin(steps[steps > 1].index))


def excess_ms(context: RuleContext, builds: CountedEvents) -> float:
    """Return by how many ms ``builds`` take longer than usual in the run's step.

    The recorded time is used, because the profiler slows operators and launches, but not plan building. If the run's step is
    shorter than the profiled step without the profiler's cost, the time is reduced by the same factor.
    """
    ms = float(builds.frame["excess_ns"].sum()) / 1e6 / max(builds.steps, 1)
    best = context.rank.best
    profiled, run = best.estimate.value or best.profiled.value, context.step_ms
    return ms * min(run / profiled, 1.0) if profiled and run else ms


def loads_code(context: RuleContext) -> bool:
    """Return whether the steps compile or load so much code that they do not represent later steps."""
    return context.share(context.lost_ms("compilation")) >= LOADS_CODE

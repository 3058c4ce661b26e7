"""Examples of SQL queries on a recording, as starting points for users."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A question and its SQL; ``kind`` is the kind of recording: ``trace`` or ``telemetry``."""

    kind: str
    title: str
    sql: str


EXAMPLES: tuple[Example, ...] = (
    Example(
        "trace",
        "Which kernels take the time?",
        """SELECT n.name, k.category, k.tensor_cores, k.launches,
    round(k.total_ns / 1e6, 3) AS total_ms, round(k.median_ns / 1e3, 1) AS median_us
FROM kernels k JOIN names n USING (name_id)
ORDER BY k.total_ns DESC LIMIT 50""",
    ),
    Example(
        "trace",
        "What does the GPU wait for?",
        """SELECT owner, cause, count(*) AS gaps,
    round(sum(end_ns - start_ns) / 1e6, 3) AS total_ms, round(max(end_ns - start_ns) / 1e3, 1) AS longest_us
FROM gaps
GROUP BY ALL ORDER BY total_ms DESC""",
    ),
    Example(
        "trace",
        "What ran in the first counted step?",
        """WITH first_step AS (SELECT * FROM steps WHERE counted ORDER BY device, step LIMIT 1)
SELECT round((g.start_ns - s.start_ns) / 1e3, 1) AS at_us, round(g.dur_ns / 1e3, 1) AS us, g.stream, g.kind, n.name
FROM first_step s
JOIN gpu_op_steps o ON o.step = s.step
JOIN gpu_ops g ON g.gpu_op_id = o.gpu_op_id AND g.device = s.device
JOIN names n USING (name_id)
ORDER BY g.start_ns""",
    ),
    Example(
        "trace",
        "Which operators launch the most, with which shapes?",
        """SELECT n.name, s.input_dims, o.calls, o.kernels, round(o.gpu_self_ns / 1e6, 3) AS gpu_ms, round(o.host_self_ns / 1e6, 3) AS host_ms
FROM operators o JOIN names n USING (name_id) LEFT JOIN signatures s USING (signature_id)
ORDER BY o.kernels DESC LIMIT 50""",
    ),
    Example(
        "trace",
        "How long do kernels queue before they start?",
        """SELECT n.name, count(*) AS launches, round(median(g.start_ns - c.start_ns - c.dur_ns) / 1e3, 1) AS median_queued_us
FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN names n ON n.name_id = g.name_id
GROUP BY ALL ORDER BY launches DESC LIMIT 50""",
    ),
    Example(
        "trace",
        "Which calls of the runtime take the host's time?",
        """SELECT n.name, count(*) AS calls, round(sum(c.dur_ns) / 1e6, 3) AS total_ms, round(max(c.dur_ns) / 1e3, 1) AS longest_us
FROM runtime_calls c JOIN names n USING (name_id)
GROUP BY ALL ORDER BY total_ms DESC""",
    ),
    Example(
        "telemetry",
        "Utilization and power, second by second",
        """SELECT device, (time_ns - (SELECT min(time_ns) FROM samples)) // 1_000_000_000 AS second,
    round(avg(util_pct), 1) AS util_pct, round(avg(power_w), 1) AS power_w, count(*) AS samples
FROM samples
GROUP BY ALL ORDER BY device, second""",
    ),
    Example("telemetry", "What kind of source is this?", "SUMMARIZE samples"),
)

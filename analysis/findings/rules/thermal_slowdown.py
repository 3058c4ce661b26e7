"""Heat or hardware holds the clocks down.

What it checks
    Times in which the driver gives heat, a power brake or a hardware slowdown as the reason for lower clocks.
Why it costs time
    Every kernel takes longer by as much as the clock is lower.
What to do
    Look at cooling, airflow and the server's power; move the job to another GPU and tell the operator.
When it is wrong
    A short band at the start of a run is ordinary.
References
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries.sampled import band_evidence, held_down
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.05  # of the sampled time: single bands are ordinary

CHANGES = (CodeChange("PyTorch", "nothing in the code", "nvidia-smi -q -d PERFORMANCE,TEMPERATURE   # what the driver says"),)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when clocks are held down by heat or hardware for WORTH_NAMING of the time."""
    bands, share = held_down(context, "heat", "hardware")
    if share < WORTH_NAMING:
        return
    clocks = [b.clock_sm_mhz for b in bands if b.clock_sm_mhz]
    mean = f" at {sum(clocks) / len(clocks):.0f} MHz" if clocks else ""
    yield context.finding(
        RULE.slug,
        f"{bands[0].reason.capitalize()} held the clocks down for {share:.0%} of the sampled time{mean}",
        "Look at cooling and power of the server, or move the job to another GPU.",
        ceiling_ms=None,
        severity="warning",
        confidence="high",
        note="Not predicted: which clock the GPU would reach otherwise is not recorded.",
        risk="None in the code.",
        changes=CHANGES,
        evidence=band_evidence(bands),
    )


RULE = Rule("thermal-slowdown", ("telemetry",), check, Explains(), reads=frozenset({"telemetry"}))

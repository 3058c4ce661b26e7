"""Heat or hardware reduces the clocks.

What it checks
    Times in which the driver gives heat, a power brake or a hardware slowdown as the reason for lower clocks.
Why it costs time
    Every kernel takes longer in proportion to the lower clock.
What to do
    Check cooling, airflow and the server's power. Move the job to another GPU and inform the operator.
When it is wrong
    The clocks are low only for a short time at the start of the run, which is normal.
References
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import THERMAL_THROTTLING
from sawtooth.analysis.findings.queries.telemetry import band_evidence, throttled_spans
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import percent

CHANGES = (CodeChange("PyTorch", "# nothing in the code", "nvidia-smi -q -d PERFORMANCE,TEMPERATURE   # what the driver says"),)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if heat or hardware reduces the clocks for a relevant share of the time."""
    spans, share = throttled_spans(context, "heat", "hardware")
    if not spans:
        return
    clocks_mhz = [span.clock_sm_mhz for span in spans if span.clock_sm_mhz]
    clock_clause = f" at {sum(clocks_mhz) / len(clocks_mhz):.0f} MHz" if clocks_mhz else ""
    yield Evidence(
        Advice(
            f"{spans[0].reason.capitalize()} lowered the clocks for {percent(share)} of the sampled time{clock_clause}",
            Action("Look", "at cooling and power of the server", ", or move the job to another GPU."),
            note="Not predicted: the recording does not show which clock the GPU would reach otherwise.",
            risk="None in the code.",
            changes=CHANGES,
        ),
        confidence="high",
        share=share,
        severity="warning",
        rows=band_evidence(spans),
    )


RULE = Rule(
    "thermal-slowdown",
    measure,
    reads=frozenset({"telemetry"}),
    requires=("telemetry",),
    threshold=THERMAL_THROTTLING,
)

"""The power limit reduces the clocks.

What it checks
    Times in which the driver gives the power cap as the reason for lower clocks.
Why it costs time
    At full clock, large matrix products draw more power than the limit allows, so the clock falls. This is normal, but the
    GPU cannot reach its peak then.
What to do
    Change nothing in the code. Raise the limit (nvidia-smi -pl) if the cooling and the server's operator allow it. Fewer
    unnecessary operations also reduce the power.
When it is wrong
    A GPU under full load always looks like this. The finding is information, not a fault.
References
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import POWER_THROTTLING
from sawtooth.analysis.findings.queries.telemetry import band_evidence, throttled_spans
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_mhz

CHANGES = (CodeChange("PyTorch", "# nothing in the code", "nvidia-smi -q -d POWER   # the limit and the draw"),)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if the power limit reduces the clocks for a relevant share of the time."""
    spans, share = throttled_spans(context, "power")
    if not spans or context.telemetry is None:
        return
    mean_mhz = context.telemetry.means.get("clock_sm_mhz")
    mean_clause = f"; in the steady part, the mean clock is {in_mhz(mean_mhz)}" if mean_mhz else ""
    yield Evidence(
        Advice(
            f"The power limit kept the clocks below their maximum for {100 * share:.0f} % of the sampled time{mean_clause}",
            Action(
                "Leave",
                "the clocks as they are",
                ". A busy GPU draws all the power that its limit allows, so this is not a fault. Compare MFU at the actual clock. A higher power limit would raise the clock.",
            ),
            note="Not predicted: the recording does not show how clocks follow a higher limit.",
            risk="A higher limit needs enough cooling.",
            changes=CHANGES,
        ),
        confidence="high",
        share=share,
        severity="info",
        rows=band_evidence(spans),
    )


RULE = Rule(
    "power-cap",
    measure,
    reads=frozenset({"telemetry"}),
    requires=("telemetry",),
    threshold=POWER_THROTTLING,
    explains=Explains(topics=frozenset({"power_limit"})),
)

"""The host reads memory back from swap while it trains.

What it checks
    Bytes read back from swap over the steady part of the telemetry.
Why it costs time
    A page that was swapped out costs a disk read where a memory access was meant: Python stops anywhere, for milliseconds.
What to do
    Fewer loader workers, each of which holds copies of the dataset's Python objects; keep those in arrays; smaller caches; no other programs.
When it is wrong
    When another program on the host swaps and the training process does not.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_bytes

WORTH_NAMING_BPS = 1e6  # 250 pages a second, each a wait of a tenth of a millisecond and more

CHANGES = (
    CodeChange(
        "PyTorch",
        "self.files = list_of_paths   # a Python list: every worker copies it",
        "self.files = np.array(list_of_paths)",
    ),
    CodeChange("PyTorch", "DataLoader(dataset, …, num_workers=32)", "DataLoader(dataset, …, num_workers=8)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding when a part that is worth naming_BPS come back from swap."""
    host = context.run.telemetry.host
    rate = host.means.get("swap_in_bps", 0.0) if host is not None else 0.0
    if host is None or rate < WORTH_NAMING_BPS:
        return
    used, total = host.means.get("ram_used_bytes", 0.0), host.means.get("ram_total_bytes", 0.0)
    yield Evidence(
        Advice(
            f"The host reads {in_bytes(rate)} a second back from swap: {in_bytes(used)} of its {in_bytes(total)} of memory are in use",
            Action(
                "Give",
                "the job more host memory",
                ", or let it use less: fewer loader workers, datasets in arrays instead of Python lists.",
            ),
            note="Not predicted: which waits are for swap is not recorded.",
            risk="Fewer workers may load too slowly: look at what the GPU waits for afterwards.",
            changes=CHANGES,
        ),
        severity="warning",
        rows=host.evidence("swap_in_bps", "swap_used_bytes", "ram_used_bytes"),
    )


RULE = Rule(
    "host-swaps",
    measure,
    reads=frozenset({"host_telemetry"}),
    requires=("host",),
)

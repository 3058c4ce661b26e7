"""The host reads memory back from swap during the training.

What it checks
    Bytes read back from swap in the steady part of the telemetry.
Why it costs time
    Access to a swapped page is a disk read instead of a memory access. Any line of Python may then take milliseconds.
What to do
    Use fewer loader workers, because each has its own copy of the dataset's Python objects. Store these objects in arrays, use
    smaller caches, and stop other programs.
When it is wrong
    Another program on the host swaps, and the training process does not.
References
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_bytes, in_memory

MIN_SWAP_BPS = 1e6  # About 250 pages of 4 KB per second. The host waits at least a tenth of a millisecond for each page.

CHANGES = (
    CodeChange(
        "PyTorch",
        "self.files = list_of_paths   # a Python list: every worker copies it",
        "self.files = np.array(list_of_paths)",
    ),
    CodeChange("PyTorch", "DataLoader(dataset, …, num_workers=32)", "DataLoader(dataset, …, num_workers=8)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if at least MIN_SWAP_BPS are read back from swap."""
    host = context.run.telemetry.host
    swap_in_bps = host.means.get("swap_in_bps", 0.0) if host is not None else 0.0
    if host is None or swap_in_bps < MIN_SWAP_BPS:
        return
    used_bytes, total_bytes = host.means.get("ram_used_bytes", 0.0), host.means.get("ram_total_bytes", 0.0)
    yield Evidence(
        Advice(
            f"The host reads {in_bytes(swap_in_bps)}/s back from swap: {in_memory(used_bytes)} of {in_memory(total_bytes)} of memory are in use",
            Action(
                "Give",
                "the job more host memory",
                ", or let it use less: fewer loader workers, datasets in arrays instead of Python lists.",
            ),
            note="Not predicted: the recording does not show which waits are for swap.",
            risk="Fewer workers may load too slowly: check afterwards whether the GPU waits for the loader.",
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

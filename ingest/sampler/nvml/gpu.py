"""State of one GPU in the sampler: its capabilities, the cost of its calls, and when they are due."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sawtooth.ingest.sampler.nvml.fields import Buffer, NvmlCall
from sawtooth.ingest.sampler.nvml.gpm import GpmReader, running_mean

NVML_SHARE = 0.005  # All NVML calls for one GPU may take this share of wall time, which is 0.5 ms in 100 ms.
RESERVED_SHARE = 0.3  # This part of NVML_SHARE is reserved for all calls except GPM, even if GPM is slow.
# One slow call may take this share of wall time, so that energy and buffers leave time for the other calls.
SLOW_SHARE = 0.0004
JITTER_NS = 5_000_000  # A tick may be early by this time.
RETRY_FIRST_NS, RETRY_LONGEST_NS = 10**9, 60 * 10**9  # First and longest wait between attempts to reopen a lost GPU or driver.


@dataclass
class ScheduledRead:
    """A source or buffer that worked when it was probed, with its cost and its next due time."""

    source: NvmlCall | Buffer
    due_ns: int = 0
    cost_ns: float = 0.0
    last_us: int = 0

    def record_cost(self, now_ns: int, cost_ns: int, period_factor: float) -> None:
        """Note the cost of a call, and set the time of the next call."""
        self.cost_ns = running_mean(self.cost_ns, cost_ns)
        self.due_ns = now_ns + int(self.period_ns(period_factor)) - JITTER_NS

    def period_ns(self, period_factor: float) -> float:
        """Return the time between calls."""
        nominal = max(self.source.period_s * 1e9, self.cost_ns / SLOW_SHARE if self.source.period_s >= 1 else 0)
        return min(nominal * period_factor, max(self.source.longest_period_s, self.source.period_s) * 1e9)


@dataclass
class SampledGpu:
    """One GPU or MIG instance.

    ``capabilities[column]`` has the ``source`` of the values. If the source is None, ``reason`` says why there are no values.
    """

    device: int
    uuid: str
    name: str
    handle: Any
    facts: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, dict[str, str | None]] = field(default_factory=dict)
    sources: list[ScheduledRead] = field(default_factory=list)
    buffers: list[ScheduledRead] = field(default_factory=list)
    gpm: GpmReader | None = None
    period_factor: float = 1.0  # Factor on the periods of all calls except GPM, to stay within NVML_SHARE.
    parent: Any = None  # Handle of the physical GPU, for a MIG instance.
    instance: int | None = None  # GPU instance id, for a MIG instance.
    lost: bool = False
    retry_at_ns: int = 0
    retry_ns: int = RETRY_FIRST_NS

    def plan(self, tick_ns: int, slower: float) -> None:
        """Choose the period factor so that all calls stay within NVML_SHARE, and multiply it by ``slower``.

        GPM has priority, because it shows the sawtooth. The other calls share the remaining time.
        """
        gpm_share = self.gpm.cost_per_ns(tick_ns) if self.gpm is not None else 0.0
        calls_share = sum(scheduled.cost_ns / scheduled.period_ns(1.0) for scheduled in (*self.sources, *self.buffers))
        allowed_share = max(NVML_SHARE - gpm_share, RESERVED_SHARE * NVML_SHARE)
        self.period_factor = slower * max(1.0, calls_share / allowed_share)

    def costs(self) -> dict[str, list[float]]:
        """Return for each column the milliseconds per call and the seconds between two calls."""
        sources = {
            scheduled.source.columns[0]: scheduled for scheduled in self.sources if isinstance(scheduled.source, NvmlCall)
        }
        sources |= {
            f"{scheduled.source.column} buffer": scheduled for scheduled in self.buffers if isinstance(scheduled.source, Buffer)
        }
        costs = {
            name: [round(scheduled.cost_ns / 1e6, 3), round(scheduled.period_ns(self.period_factor) / 1e9, 3)]
            for name, scheduled in sources.items()
        }
        return costs | (self.gpm.costs() if self.gpm is not None else {})

    def note(self, columns: tuple[str, ...], source: str | None, reason: str | None) -> None:
        """Store the source of the values of ``columns``, or the reason why there are no values."""
        for column in columns:
            self.capabilities[column] = {"source": source, "reason": reason}

    def free(self) -> None:
        """Free the GPM samples."""
        if self.gpm is not None:
            self.gpm.close()
            self.gpm = None

    def describe(self) -> dict[str, Any]:
        """Return the description of this device for meta.json and segment heads."""
        return {"device": self.device, "uuid": self.uuid, "name": self.name, **self.facts, "capabilities": self.capabilities}

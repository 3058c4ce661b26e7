"""One GPU as the sampler knows it: what it can tell, what asking costs, and when it is asked again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sawtooth.ingest.sampler.nvml.fields import Buffer, Source
from sawtooth.ingest.sampler.nvml.gpm import GpmReader, smoothed

NVML_SHARE = 0.005  # of wall time all calls for one GPU may take: 0.5 ms in 100 ms
KEPT_SHARE = 0.3  # of that for everything but GPM, however slow GPM is
SLOW_SHARE = 0.0004  # of wall time one slow call may take, so that energy and the buffers leave room for the rest
JITTER_NS = 5_000_000  # a tick that comes a little early still counts as the one the period names
RETRY_FIRST_NS, RETRY_LONGEST_NS = 10**9, 60 * 10**9  # back-off between attempts to get a lost GPU or driver back


@dataclass
class Active:
    """A source or buffer that answered when probed, with what it costs."""

    what: Source | Buffer
    due_m: int = 0
    cost_ns: float = 0.0
    last_us: int = 0

    def spent(self, now_m: int, cost_ns: int, stretch: float) -> None:
        """Plan the next call: the nominal period times ``stretch``, or longer where the call is slow."""
        self.cost_ns = smoothed(self.cost_ns, cost_ns)
        self.due_m = now_m + int(self.period_ns(stretch)) - JITTER_NS

    def period_ns(self, stretch: float) -> float:
        """Return the time between calls."""
        nominal = max(self.what.period_s * 1e9, self.cost_ns / SLOW_SHARE if self.what.period_s >= 1 else 0)
        return min(nominal * stretch, max(self.what.longest_period_s, self.what.period_s) * 1e9)


@dataclass
class Gpu:
    """One GPU or MIG instance and what it can tell. ``capabilities[column]`` has ``source`` or, where None, ``reason``."""

    device: int
    uuid: str
    name: str
    handle: Any
    facts: dict[str, Any] = field(default_factory=dict)
    capabilities: dict[str, dict[str, str | None]] = field(default_factory=dict)
    sources: list[Active] = field(default_factory=list)
    buffers: list[Active] = field(default_factory=list)
    gpm: GpmReader | None = None
    stretch: float = 1.0  # of the periods of everything but GPM, to stay within NVML_SHARE
    parent: Any = None  # handle of the physical GPU, for a MIG instance
    instance: int | None = None  # its GPU instance id
    lost: bool = False
    retry_m: int = 0
    retry_ns: int = RETRY_FIRST_NS

    def plan(self, tick_ns: int, slower: float) -> None:
        """Choose the stretch from what calls have cost: GPM first, since it shows the teeth, the rest shares what is left."""
        gpm = self.gpm.cost_per_ns(tick_ns) if self.gpm is not None else 0.0
        rest = sum(a.cost_ns / a.period_ns(1.0) for a in (*self.sources, *self.buffers))
        self.stretch = slower * max(1.0, rest / max(NVML_SHARE - gpm, KEPT_SHARE * NVML_SHARE))

    def costs(self) -> dict[str, list[float]]:
        """Return per column the milliseconds of a call and the seconds between two."""
        sources = {a.what.columns[0]: a for a in self.sources if isinstance(a.what, Source)}
        sources |= {f"{a.what.column} buffer": a for a in self.buffers if isinstance(a.what, Buffer)}
        table = {name: [round(a.cost_ns / 1e6, 3), round(a.period_ns(self.stretch) / 1e9, 3)] for name, a in sources.items()}
        return table | (self.gpm.costs() if self.gpm is not None else {})

    def note(self, columns: tuple[str, ...], source: str | None, reason: str | None) -> None:
        """Keep where the values of ``columns`` come from, or why there are none."""
        for column in columns:
            self.capabilities[column] = {"source": source, "reason": reason}

    def free(self) -> None:
        """Give GPM's samples back."""
        if self.gpm is not None:
            self.gpm.close()
            self.gpm = None

    def describe(self) -> dict[str, Any]:
        """Return what meta.json and segment heads say about this device."""
        return {"device": self.device, "uuid": self.uuid, "name": self.name, **self.facts, "capabilities": self.capabilities}

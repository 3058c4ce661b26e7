"""Definition of a metric, and the data from which it may be computed.

Each metric is a ``Metric`` next to the function that computes it. Modules of this package list theirs in the tuple
``METRICS``, and ``registry`` joins these tuples. Reports, help texts, gates, the Reference screen and the cards of the
Verdict page read the registry, so a new metric needs no other change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pandas as pd

from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import NO_STEP_TIME, BestStepTime
from sawtooth.ingest.manifest import UserFacts

if TYPE_CHECKING:
    from sawtooth.analysis.telemetry.summary import DeviceTelemetry

Better = Literal["lower", "higher", "neither"]
# Reasons that lower the trust of some metrics; the module ``trust`` applies them. A truncated file lowers the trust of all metrics.
Doubt = Literal["lost_launches", "undecided_kernels", "step_of_profile", "one_step", "one_step_idle"]


@dataclass(frozen=True)
class DeviceMeasurements:
    """The data of one device of one run.

    * ``best``: the run's step time. ``counted``: the number of counted steps.
    * ``owned_ns``: the ledger, which is the ns of the steady window (``window_ns``) by owner.
    * ``kernels``: one row per category and kind of operation (kernel, memcpy, memset). Columns: category, kind, ns, launches,
      sm_ns (Σ min(blocks per SM, 1) × duration), occupancy_pct (time-weighted mean), occupancy_unseen_ns (time without an
      estimate), undecided_ns (time of kernels whose use of tensor cores is unknown).
    * ``works_ms``: the GPU's work in the run's step; None if ``best`` is the profile's step time.
    * ``allocated_bytes``: peak memory according to the allocator.
    * ``sampled``: the device's telemetry. ``other_time_note``: how far it is from the trace, if recorded at another time.
    * ``outlier_doubts``: doubts about means that depend mostly on one step of the profile.
    """

    best: BestStepTime = NO_STEP_TIME
    counted: int = 0
    window_ns: int = 0
    owned_ns: Mapping[str, int] = field(default_factory=dict)
    kernels: pd.DataFrame = field(default_factory=pd.DataFrame)
    facts: DeviceFacts = field(default_factory=DeviceFacts)
    gpu: GpuPeaks | None = None
    user: UserFacts = field(default_factory=UserFacts)
    works_ms: float | None = None
    allocated_bytes: float | None = None
    sampled: DeviceTelemetry | None = None
    other_time_note: str | None = None
    outlier_doubts: Mapping[Doubt, str] = field(default_factory=dict)

    @property
    def busy_ns(self) -> int:
        """The part of the steady window in which the GPU did any work."""
        return self.window_ns - self.owned_ns.get("idle", 0)


@dataclass(frozen=True)
class Metric:
    """The definition of a number, the function that computes it, and its valid range.

    * ``unit``: the unit in the report: ms, share (0 to 1), FLOP, TFLOP/s, count, bytes or s.
    * ``low``, ``high``: a value outside this range is impossible and becomes missing; ``high`` None means no bound.
    * ``doubted_by``: the doubts that lower its trust.
    * ``card``: the position of its card on the Verdict page, None without a card. ``good``: the value of good runs.
    * ``from_telemetry``: whether telemetry suffices, without a trace.
    * ``alias``: a second key in JSON and gates.
    """

    key: str
    label: str
    unit: str
    better: Better
    definition: str
    source: str
    compute: Callable[[DeviceMeasurements], Reading]
    low: float = 0.0
    high: float | None = None
    doubted_by: tuple[Doubt, ...] = ()
    card: int | None = None
    good: float | None = None
    from_telemetry: bool = False
    alias: str | None = None

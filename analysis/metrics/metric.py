"""What a metric is, and what it may be computed from.

A metric is one row beside its function: a module of this package holds ``METRICS``, a tuple of rows, and ``registry`` collects them. Reports,
help texts, gates, the Reference screen and the Verdict's cards print the rows, so a new one is written nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pandas as pd

from sawtooth.analysis.knowledge.hardware import Gpu
from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time import NO_STEP_TIME, BestStepTime
from sawtooth.ingest.manifest import UserFacts

if TYPE_CHECKING:
    from sawtooth.analysis.telemetry.summary import DeviceTelemetry

Better = Literal["lower", "higher", "neither"]
# What lowers the trust of some metrics and leaves others alone; ``trust`` says when. A truncated file lowers all.
Doubt = Literal["lost_launches", "undecided_kernels", "waits_inside"]


@dataclass(frozen=True)
class Measured:
    """What is known of one device of one run.

    ``owned_ns`` is the ledger: ns of the steady window (``window_ns``) by owner. ``kernels`` has a row per category and kind of operation
    (kernel, memcpy, memset): category, kind, ns, launches, sm_ns (Σ min(blocks per SM, 1) × duration), occupancy_pct (mean by time), occupancy_unseen_ns (time it could not be estimated for),
    undecided_ns (tensor cores unknown). ``works_ms`` is how long the GPU works a step of the
    run that ``best`` times, None where that is the profile's. ``sampled`` is the device's telemetry, and ``away`` the sentence that says
    why it is of some other time than the trace.
    """

    best: BestStepTime = NO_STEP_TIME
    counted: int = 0
    window_ns: int = 0
    owned_ns: Mapping[str, int] = field(default_factory=dict)
    kernels: pd.DataFrame = field(default_factory=pd.DataFrame)
    facts: DeviceFacts = field(default_factory=DeviceFacts)
    gpu: Gpu | None = None
    user: UserFacts = field(default_factory=UserFacts)
    works_ms: float | None = None
    allocated_bytes: float | None = None
    sampled: DeviceTelemetry | None = None
    away: str | None = None

    @property
    def busy_ns(self) -> int:
        """The part of the steady window in which the GPU did anything."""
        return self.window_ns - self.owned_ns.get("idle", 0)


@dataclass(frozen=True)
class Metric:
    """What a number means, how it is computed and how far it may be believed.

    ``unit`` is the report's: ms, share (0 to 1), FLOP, TFLOP/s, count, bytes or s. A value outside ``low`` to ``high`` (None: no bound)
    cannot be, and is missing. ``card`` is the place of its card on the Verdict, None where it has none, and ``good`` what good runs reach
    there. ``from_telemetry``: telemetry tells it without a trace. ``alias`` is a further key it has in JSON and gates.
    """

    key: str
    label: str
    unit: str
    better: Better
    definition: str
    source: str
    compute: Callable[[Measured], Reading]
    low: float = 0.0
    high: float | None = None
    doubted_by: tuple[Doubt, ...] = ()
    card: int | None = None
    good: float | None = None
    from_telemetry: bool = False
    alias: str | None = None

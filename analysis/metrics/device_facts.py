"""What the derived file holds of one device beside its tables: a row of ``facts``, as ``analysis.derive.build`` writes it, typed where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepEstimate:
    """The step without the profiler's cost, by the replay: ns, or None and why."""

    step_ns: float | None = None
    why_missing: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlopTotals:
    """FLOPs of the counted steps, without what was recomputed: in all and by dtype, and of how many ``operators``.

    ``kernel_ns`` is the time of the GEMM, convolution and attention kernels, ``covered_ns`` that of those whose FLOPs are known, and ``union_ns`` the
    time of the steady window in which any of them runs.
    """

    flops: float = 0.0
    operators: int = 0
    by_dtype: Mapping[str, float] = field(default_factory=dict)
    recomputed_flops: float = 0.0
    kernel_ns: int = 0
    covered_ns: int = 0
    union_ns: int = 0


@dataclass(frozen=True)
class DeviceFacts:
    """Counts and times (ns) of the GPU operations of a device.

    ``carried_over`` operations were launched before the capture began, ``orphan`` ones have no launch in it; ``graph_ns`` is what CUDA graphs launched of
    ``gpu_ns``. ``launches`` are operations of the counted steps with a record on the GPU, ``lost_launches`` those that have none (``lost_graphs`` of them launch CUDA graphs);
    ``lost_anywhere`` in the trace have none, and ``lacking_steps`` steps hold one. ``gpus_left_out`` of the trace had the fewest operations. ``phases`` are the rows of the report's ``phases``.
    """

    carried_over: int = 0
    carried_over_ns: int = 0
    orphan: int = 0
    orphan_ns: int = 0
    gpu_ns: int = 0
    graph_ns: int = 0
    kernels_in_counted_steps: int = 0
    graph_kernels_in_counted_steps: int = 0
    gpus_left_out: int = 0
    launches: int = 0
    lost_launches: int = 0
    lost_graphs: int = 0
    lost_anywhere: int = 0
    lacking_steps: int = 0
    estimate: StepEstimate | None = None
    phases: list[dict[str, Any]] = field(default_factory=list)
    flops: FlopTotals | None = None

    @property
    def orphan_share(self) -> float:
        """The share of GPU time whose launch should be in the trace and is not."""
        return self.orphan_ns / self.gpu_ns if self.gpu_ns else 0.0

    @property
    def lost_share(self) -> float:
        """The share of launches in the counted steps that have no record on the GPU."""
        return self.lost_launches / (self.launches + self.lost_launches) if self.lost_launches else 0.0

    @property
    def graph_share(self) -> float:
        """The share of GPU time that CUDA graphs launched."""
        return self.graph_ns / self.gpu_ns if self.gpu_ns else 0.0

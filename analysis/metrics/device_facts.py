"""Facts of one device from the derived file, as typed classes.

``analysis.derive.build`` writes them as a row of ``facts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepEstimate:
    """The replay's step time without the profiler's cost, in ns; None with the reason."""

    step_ns: float | None = None
    why_missing: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlopTotals:
    """FLOPs of the counted steps: their total, the totals by dtype, and the number of ``operators``.

    These three exclude recomputed operators, whose FLOPs are ``recomputed_flops``. ``kernel_ns`` is the time of GEMM,
    convolution and attention kernels; ``covered_ns`` is the part of it with known FLOPs. ``union_ns`` is the time of the steady
    window in which any such kernel runs.
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

    * ``carried_over``: operations launched before the recording began. ``orphan``: operations without a launch in the trace.
    * ``gpu_ns``: the sum of all operations' durations. ``graph_ns``: the part launched by CUDA graphs.
    * ``gpus_left_out``: GPUs that were not analysed, because they have the fewest operations.
    * ``launches``: operations of the counted steps with a record on the GPU. ``lost_launches``: launches of these steps
      without a record. Among them, ``lost_graphs`` launch CUDA graphs, and ``lost_unseen`` are missing in the trace too.
    * ``lost_anywhere``: launches without a record in the whole trace. ``lacking_steps``: steps that contain such a launch.
    * ``counted_host_ns``: the host's mean time per counted step. ``marked_host_ns``: per step, without the first one.
    * ``unmarked_steps``: steps without a mark between two marked steps. ``lost_marks``: other places without marks.
    * ``phases``: the rows of the report's ``phases``.
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
    lost_unseen: int = 0
    lost_anywhere: int = 0
    lacking_steps: int = 0
    counted_host_ns: int = 0
    marked_host_ns: int = 0
    unmarked_steps: int = 0
    lost_marks: int = 0
    estimate: StepEstimate | None = None
    phases: list[dict[str, Any]] = field(default_factory=list)
    flops: FlopTotals | None = None

    @property
    def orphan_share(self) -> float:
        """The share of GPU time whose launch is missing in the trace."""
        return self.orphan_ns / self.gpu_ns if self.gpu_ns else 0.0

    @property
    def lost_share(self) -> float:
        """The share of launches in the counted steps without a record on the GPU."""
        return self.lost_launches / (self.launches + self.lost_launches) if self.lost_launches else 0.0

    @property
    def lacking_differ_by(self) -> float:
        """Relative difference of the host's mean times: per step (without the first) and per counted step."""
        if not self.lacking_steps or not self.counted_host_ns:
            return 0.0
        return abs(self.marked_host_ns / self.counted_host_ns - 1)

    @property
    def graph_share(self) -> float:
        """The share of GPU time that CUDA graphs launched."""
        return self.graph_ns / self.gpu_ns if self.gpu_ns else 0.0

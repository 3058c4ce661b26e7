"""GPM metrics: activity of SMs, tensor pipes and memory between two reads, for Hopper GPUs and newer.

On an H200 (driver 580), taking a sample takes 0.12 ms, and computing any number of metrics from two samples takes 0.006 ms. The exception is
graphics utilization, which takes 1.5 ms. This is three times the limit for all calls of a tick, so sessions leave it out. SM activity shows
the sawtooth, and NVML's utilization shows the share of time in which the GPU works.
Each tick computes the metrics that show when the GPU works. The other metrics are computed once a second, over this second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.nvml.fields import GPM, GpmMetric

WINDOW_NS = 95_000_000  # GPM refreshes about every 100 ms, so a shorter window contains no new data.
EVERY_TICK = ("sm_active_pct", "tensor_active_pct", "dram_active_pct")
SLOW_METRIC = "gr_active_pct"  # Graphics utilization takes too long. See the module's docstring.
WHY_LEFT_OUT = "reading it takes 1.5 ms. Use SM activity and NVML's utilization instead"
REST_NS, REST_LONGEST_NS = 10**9, 5 * 10**9  # Shortest and longest period of the other metrics.
REST_SHARE = 0.0005  # Share of wall time that the other metrics may take.
NOT_SUPPORTED = 3  # The value of NVML_ERROR_NOT_SUPPORTED.
# Weight of the newest cost in the running mean. About five calls change the mean, but a single slow call does not.
NEWEST_WEIGHT = 0.2


def running_mean(mean_ns: float, newest_ns: int) -> float:
    """Return the running mean of a call's cost, updated with the newest cost (0: no mean yet)."""
    return newest_ns if mean_ns == 0 else (1 - NEWEST_WEIGHT) * mean_ns + NEWEST_WEIGHT * newest_ns


@dataclass
class _Group:
    """Metrics that are computed from the same pair of samples."""

    metrics: list[GpmMetric]
    samples: tuple[Any, Any]
    read_at_ns: int = 0  # Monotonic time of the last read.
    cost_ns: float = 0.0

    def record_cost(self, cost_ns: int) -> None:
        self.cost_ns = running_mean(self.cost_ns, cost_ns)


@dataclass
class GpmReader:
    """Reads the GPM metrics of one GPU, or of one MIG instance through its parent.

    With ``all_each_tick``, all metrics are read at every tick, regardless of the cost.
    """

    nvml: Any
    clock: SamplerClock
    handle: Any
    instance: int | None = None
    all_each_tick: bool = False
    groups: list[_Group] = field(default_factory=list)

    def open(self) -> None:
        """Allocate samples and take the first sample of each group.

        Raises the bindings' NVMLError or AttributeError if GPM is not available.
        """
        now = self.clock.monotonic_ns()
        tick = [metric for metric in GPM if metric.column in EVERY_TICK]
        rest = [metric for metric in GPM if metric.column not in (*EVERY_TICK, SLOW_METRIC)]
        for metrics in [list(GPM)] if self.all_each_tick else [tick, rest]:
            group = _Group(metrics, (self.nvml.nvmlGpmSampleAlloc(), self.nvml.nvmlGpmSampleAlloc()), now)
            self.groups.append(group)
            self._take(group.samples[0])

    def close(self) -> None:
        """Free the samples."""
        groups, self.groups = self.groups, []
        for group in groups:
            for sample in group.samples:
                try:
                    self.nvml.nvmlGpmSampleFree(sample)
                except self.nvml.NVMLError:
                    continue

    def read(self, now_ns: int) -> tuple[dict[str, float | None], list[GpmMetric]]:
        """Return the values of all due groups, and the metrics that this GPU lacks. Raises NVMLError."""
        values: dict[str, float | None] = {}
        absent: list[GpmMetric] = []
        for index, group in enumerate(self.groups):
            period = WINDOW_NS if index == 0 else self._rest_period_ns() - WINDOW_NS // 2
            if now_ns - group.read_at_ns >= period and group.metrics:
                absent += self._read_group(group, now_ns, values)
        return values, absent

    def cost_per_ns(self, tick_ns: int) -> float:
        """Return the share of wall time that GPM takes."""
        periods = [max(tick_ns, WINDOW_NS), self._rest_period_ns()]
        return sum(group.cost_ns / period for group, period in zip(self.groups, periods, strict=False))

    def costs(self) -> dict[str, list[float]]:
        """Return for each group the milliseconds per read and the seconds between reads (0: each tick)."""
        periods_s = [0.0, round(self._rest_period_ns() / 1e9, 3)]
        return {
            f"gpm, {len(group.metrics)} metrics": [round(group.cost_ns / 1e6, 3), period_s]
            for group, period_s in zip(self.groups, periods_s, strict=False)
        }

    def _rest_period_ns(self) -> int:
        cost = self.groups[1].cost_ns if len(self.groups) > 1 else 0.0
        return int(min(max(REST_NS, cost / REST_SHARE), REST_LONGEST_NS))

    def _take(self, sample: Any) -> None:
        if self.instance is None:
            self.nvml.nvmlGpmSampleGet(self.handle, sample)
        else:
            self.nvml.nvmlGpmMigSampleGet(self.handle, self.instance, sample)

    def _read_group(self, group: _Group, now_ns: int, values: dict[str, float | None]) -> list[GpmMetric]:
        started = self.clock.monotonic_ns()
        before, after = group.samples
        self._take(after)
        request = self.nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = self.nvml.NVML_GPM_METRICS_GET_VERSION, len(group.metrics)
        request.sample1, request.sample2 = before, after
        for index, metric in enumerate(group.metrics):
            request.metrics[index].metricId = metric.metric_id
        self.nvml.nvmlGpmMetricsGet(request)
        group.samples, group.read_at_ns = (after, before), now_ns
        absent = []
        for index, metric in enumerate(group.metrics):
            code = request.metrics[index].nvmlReturn
            if code == 0:
                values[metric.column] = metric.scaled(request.metrics[index].value)
            elif code == NOT_SUPPORTED:
                absent.append(metric)
        group.metrics = [metric for metric in group.metrics if metric not in absent]
        group.record_cost(self.clock.monotonic_ns() - started)
        return absent

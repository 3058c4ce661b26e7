"""The server's metrics for Prometheus: live trainings, and the newest run of each name.

Values are in base units and ratios, as Prometheus recommends. Runs are labelled with their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sawtooth.app.publish.values import values_of

MAX_RUNS = 50  # At most this many runs are exported, because each adds several series.
LOST = "lost_ms/"
# By the name in ``values_of``: the metric, the factor to its unit, and its help text.
RUN_METRICS = {
    "step_time_ms": ("sawtooth_run_step_time_seconds", 1e-3, "Step time of the run without the profiler."),
    "step_time_low_ms": ("sawtooth_run_step_time_low_seconds", 1e-3, "Lower end of the step time's 95 % interval."),
    "step_time_high_ms": ("sawtooth_run_step_time_high_seconds", 1e-3, "Upper end of the step time's 95 % interval."),
    "planned_step_time_ms": (
        "sawtooth_run_planned_step_time_seconds",
        1e-3,
        "Predicted step time after all changes of the plan.",
    ),
    "gpu_busy_share": ("sawtooth_run_gpu_busy_ratio", 1.0, "Share of the step in which the GPU works."),
    "mfu": ("sawtooth_run_mfu_ratio", 1.0, "Model FLOPs utilization."),
    "samples_per_second": ("sawtooth_run_samples_per_second", 1.0, "Samples per second."),
    "findings": ("sawtooth_run_findings", 1.0, "Findings of the run."),
}
STEP_METRICS = {
    "p50_ms": ("sawtooth_live_step_time_seconds", 1e-3, "Median of the recent step times."),
    "p95_ms": ("sawtooth_live_step_time_p95_seconds", 1e-3, "95th percentile of the recent step times."),
    "steps_per_s": ("sawtooth_live_steps_per_second", 1.0, "Steps per second."),
    "samples_per_s": ("sawtooth_live_samples_per_second", 1.0, "Samples per second."),
    "mfu": ("sawtooth_live_mfu_ratio", 1.0, "Model FLOPs utilization."),
    "step": ("sawtooth_live_step", 1.0, "Number of the newest step."),
}
GPU_METRICS = {
    "util_pct": ("sawtooth_live_gpu_utilization_ratio", 0.01, "GPU utilization (NVML), mean of the last seconds."),
    "power_w": ("sawtooth_live_gpu_power_watts", 1.0, "Power draw, mean of the last seconds."),
    "sm_active_pct": ("sawtooth_live_gpu_sm_active_ratio", 0.01, "SM activity, mean of the last seconds."),
}


def exposition(sessions: Iterable[Mapping[str, Any]], results: Iterable[Any]) -> tuple[bytes, str]:
    """Return the metrics as Prometheus' text and its content type.

    ``sessions`` are live sessions in the API's form, ``results`` analysed runs, newest first. Raises ImportError without
    prometheus-client.
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(list(sessions), list(results)))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, sessions: list[Mapping[str, Any]], results: list[Any]) -> None:
        self._sessions, self._results = sessions, results

    def collect(self) -> Iterator[Any]:
        """Yield the metric families, each with one value for every session, GPU or run."""
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, Any] = {}

        def add(spec: tuple[str, float, str], value: float | None, **labels: str) -> None:
            name, factor, description = spec
            if value is not None:
                family = families.setdefault(name, GaugeMetricFamily(name, description, labels=tuple(labels)))
                family.add_metric(tuple(labels.values()), value * factor)

        for session in self._sessions:
            labels = {"session": str(session["name"] or session["id"]), "host": str(session["host"])}
            for key, spec in STEP_METRICS.items():
                add(spec, (session["steps"] or {}).get(key), **labels)
            for gpu in session["gpus"]:
                for key, spec in GPU_METRICS.items():
                    add(spec, gpu["means"].get(key), **labels, gpu=str(gpu["device"]))
        exported: set[str] = set()
        for result in self._results:
            run = str(result.manifest.name)
            if run in exported or len(exported) == MAX_RUNS:
                continue
            exported.add(run)
            for key, value in values_of(result, "").items():
                if key in RUN_METRICS:
                    add(RUN_METRICS[key], value, run=run)
                elif key.startswith(LOST):
                    lost = ("sawtooth_run_lost_seconds", 1e-3, "Time per step that the GPU loses to a cause.")
                    add(lost, value, run=run, cause=key.removeprefix(LOST))
        yield from families.values()

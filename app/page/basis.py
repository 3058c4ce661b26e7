"""The basis of the numbers on every screen: the run without the profiler, or the profile.

The main number uses the chosen basis. The number on the other basis appears next to it in small print.
"""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import Column, busy_share_of_best
from sawtooth.app import format as fmt
from sawtooth.app.page import controls
from sawtooth.app.words import efficiency

BASIS = "basis"  # Name of the address parameter.
LABELS: dict[Column, str] = {"unprofiled": "without the profiler", "recorded": "as profiled"}


def differs(rank: RankResult) -> bool:
    """Return whether the run's step time is known from another source than the profile."""
    return rank.best.source != "profile" and rank.best.ms is not None


def switch(rank: RankResult) -> Column:
    """Return the basis that the viewer chose; without a second step time, it is "recorded"."""
    if not differs(rank):
        return "recorded"
    return controls.choice("Basis", LABELS, BASIS, label_shown=False)


def reading(key: str, result: RunResult, rank: RankResult, column: Column) -> tuple[Reading, str | None]:
    """Return metric ``key`` on the basis ``column``, and a short note with its value on the other basis."""
    value, note = result.metrics[key], efficiency.card_note(key, result.metrics, rank)
    if key == "best_step_time_ms" and column == "recorded" and differs(rank):
        profiled = result.metrics["step_time_ms"]
        return profiled, f"run ≈\u00a0{fmt.reading('best_step_time_ms', value)}"
    if key == "gpu_busy_share" and column == "unprofiled" and value.value is not None and differs(rank):
        nvml = result.metrics["nvml_gpu_util_mean"]
        seen = f", NVML {fmt.reading('nvml_gpu_util_mean', nvml)}" if nvml.value is not None else ""
        return replace(value, value=busy_share_of_best(rank)), f"{fmt.reading(key, value)} as profiled{seen}"
    return value, note


SCALED = ("mfu", "mfu_at_dtype", "hfu", "achieved_tflops", "mfu_factor_busy")  # Metrics computed by dividing by the step time.


def metrics(rank: RankResult, column: Column) -> dict[str, Reading]:
    """Return the metrics of a rank on the basis ``column``.

    The metrics of a rank use the run's step time. On the basis "recorded", the metrics in ``SCALED`` are converted to the
    profiled step time.
    """
    best, profiled = rank.best.ms, rank.metrics["step_time_ms"].value
    if column == "unprofiled" or not differs(rank) or not best or not profiled:
        return dict(rank.metrics)
    scaled = {key: rank.metrics[key] for key in SCALED if rank.metrics[key].value is not None}
    return {
        **rank.metrics,
        **{
            key: replace(reading_as_profiled, value=(reading_as_profiled.value or 0.0) * best / profiled)
            for key, reading_as_profiled in scaled.items()
        },
    }

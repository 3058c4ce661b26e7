"""A step now and after a change with ranges, and the savings: training time and money."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.findings.batch.step import best_on_this_host
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import ESTIMATED, StepSource
from sawtooth.analysis.run.model import Finding, RunResult, may_gain_nothing
from sawtooth.app import format as fmt
from sawtooth.app.words.run import is_lower_bound, step_time_text

MIN_BATCH_GAIN = 1.05  # Ratio of samples per second. A smaller gain does not justify another batch size.
MIN_FLOP_COVERAGE = 0.5  # Share of the time of products, convolutions and attention that must have known FLOPs.
MS_PER_DAY = 24 * 3.6e6
MIN_WIDE_RATIO = 2.0  # Ratio of an interval's ends. From here, a page shows both ends instead of the middle.


@dataclass(frozen=True)
class Amount:
    """A time as text, the line below it, and its reliability.

    Examples are "≈ 148 ms" and "per step, estimated: 126 to 172 ms".
    """

    text: str
    under: str
    sure: bool


def step(result: RunResult) -> Amount | None:
    """Return the step time now; None if it is not known."""
    text = step_time_text(result)
    if text is None:
        return None
    reading = result.metrics["best_step_time_ms"]
    source: StepSource = "marks" if reading.trust == "ok" else "estimate"
    if result.lead is not None:
        source = result.lead.best.source
    interval = _range_in_words(reading.low, reading.high)
    if source == "profile":
        suffix = f"; the run's step {interval}" if interval else ""
        return Amount(text, f"per step as profiled{suffix}", True)
    is_measured = source not in ESTIMATED
    basis = "per step, measured" if is_measured else "per step, estimated"
    under = (f"{basis}: {interval}" if interval else basis, step_time_of_rhythm(result))
    return Amount(text, "; ".join(filter(None, under)), is_measured)


def is_mfu_meaningful(metrics: Mapping[str, Reading]) -> bool:
    """Return whether the MFU may be shown as a large number.

    If most FLOPs are unknown, as in an LSTM, the MFU is only a bound far below the true value.
    """
    return not is_lower_bound(metrics) or (metrics["flop_coverage"].value or 0.0) >= MIN_FLOP_COVERAGE


def with_known_mfu(forecast: CombinedPrediction, metrics: Mapping[str, Reading]) -> CombinedPrediction:
    """Return ``forecast``, without the MFU if the MFU is not meaningful."""
    return forecast if is_mfu_meaningful(metrics) else replace(forecast, mfu_before=None)


def step_time_of_rhythm(result: RunResult) -> str | None:
    """Return the step time by the rhythm of GPU utilization, or None.

    An example is "telemetry's rhythm: 752 ms". The rhythm confirms an estimated step time. It is ignored outside the
    estimate's range, because its period may be several steps.
    """
    rank = result.lead
    if rank is None or rank.telemetry is None or rank.best.source not in ESTIMATED or not rank.best.ms:
        return None
    period_s, reading = rank.telemetry.sawtooth.period_s, rank.best.reading
    if not period_s or reading.low is None or reading.high is None or not reading.low <= 1000 * period_s <= reading.high:
        return None
    text = fmt.duration_ms(1000 * period_s)
    return f"telemetry's rhythm: {text}" if text != fmt.duration_ms(rank.best.ms) else None


def after(forecast: CombinedPrediction, change: Finding | None) -> Amount:
    """Return the step time of ``forecast``; ``change`` is None if the forecast is for several changes."""
    low_ms, high_ms = _range(forecast, change)
    has_low_confidence = change is not None and change.confidence == "low"
    under = f"predicted: {interval}" if (interval := _range_in_words(low_ms, high_ms)) else "predicted, range not known"
    is_reliable = not has_low_confidence and not may_gain_nothing(high_ms, forecast.before_ms)
    return Amount(f"≈\u00a0{fmt.duration_ms(forecast.after_ms)}", under, is_reliable)


def _range(forecast: CombinedPrediction, change: Finding | None) -> tuple[float | None, float | None]:
    """Return the range of the predicted step time in ms; unknown ends are None.

    It comes from ``change`` if this is the only change.
    """
    return (forecast.low_ms, forecast.high_ms) if change is None else (change.predicted_low_ms, change.predicted_high_ms)


def predicted_range(change: Finding) -> str:
    """Return the 80 % interval of a prediction, such as "8.38 to 22.9 ms"; "" if it is not known."""
    return _range_in_words(change.predicted_low_ms, change.predicted_high_ms)


def _range_in_words(low_ms: float | None, high_ms: float | None) -> str:
    if low_ms is None:
        return ""
    return fmt.span_ms(low_ms, high_ms) if high_ms is not None else f"at least {fmt.duration_ms(low_ms)}"


def is_wide(low_ms: float | None, high_ms: float | None) -> bool:
    """Return whether a page shows both ends of an interval instead of its middle."""
    return low_ms is not None and high_ms is not None and high_ms >= MIN_WIDE_RATIO * low_ms > 0


def _hours_change(before_h: float, after_h: float) -> str:
    """Return the time before and after a change in one unit, such as "24 → ≈ 1.93 h"."""
    if not fmt.duration_ms(before_h * 3.6e6).endswith("h"):
        return fmt.step_change(before_h * 3.6e6, after_h * 3.6e6)
    return f"{_hours(before_h)} → ≈\u00a0{fmt.number(after_h)}\u00a0h"


def _hours(value: float) -> str:
    """Return hours; a whole number, such as a day, without decimals."""
    return f"{value:,.0f}" if math.isclose(value, round(value), rel_tol=1e-9) else fmt.number(value)


def _hours_between(before_h: float, low_h: float, high_h: float) -> str:
    """Return the time before a change and the range after it in one unit, such as "24 → 1.92 to 7.85 h"."""
    if not fmt.duration_ms(before_h * 3.6e6).endswith("h"):
        return f"{fmt.duration_ms(before_h * 3.6e6)} → {fmt.span_ms(low_h * 3.6e6, high_h * 3.6e6)}"
    low, high = fmt.number(low_h), fmt.number(high_h)
    return f"{_hours(before_h)} → {high if low == high else f'{low} to {high}'}\u00a0h"


def _saving_in_words(forecast: CombinedPrediction, change: Finding | None, per_ms: float, text: Callable[[float], str]) -> str:
    """Return the range of a saving, such as "$ 480.00 to $ 537.60".

    ``per_ms`` is the saving for each saved ms of the step.
    """
    low_ms, high_ms = _range(forecast, change)
    maximum, likely, minimum = (
        text((forecast.before_ms - after_ms) * per_ms) if after_ms is not None else None
        for after_ms in (low_ms, forecast.after_ms, high_ms)
    )
    if maximum is None or (high_ms is not None and minimum == maximum):
        return f"≈\u00a0{likely}"
    if minimum is None or (high_ms or 0.0) >= forecast.before_ms:
        return f"up to {maximum}"
    return f"{minimum} to {maximum}"


def lines(
    forecast: CombinedPrediction,
    change: Finding | None,
    *,
    steps: float | None,
    price_per_gpu_hour: float | None,
    about: str = "",
) -> list[tuple[str, str]]:
    """Return label and value of what ``forecast`` saves: time, MFU, money.

    ``change`` is None for several changes. ``steps`` are the remaining steps; None means the steps of 24 hours today.
    Without ``price_per_gpu_hour``, there is no row for money. ``about`` is ≈ if the step time now is estimated.
    """
    before_h, after_h = forecast.hours_of(steps or MS_PER_DAY / forecast.before_ms)
    low_ms, high_ms = _range(forecast, change)
    about_h = about if steps else ""  # A day is exactly 24 h.
    hours = f"{about_h}{_hours_change(before_h, after_h)}"
    if low_ms is not None and high_ms is not None and is_wide(low_ms, high_ms):
        hours_per_ms = before_h / forecast.before_ms
        hours = f"{about_h}{_hours_between(before_h, low_ms * hours_per_ms, high_ms * hours_per_ms)}"
    rows = [(f"for {fmt.count(steps)} steps" if steps else "a training that takes a day now", hours)]
    rows += _mfu_row(forecast, about, low_ms, high_ms)
    saved_gpu_h = (before_h - after_h) * forecast.gpus
    if saved_gpu_h <= 0:
        return rows
    per = "" if steps else " per day"
    gpu_h_per_ms = saved_gpu_h / (forecast.before_ms - forecast.after_ms)
    if price_per_gpu_hour:
        gpus = f" on {forecast.gpus} GPUs" if forecast.gpus > 1 else ""
        rows.append((f"saved{per}{gpus}", _saving_in_words(forecast, change, gpu_h_per_ms * price_per_gpu_hour, fmt.money)))
    return rows


def _mfu_row(forecast: CombinedPrediction, about: str, low_ms: float | None, high_ms: float | None) -> list[tuple[str, str]]:
    """Return the MFU before and after a change as one row.

    There is no row if the MFU is not known or does not change visibly.
    """
    if forecast.mfu is None or forecast.mfu_before is None:
        return []
    # An MFU above 1 shows that a peak entered by the user is too low.
    label = "MFU of the 16-bit peak" if max(forecast.mfu_before, forecast.mfu) > 1 else "MFU"
    before, after = fmt.share(forecast.mfu_before), fmt.share(forecast.mfu)
    if low_ms is not None and high_ms is not None and is_wide(low_ms, high_ms):
        ends = (fmt.share(forecast.mfu_before * forecast.before_ms / ms) for ms in (high_ms, low_ms))
        return [(label, f"{about}{before} → {' to '.join(ends)}")]
    return [(label, f"{about}{before} → ≈\u00a0{after}")] if before != after else []


def larger_batches(evidence: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]] | None:
    """Return whether a larger batch helps, and the gain of each batch size; None without predictions.

    ``evidence`` has rows of ``analysis.findings.batch.step``.
    """
    rows = [row for row in evidence if "batch_times" in row]
    if not rows:
        return None
    best = max(rows, key=lambda row: row["samples_per_second_times"])
    rate = float(best["samples_per_second_times"])
    if any(map(_is_host_bound, rows)):
        title = "A larger batch fits: the host determines the time of its step"
    elif rate < MIN_BATCH_GAIN:
        title = "A larger batch fits but hardly helps: this batch keeps the GPU busy"
    elif rate * best["step_ms"] <= best["high_ms"]:  # At the upper end of the interval there is no gain.
        title = f"A larger batch fits and may help: ≈\u00a0{fmt.factor(rate)} the samples per second"
    else:
        title = f"A larger batch fits and helps: ≈\u00a0{fmt.factor(rate)} the samples per second"
    return title, [_line(row) for row in rows]


def _is_host_bound(row: Mapping[str, Any]) -> bool:
    return bool(row["high_ms"] > MIN_WIDE_RATIO * row["low_ms"])


def _line(row: Mapping[str, Any]) -> str:
    """Return the step time, the samples per second and the memory of a batch size."""
    batch, rate = f"{row['batch_times']:g}\u00a0× the batch", float(row["samples_per_second_times"])
    memory = f", {fmt.memory(row['memory_bytes'])} in use" if row["memory_bytes"] is not None else ""
    if _is_host_bound(row):
        min_ms, max_rate = best_on_this_host(row["batch_times"], rate, row["step_ms"], row["low_ms"])
        interval = fmt.span_ms(min_ms, row["high_ms"])
        return f"{batch}: {interval} per step, up to {fmt.factor(max_rate)} the samples per second{memory}."
    step = f"≈\u00a0{fmt.duration_ms(row['step_ms'])} ({fmt.span_ms(row['low_ms'], row['high_ms'])})"
    return f"{batch}: {step} per step, ≈\u00a0{fmt.factor(rate)} the samples per second{memory}."

"""A sweep in words: its table, with measured values and predictions from a trace."""

from __future__ import annotations

import math

import pandas as pd

from sawtooth.analysis.compare.sweep import BatchPrediction, Sweep
from sawtooth.app import format as fmt
from sawtooth.app.printable import aligned

FLOATS = (
    "throughput",
    "predicted",
    "low",
    "high",
    "accumulated",
    "step_ms",
    "utilization",
    "mfu",
    "memory_gib",
    "predicted_gib",
)
_ALL = ("value", "run", *FLOATS, "note")


def columns(sweep: Sweep) -> dict[str, str]:
    """Return the keys and headings of the columns of a sweep's table that are not empty."""
    rate_unit = f"{sweep.unit}/s"
    headings = {
        "value": fmt.clean(sweep.setting, 40),
        "run": "Run",
        "throughput": rate_unit,
        "predicted": "Predicted",
        "low": "from",
        "high": "to",
        "step_ms": "Step, ms",
        "memory_gib": "Peak memory, GiB",
        "predicted_gib": "Predicted, GiB",
        "note": "",
        "accumulated": f"Accumulated to {largest(sweep):g}, {rate_unit}",
        "utilization": "Utilization, %",
        "mfu": "MFU, %",
    }
    empty = set() if sweep.predicted else {"predicted", "low", "high"}
    empty |= set() if any(prediction.memory_bytes for prediction in sweep.predicted) else {"predicted_gib"}
    empty |= set() if any(point.accumulated for point in sweep.points) else {"accumulated"}
    return {key: heading for key, heading in headings.items() if key not in empty}


def largest(sweep: Sweep) -> float:
    """Return the largest value with a measured throughput; 0 if values are not numbers."""
    return max((point.number for point in sweep.points if point.number and point.throughput.value is not None), default=0.0)


def rows(sweep: Sweep) -> pd.DataFrame:
    """Return a sweep as a table, with a row for each measured and each predicted value.

    Utilization is NVML's if there is telemetry, else the profile's busy share.
    """
    predicted = {prediction.number: prediction for prediction in sweep.predicted}
    table = []
    for i, point in enumerate(sweep.points):
        measured, memory = point.reading("nvml_gpu_util_mean").value, point.reading("peak_memory_bytes").value
        note = "sweet spot" if i == sweep.sweet_spot else "out of memory" if point.too_large else ""
        table.append(
            {
                "value": fmt.clean(point.value, 40),
                "run": fmt.clean(point.run.manifest.name, 60) if point.is_run else "only timed",
                "throughput": point.throughput.value,
                "accumulated": point.accumulated,
                "step_ms": point.reading("best_step_time_ms").value,
                "utilization": _percent(measured if measured is not None else point.reading("gpu_busy_share").value),
                "mfu": _percent(point.reading("mfu").value),
                "memory_gib": memory / 2**30 if memory is not None else None,
                "note": note,
                "order": point.number,
                **_prediction(predicted.pop(point.number, None) if point.number else None),
            }
        )
    for prediction in predicted.values():
        row: dict[str, str | float | None] = {
            "value": f"{prediction.number:g}",
            "run": "",
            "note": "predicted only",
            "order": prediction.number,
        }
        table.append({**row, **_prediction(prediction)})
    frame = pd.DataFrame(table, columns=[*_ALL, "order"])
    if predicted:
        frame = frame.sort_values("order", kind="stable", ignore_index=True)
    return frame[list(columns(sweep))].astype({key: "float64" for key in FLOATS if key in columns(sweep)})


def _prediction(prediction: BatchPrediction | None) -> dict[str, float | None]:
    """Return the columns of a prediction; the rate is left out if the host is the limit."""
    if prediction is None:
        return {}
    per_s = None if prediction.host_limits else prediction.per_s
    memory_gib = prediction.memory_bytes / 2**30 if prediction.memory_bytes is not None else None
    return {"predicted": per_s, "low": prediction.low_per_s, "high": prediction.high_per_s, "predicted_gib": memory_gib}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def lines(sweep: Sweep) -> list[str]:
    """Return a sweep's table for a terminal, with aligned columns."""
    return aligned([list(columns(sweep).values()), *cells(sweep)])


HOST_LIMITS = " If the host is the limit, only a range is given, because at another time the host may be up to 1.5 times as fast or as slow."


def sentence(sweep: Sweep) -> str:
    """Return which value to choose, why, and the source of the predictions."""
    base = sweep.predicted[0].base if sweep.predicted else None
    source = f" Predictions are made from the trace of the run with {base:g}." if base is not None else ""
    limit = HOST_LIMITS if any(prediction.host_limits for prediction in sweep.predicted) else ""
    return fmt.spaced(f"{sweep.why}{source}{limit}")


def cells(sweep: Sweep) -> list[list[str]]:
    """Return the table's rows with rounded numbers."""
    return [
        [cell if isinstance(cell, str) else fmt.MISSING if math.isnan(cell) else fmt.number(cell) for cell in row]
        for row in rows(sweep).itertuples(index=False)
    ]

"""The content of the Live screen: the chosen GPU's lines and numbers, and all GPUs at a glance."""

from __future__ import annotations

from typing import Any

from sawtooth.analysis.telemetry.series import CHART_COLUMNS
from sawtooth.app import format as fmt
from sawtooth.app.charts import live as chart
from sawtooth.app.charts.live import LiveNumber
from sawtooth.app.live import words
from sawtooth.app.live.gpu import LiveGpu
from sawtooth.app.live.sessions import LiveSession
from sawtooth.ingest.quantities.registry import BY_COLUMN

MIN_SECONDS = 10.0  # A picture spans at least this time. Periods of half a second can be distinguished in it.
# Per line: about two per pixel on a phone, and the data of all lines, sent each second, stay below 100 kB.
POINTS_PER_LINE = 600
SPARK_POINTS = 120


def picture(session: LiveSession, gpu: LiveGpu, window_s: float, *, dark: bool, period_s: float | None) -> dict[str, Any]:
    """Return the picture of ``gpu`` over the last ``window_s`` seconds (0 means the whole session).

    A session that is shorter than the window is shown from its start.
    """
    last, first = session.last_ns or 0, session.first_ns or 0
    recorded_s = max((last - first) / 1e9, MIN_SECONDS)
    window = min(window_s or recorded_s, recorded_s)
    lines = {c: _line(session, gpu, c, window, POINTS_PER_LINE) for c in CHART_COLUMNS if c in gpu.series}
    now = {c: words.now_of(gpu, c) for c in lines}
    tiles = [_tile(session, gpu, column, label, value, dark) for column, label, value in words.now_numbers(session, gpu)]
    every = [_at_a_glance(session, other, other is gpu, dark) for other in session.gpus.values()]
    return chart.picture(
        lines, now, window, dark=dark, period_s=period_s, gpus=every if len(every) > 1 else (), tiles=tiles,
        recent_s=words.RECENT_SECONDS,
    )  # fmt: skip


def numbers_of(drawn: dict[str, Any]) -> dict[str, Any]:
    """Return a picture's numbers without its panels."""
    return {**drawn, "panels": []}


def lines_of(drawn: dict[str, Any]) -> dict[str, Any]:
    """Return a picture's panels without its numbers."""
    return {**drawn, "gpus": [], "now": []}


def _line(session: LiveSession, gpu: LiveGpu, column: str, window_s: float, points: int) -> chart.Line:
    last = session.last_ns or 0
    time_ns, value = session.line(gpu.device, column, last - int(window_s * 1e9), points)
    return (time_ns - last) / 1e9, value


def _tile(session: LiveSession, gpu: LiveGpu, column: str, label: str, value: str, dark: bool) -> LiveNumber:
    line = _line(session, gpu, column, words.RECENT_SECONDS, SPARK_POINTS)
    top = 100.0 if BY_COLUMN[column].unit == "%" else gpu.memory_bytes if column == "mem_used_bytes" else None
    return LiveNumber(label, value, chart.points_of(line), chart.colour_of_line(column, dark), top)


def _at_a_glance(session: LiveSession, gpu: LiveGpu, chosen: bool, dark: bool) -> LiveNumber:
    column = gpu.at_work_column
    label, note = f"GPU {gpu.device}", words.memory_sentence(gpu)
    if column is None:
        return LiveNumber(label, "not measured", [], chart.colour_of_line("util_pct", dark), 100.0, note, gpu.device, chosen)
    mean = session.mean(gpu.device, column, words.RECENT_SECONDS)
    value = fmt.share(mean / 100) if mean is not None else "no sample"
    line = _line(session, gpu, column, words.RECENT_SECONDS, SPARK_POINTS)
    return LiveNumber(label, value, chart.points_of(line), chart.colour_of_line(column, dark), 100.0, note, gpu.device, chosen)

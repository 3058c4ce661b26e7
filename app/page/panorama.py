"""The curve at the top of the Verdict: utilization of the whole recording, or a throttled clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sawtooth.analysis import reading_order
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import series, sparkline
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app import format as fmt
from sawtooth.app.page import frame
from sawtooth.app.page.parts import telemetry_strip
from sawtooth.app.theme import ALARM, colour_of_quantity
from sawtooth.app.words import run as run_words
from sawtooth.app.words import telemetry as words
from sawtooth.ingest.quantities.registry import BY_COLUMN

CLOCK, TEMPERATURE = "clock_sm_mhz", "temp_c"
SLOWED_CLOCK_SHARE = 0.95  # Share of the usual clock; times with a lower clock are drawn in the colour of a fault.
# Share of the mean utilization. A step is not drawn where the GPU does less, such as while the profiler starts.
MIN_TYPICAL_SHARE = 0.8
MAX_PEERS = 16  # The median clock comes from this many GPUs. More would hardly change it, and each must be read.

Spans = list[tuple[float, float, float | None]]


def of(result: RunResult) -> dict[str, Any] | None:
    """Return the curve's data: utilization of the whole recording, with one step; None without telemetry.

    If the first finding of telemetry is about one GPU's clock, return that clock, and the median of the other GPUs' clocks.
    """
    if (clock := _clock_of_the_warning(result)) is not None:
        return clock
    telemetry = telemetry_strip.telemetry_of(result, result.lead.device if result.lead else None)
    summary = telemetry_strip.summary_of(result, telemetry) if telemetry is not None else None
    column = telemetry_strip.column_of(telemetry, summary)
    spans = sparkline.panorama(telemetry, column) if telemetry is not None and column is not None else []
    if telemetry is None or column is None or not any(value is not None for *_, value in spans):
        return None
    step = _one_step(result, telemetry, spans)
    colour, length = colour_of_quantity(column), fmt.duration_ns(telemetry.span.ns)
    steady = telemetry_strip.steady(telemetry, summary)
    several = result.lead is None and len(result.telemetry.devices) > 1
    name = BY_COLUMN[column].label + (f" of GPU {telemetry.device}" if several else "")
    return {
        "name": name,
        "length": length
        + (f", means of {fmt.duration_ns(telemetry.span.ns / sparkline.CELLS)}" if len(spans) == sparkline.CELLS else ""),
        "steady": ""
        if step is not None or steady is telemetry
        else f"; steady from {telemetry_strip.axis_range(steady, telemetry)}",  # The headline already has the mean.
        "spans": spans,
        "holes": any(value is None for *_, value in spans),
        "step": step,
        "label": f"one step, {run_words.step_time_text(result)}",
        "light": colour.light,
        "dark": colour.dark,
        "alt": f"{name} over {length}, with one step marked." if step else f"{name} over {length}.",
    }


def _one_step(result: RunResult, telemetry: TelemetrySeries, spans: Spans) -> tuple[float, float] | None:
    """Return the start and end of one step as shares of the recording.

    Its length is the run's step time. It begins where a profiled step begins if trace and telemetry share a clock, else in the
    middle of the steady part. If the GPU does less work there than on average, the step begins at the nearest place with usual
    work. The result is None if no step time is known, or if it is longer than the telemetry.
    """
    step_ms = reading_order.best_ms(result)
    if not step_ms or step_ms * 1e6 > telemetry.span.ns:
        return None
    lead, at = result.lead, None
    if lead is not None and len(lead.counted):
        first = int(lead.counted["start_ns"].iloc[len(lead.counted) // 2])
        if series.overlap(telemetry, TimelineSpan(first, first + round(step_ms * 1e6)), lead.trace.clock):
            at = first
    if at is None:
        steady = telemetry_strip.steady(telemetry, telemetry_strip.summary_of(result, telemetry))
        at = (steady.span.start_ns + steady.span.end_ns) // 2
    length = step_ms * 1e6 / telemetry.span.ns
    start = _with_usual_work(float(np.clip((at - telemetry.span.start_ns) / telemetry.span.ns, 0.0, 1.0)), length, spans)
    return start, min(start + length, 1.0)


def _with_usual_work(start: float, length: float, spans: Spans) -> float:
    """Return ``start``, or the nearest begin of a span with about the mean work of the GPU.

    All places are shares of the recording. The work counts from the place on, for ``length``.
    """
    known = np.array([(begin, end, value) for begin, end, value in spans if value is not None])

    def mean(low: float, high: float) -> float:
        weights = np.clip(np.minimum(known[:, 1], high) - np.maximum(known[:, 0], low), 0.0, None)
        return float(weights @ known[:, 2] / weights.sum()) if weights.sum() > 0 else 0.0

    min_mean = MIN_TYPICAL_SHARE * mean(0.0, 1.0)
    places = [
        start,
        *sorted((float(begin) for begin in known[:, 0] if begin + length <= 1), key=lambda begin: abs(begin - start)),
    ]
    return next((place for place in places if mean(place, place + length) >= min_mean), start)


def _clock_of_the_warning(result: RunResult) -> dict[str, Any] | None:
    """Return the clock of the GPU that the first finding is about, and the median clock of the other GPUs.

    The result is None if the finding is not about one GPU's clock.
    """
    finding, named = words.first_finding(result), words.first_gpu(result)
    if finding is None or named is None or "clock_mhz" not in finding.evidence[0]:
        return None
    own_telemetry = telemetry_strip.read(result, *named)
    spans = sparkline.panorama(own_telemetry, CLOCK) if own_telemetry.has(CLOCK) else []
    other_gpus = [
        device for device in result.telemetry.devices if device.recording_id == named[0] and device.device != named[1]
    ]
    peers = [telemetry_strip.read(result, other.recording_id, other.device) for other in other_gpus[:MAX_PEERS]]
    peer_median = _median(spans, [sparkline.panorama(peer, CLOCK) for peer in peers if peer.has(CLOCK)])
    highest = max((value for *_, value in (*spans, *peer_median) if value is not None), default=0.0)
    if not highest:
        return None
    which = "the other GPU" if len(peers) == 1 else f"the other {len(peers)} GPUs (median)"
    reference = f"{which}{_hottest(peers)}" if peer_median else ""
    name, colour = f"{BY_COLUMN[CLOCK].label} of GPU {named[1]}", colour_of_quantity(CLOCK)
    length, slow = fmt.duration_ns(own_telemetry.span.ns), _throttled_periods(spans, peer_median, highest)
    fault = f"{fmt.in_unit(min(value for *_, value in slow), 'MHz')}{_hottest([own_telemetry])}" if slow else ""
    return {
        "name": name,
        "length": length,
        "spans": _scaled(spans, highest),
        "peers": _scaled(peer_median, highest),
        "reference": reference,
        "slow": [(start, end) for start, end, _ in slow],
        "fault": fault,
        "times": ["0", fmt.duration_ns(own_telemetry.span.ns / 2), length],
        "alarm": ALARM.on(frame.is_dark()),
        "axis": [fmt.in_unit(highest, "MHz"), fmt.number(highest / 2), "0"],
        "holes": any(value is None for *_, value in spans),
        "step": None,
        "light": colour.light,
        "dark": colour.dark,
        "alt": f"{name} over {length}. {'; '.join(filter(None, (fault, reference)))}.",
    }


def _hottest(devices: Sequence[TelemetrySeries]) -> str:
    """Return the highest temperature of ``devices``, such as ", up to 88 °C"; "" if none was sampled."""
    highest = [float(device.samples[TEMPERATURE].max()) for device in devices if device.has(TEMPERATURE)]
    return f", up to {max(highest):.0f}\u00a0°C" if highest else ""


def _throttled_periods(spans: Spans, peer_median: Spans, highest: float) -> list[tuple[float, float, float]]:
    """Return start, end and lowest clock of each period in which the clock is below the usual one."""
    spans_with_peers = [(a, b, value, peer_median[at][2] if peer_median else highest) for at, (a, b, value) in enumerate(spans)]
    slow: list[tuple[float, float, float]] = []
    for a, b, value, normal in spans_with_peers:
        if value is None or value >= SLOWED_CLOCK_SHARE * (normal or highest):
            continue
        if slow and slow[-1][1] == a:
            slow[-1] = (slow[-1][0], b, min(slow[-1][2], value))
        else:
            slow.append((a, b, value))
    return slow


def _median(spans: Spans, peers: list[Spans]) -> Spans:
    """Return the median of the peers' values at the middle of each of ``spans``."""
    lines = []
    middles = [(a + b) / 2 for a, b, _ in spans]
    for peer in peers:
        known_values = [((a + b) / 2, value) for a, b, value in peer if value is not None]
        if known_values:
            lines.append(np.interp(middles, [at for at, _ in known_values], [value for _, value in known_values]))
    if not lines:
        return []
    return [(a, b, float(value)) for (a, b, _), value in zip(spans, np.median(lines, axis=0), strict=True)]


def _scaled(spans: Spans, highest: float) -> Spans:
    """Return ``spans`` in percent of the ``highest`` value, which is the top of the plot."""
    return [(a, b, None if value is None else 100 * value / highest) for a, b, value in spans]

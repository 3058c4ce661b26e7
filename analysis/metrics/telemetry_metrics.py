"""Metrics from telemetry: utilization, tensor activity, sawtooth period, and peak memory.

Peak memory may also come from the allocator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.reading import Reading, Trust, missing, with_caution
from sawtooth.analysis.units import in_words, percent, significant

if TYPE_CHECKING:
    from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
    from sawtooth.analysis.telemetry.summary import DeviceTelemetry

LOW_COVERAGE = 0.9  # A mean over a smaller share of the time has a note and lower trust.
RARE_PERIOD_S = 2.0  # Telemetry with a longer period cannot show steps; typical are W&B's 15 s and Prometheus scrapes of 30 s.
NO_TELEMETRY = "No telemetry is attached. Record it with `sawtooth sample` and drop the file on the run."


def utilization(measured: DeviceMeasurements) -> Reading:
    """Return the mean of NVML's utilization."""
    mean = _mean(measured, "util_pct", "The telemetry has no NVML utilization (MIG instances have none).")
    if mean.value is None or measured.sampled is None or not measured.sampled.zeros_at_work:
        return mean
    share = percent(measured.sampled.zeros_at_work)
    note = (
        f"Utilization is 0 in {share} of the samples whose power shows work. It was not measured there, so the mean is too low."
    )
    return with_caution(mean, note)


def tensor_activity(measured: DeviceMeasurements) -> Reading:
    """Return the mean activity of the tensor pipe from hardware counters."""
    return _mean(
        measured,
        "tensor_active_pct",
        "The telemetry has no tensor activity. NVML measures it on Hopper and newer GPUs (GPM); DCGM also measures it on older data-centre GPUs.",
    )


def _mean(measured: DeviceMeasurements, column: str, absent: str) -> Reading:
    sampled = measured.sampled
    if sampled is None:
        return missing(NO_TELEMETRY)
    mean = sampled.means.get(column)
    if mean is None:
        return missing(absent)
    trust: Trust = "caution" if sampled.coverage < LOW_COVERAGE or sampled.steady.why_none else "ok"
    return _with_time_note(measured, Reading(mean / 100, trust=trust, notes=_notes_on_mean(sampled)))


def _notes_on_mean(sampled: DeviceTelemetry) -> tuple[str, ...]:
    notes = [f"Mean over {sampled.clock_note}."]
    if sampled.steady.why_none:
        notes.append(f"No steady part: {sampled.steady.why_none}.")
    if sampled.coverage < LOW_COVERAGE:
        notes.append(f"{percent(1 - sampled.coverage)} of the time was not sampled. The mean excludes it.")
    return tuple(notes)


def _with_time_note(measured: DeviceMeasurements, reading: Reading) -> Reading:
    """Return telemetry's reading; with a note and lower trust if from another time than the trace."""
    return with_caution(reading, measured.other_time_note) if measured.other_time_note else reading


def sawtooth_period(measured: DeviceMeasurements) -> Reading:
    """Return the period of the sawtooth, with a sentence that describes it as the first note."""
    sampled = measured.sampled
    if sampled is None:
        return missing(NO_TELEMETRY)
    tooth, signal = sampled.sawtooth, sampled.signal
    if tooth.period_s is None:
        rare = sampled.period_s.get("util_pct", 0.0) > RARE_PERIOD_S
        advice = " Sample ten times per second with `sawtooth sample` to see steps." if rare else ""
        return missing(sentence(tooth, signal, None) + advice)
    notes = [
        sentence(tooth, signal, sampled.works_pct),
        f"Found in {signal}: {tooth.cycles:.0f} periods; confidence: {tooth.confidence}.",
    ]
    if tooth.alias_periods_s:
        faster = ", ".join(f"{significant(p)}" for p in tooth.alias_periods_s[:2])
        notes.append(f"The samples are too far apart to exclude a shorter period that looks the same ({faster} s).")
    trust: Trust = "ok" if tooth.confidence == "high" else "caution"
    return _with_time_note(measured, Reading(tooth.period_s, trust=trust, notes=tuple(notes)))


def sentence(tooth: Sawtooth, signal: str | None, works_pct: float | None) -> str:
    """Return a sentence that describes the sawtooth, or why there is none.

    ``works_pct`` is the percentage of time in which the GPU works.
    """
    if tooth.period_s is None:
        if tooth.shortest_visible_s is None:  # There are too few samples for a search.
            return f"It is not known whether {signal or 'activity'} has a sawtooth: {tooth.why_none}."
        limit = (
            f" Periods below {significant(tooth.shortest_visible_s, 2)} s are not visible." if tooth.shortest_visible_s else ""
        )
        return f"No sawtooth in {signal or 'activity'}: {tooth.why_none}.{limit}"
    if works_pct is None:
        return f"{signal or 'Activity'} rises and falls every {significant(tooth.period_s)} s."
    busy = works_pct / 100 * tooth.period_s
    return f"The GPU works {works_pct:.0f} % of each {significant(tooth.period_s)} s ({in_words(busy * 1e3, 2)}) and waits for the rest."


def peak_memory(measured: DeviceMeasurements) -> Reading:
    """Return the largest memory in use: from the allocator, else from telemetry."""
    if measured.allocated_bytes:
        return Reading(measured.allocated_bytes)
    if measured.sampled is not None and measured.sampled.memory_peak_bytes:
        note = "Memory of all processes according to telemetry, including the caching allocator's reserve."
        return _with_time_note(measured, Reading(measured.sampled.memory_peak_bytes, trust="caution", notes=(note,)))
    return missing("Not recorded: profile with `profile_memory=True`, or attach telemetry.")


METRICS = (
    Metric(
        key="peak_memory_bytes", label="Peak memory", unit="bytes", better="neither",
        definition="Largest allocated device memory in the allocator's events, else the largest memory in use in telemetry.",
        source="profile_memory, telemetry.",
        compute=peak_memory,
        from_telemetry=True,
    ),
    Metric(
        key="nvml_gpu_util_mean", label="GPU utilization (NVML)", unit="share", better="higher",
        definition="Time-weighted mean of NVML utilization over the steady part of the run's telemetry, without gaps between samples.",
        source="Telemetry.",
        compute=utilization,
        high=1,
        from_telemetry=True,
    ),
    Metric(
        key="tensor_active_measured", label="Tensor pipe active, measured", unit="share", better="higher",
        definition="Time-weighted mean of the measured tensor-pipe activity (GPM or DCGM). For large matrix products on an H200, it is 1 to 5 percentage points above "
        "achieved FLOP/s ÷ the peak at the SMs' clock, because the pipe also counts as active while it waits for operands.",
        source="Telemetry.",
        compute=tensor_activity,
        high=1,
        from_telemetry=True,
    ),
    Metric(
        key="sawtooth_period_s", label="Sawtooth period", unit="s", better="neither",
        definition="Period of the strongest regular rise and fall of utilization, if there is one.",
        source="Telemetry.",
        compute=sawtooth_period,
        from_telemetry=True,
    ),
)  # fmt: skip

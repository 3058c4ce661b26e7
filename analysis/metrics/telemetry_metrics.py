"""Metrics from telemetry: utilization, tensor activity, sawtooth period, and memory.

Memory may also come from the allocator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.reading import Reading, Trust, lowered, missing
from sawtooth.analysis.units import in_words, percent, significant

if TYPE_CHECKING:
    from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
    from sawtooth.analysis.telemetry.summary import DeviceTelemetry

LOW_COVERAGE = 0.9  # below it, more than 10 % of the time is missing from a mean, and a note says so
RARE_PERIOD_S = 2.0  # slower telemetry cannot show steps; W&B's 15 s and scrapes of 30 s are typical
NO_TELEMETRY = "No telemetry is attached. Record some with `sawtooth sample` and drop it on the run."


def utilization(measured: DeviceMeasurements) -> Reading:
    """Return the mean of NVML's utilization."""
    mean = _mean(measured, "util_pct", "The telemetry has no NVML utilization (MIG instances have none).")
    if mean.value is None or measured.sampled is None or not measured.sampled.zeros_at_work:
        return mean
    share = percent(measured.sampled.zeros_at_work)
    note = f"Utilization is 0 in {share} of the samples whose power is that of work: it was not measured there, and the mean is too low."
    return lowered(mean, note)


def tensor_activity(measured: DeviceMeasurements) -> Reading:
    """Return the mean activity of the tensor pipe from hardware counters."""
    return _mean(
        measured,
        "tensor_active_pct",
        "The telemetry has no tensor activity: NVML measures it from the Hopper generation on (GPM), DCGM on older data-centre GPUs.",
    )


def _mean(measured: DeviceMeasurements, column: str, absent: str) -> Reading:
    sampled = measured.sampled
    if sampled is None:
        return missing(NO_TELEMETRY)
    mean = sampled.means.get(column)
    if mean is None:
        return missing(absent)
    trust: Trust = "caution" if sampled.coverage < LOW_COVERAGE or sampled.steady.why_none else "ok"
    return _of_the_run(measured, Reading(mean / 100, trust=trust, notes=_notes_on_mean(sampled)))


def _notes_on_mean(sampled: DeviceTelemetry) -> tuple[str, ...]:
    notes = [f"Mean over {sampled.clock_note}."]
    if sampled.steady.why_none:
        notes.append(f"No steady part: {sampled.steady.why_none}.")
    if sampled.coverage < LOW_COVERAGE:
        notes.append(f"{percent(1 - sampled.coverage)} of the time was not sampled and is left out.")
    return tuple(notes)


def _of_the_run(measured: DeviceMeasurements, reading: Reading) -> Reading:
    """Return telemetry's reading, with caution if it is from another time than the trace."""
    return lowered(reading, measured.other_time_note) if measured.other_time_note else reading


def sawtooth_period(measured: DeviceMeasurements) -> Reading:
    """Return the period of the sawtooth, with a sentence that describes it."""
    sampled = measured.sampled
    if sampled is None:
        return missing(NO_TELEMETRY)
    tooth, signal = sampled.sawtooth, sampled.signal
    if tooth.period_s is None:
        rare = sampled.period_s.get("util_pct", 0.0) > RARE_PERIOD_S
        advice = " Sample ten times a second with `sawtooth sample` to see steps." if rare else ""
        return missing(sentence(tooth, signal, None) + advice)
    notes = [
        sentence(tooth, signal, sampled.works_pct),
        f"Seen in {signal}, {tooth.cycles:.0f} periods, confidence {tooth.confidence}.",
    ]
    if tooth.alias_periods_s:
        faster = ", ".join(f"{significant(p)}" for p in tooth.alias_periods_s[:2])
        notes.append(f"Samples are too far apart to rule out a faster one that looks the same ({faster} s).")
    trust: Trust = "ok" if tooth.confidence == "high" else "caution"
    return _of_the_run(measured, Reading(tooth.period_s, trust=trust, notes=tuple(notes)))


def sentence(tooth: Sawtooth, signal: str | None, works_pct: float | None) -> str:
    """Return one sentence that describes the sawtooth or why there is none.

    ``works_pct`` is the share of time in which the GPU works.
    """
    if tooth.period_s is None:
        limit = (
            f" Rhythms faster than {significant(tooth.shortest_visible_s, 2)} s cannot be seen."
            if tooth.shortest_visible_s
            else ""
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
        note = "Device memory in use according to telemetry, by all processes and including the caching allocator's reserve."
        return _of_the_run(measured, Reading(measured.sampled.memory_peak_bytes, trust="caution", notes=(note,)))
    return missing("Not recorded: profile with `profile_memory=True`, or attach telemetry.")


METRICS = (
    Metric(
        key="peak_memory_bytes", label="Peak memory", unit="bytes", better="neither",
        definition="Largest allocated device memory seen by the allocator events; else the largest memory in use that telemetry saw.",
        source="profile_memory, telemetry.",
        compute=peak_memory,
        from_telemetry=True,
    ),
    Metric(
        key="nvml_gpu_util_mean", label="GPU utilization (NVML)", unit="share", better="higher",
        definition="Time-weighted mean of NVML utilization over the run's steady telemetry; telemetry gaps are left out.",
        source="Telemetry.",
        compute=utilization,
        high=1,
        from_telemetry=True,
    ),
    Metric(
        key="tensor_active_measured", label="Tensor pipe active, measured", unit="share", better="higher",
        definition="Time-weighted mean of the measured tensor-pipe activity (GPM or DCGM). For large matrix products it lies 1 to 5 points above achieved FLOP/s ÷ "
        "(peak × the clock the SMs ran at), measured on an H200: the pipe is also counted while it waits for operands.",
        source="Telemetry.",
        compute=tensor_activity,
        high=1,
        from_telemetry=True,
    ),
    Metric(
        key="sawtooth_period_s", label="Sawtooth period", unit="s", better="neither",
        definition="Period of the strongest regular rise and fall of utilization, where one is found.",
        source="Telemetry.",
        compute=sawtooth_period,
        from_telemetry=True,
    ),
)  # fmt: skip

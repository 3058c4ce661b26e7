"""The sentences and numbers of the Live screen."""

from __future__ import annotations

import time
from collections import Counter

from sawtooth.analysis.telemetry.series import CHART_COLUMNS
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.summary import SHARES_AT_WORK
from sawtooth.app import format as fmt
from sawtooth.app.charts.telemetry import window
from sawtooth.app.live.gpu import LiveGpu
from sawtooth.app.live.info import SessionInfo
from sawtooth.app.live.sessions import SAWTOOTH_NS, LiveSession
from sawtooth.app.words import telemetry
from sawtooth.ingest.quantities.registry import BY_COLUMN

# The large numbers are means over this time. It covers some steps of a slow loop, so the numbers do not flicker.
RECENT_SECONDS = 10.0
# The share of time at work comes first. Memory is added separately, because its label contains the GPU's total.
NUMBERS = (*SHARES_AT_WORK, *(column for column in CHART_COLUMNS if column not in (*SHARES_AT_WORK, "mem_used_bytes")))
# At most this many processes of a GPU are named. A training has one process; another may be a forgotten notebook.
PROCESSES_NAMED = 2
BUSY_PCT, FULL_MEMORY_SHARE = (
    90.0,
    0.9,
)  # A GPU is busy above this utilization (percent), and its memory is full above this share.
IDLE_PCT = 0.5  # Utilization in percent. Below it, the GPU runs no training.


def duration(seconds: float) -> str:
    """Return seconds as text."""
    return fmt.duration_ns(seconds * 1e9)


def sentence(session: LiveSession, gpu: LiveGpu, sawtooth: Sawtooth | None, *, live: bool) -> str:
    """Return what the GPU does, in one sentence."""
    name = f"GPU {gpu.device}"
    if gpu.signal is None:
        return f"{name} reports no activity."
    column = gpu.at_work_column or gpu.signal.column
    minute_pct = session.mean(gpu.device, column, SAWTOOTH_NS / 1e9)
    if sawtooth is not None and sawtooth.period_s is not None and minute_pct is not None:
        works, waits = ("works", "waits") if live else ("worked", "waited")
        return f"{name} {works} {fmt.share(minute_pct / 100)} of each {duration(sawtooth.period_s)} and {waits} for the rest."
    mean = session.mean(gpu.device, column, RECENT_SECONDS)
    if mean is None:
        return f"{name} has no recent sample."
    if mean < IDLE_PCT:
        return f"{name} {'does' if live else 'did'} nothing in the last {duration(RECENT_SECONDS)}."
    return f"{name} {'is' if live else 'was'} at work {fmt.share(mean / 100)} of the last {duration(RECENT_SECONDS)}."


def sawtooth_sentence(sawtooth: Sawtooth, gpu: LiveGpu) -> str:
    """Return how the signal rose and fell over the last minute, or why there is no sawtooth."""
    description = telemetry.sawtooth(sawtooth, gpu.sawtooth_quantity)
    return f"Over the last minute: {description}" if description else ""


def averages_sentence(session: LiveSession, gpu: LiveGpu) -> str:
    """Return over which times the numbers and the points of the lines are averaged."""
    numbers = f"Numbers are averages of the last {RECENT_SECONDS:g}\u00a0s."
    return f"{numbers} {window(gpu.at_work_column, session.interval_s)}".strip()


def now_numbers(session: LiveSession, gpu: LiveGpu) -> list[tuple[str, str, str]]:
    """Return column, label and mean of the last ten seconds, for measured quantities."""
    numbers = []
    for column in NUMBERS:
        mean = session.mean(gpu.device, column, RECENT_SECONDS)
        if mean is not None:
            quantity = BY_COLUMN[column]
            numbers.append((column, quantity.label[0].upper() + quantity.label[1:], fmt.in_unit(mean, quantity.unit)))
    used = gpu.latest("mem_used_bytes")
    if used is not None:
        numbers.append(("mem_used_bytes", f"Memory{_of_total(gpu)}", fmt.memory(used)))
    return numbers


def _of_total(gpu: LiveGpu) -> str:
    return f" of {fmt.memory(gpu.memory_bytes)}" if gpu.memory_bytes else ""


def now_of(gpu: LiveGpu, column: str) -> str:
    """Return the newest value of a quantity with its unit."""
    value = gpu.latest(column)
    return fmt.in_unit(value, BY_COLUMN[column].unit) if value is not None else ""


def memory_sentence(gpu: LiveGpu) -> str:
    """Return the used memory and its processes, such as "38.1 GiB of 140 GiB, python 37.6 GiB"."""
    used = gpu.latest("mem_used_bytes")
    parts = [f"{fmt.memory(used)}{_of_total(gpu)}"] if used is not None else []
    for name, process_bytes in gpu.processes[:PROCESSES_NAMED]:
        parts.append(f"{fmt.clean(name, 24)} {fmt.memory(process_bytes)}" if process_bytes else fmt.clean(name, 24))
    further_count = len(gpu.processes) - PROCESSES_NAMED
    return ", ".join([*parts, *([f"{further_count} more"] if further_count > 0 else [])])


def utilization_and_memory_sentence(session: LiveSession, gpu: LiveGpu) -> str | None:
    """Return the advice that follows from utilization and memory; None if either is not measured."""
    mean = session.mean(gpu.device, gpu.at_work_column, SAWTOOTH_NS / 1e9) if gpu.at_work_column else None
    used = gpu.latest("mem_used_bytes")
    if mean is None or used is None or not gpu.memory_bytes or mean < IDLE_PCT:
        return None
    free = fmt.memory(gpu.memory_bytes - used)
    if mean >= BUSY_PCT and used >= FULL_MEMORY_SHARE * gpu.memory_bytes:
        return "The GPU is busy, and its memory is nearly full, so a larger batch does not fit."
    if mean >= BUSY_PCT:
        return f"The GPU is busy, and {free} of its memory are free, so a larger batch would fit."
    if used >= FULL_MEMORY_SHARE * gpu.memory_bytes:
        return "The GPU waits, and its memory is nearly full. Give it work faster; a larger batch does not fit."
    return f"The GPU waits, and {free} of its memory are free. Give it work faster, then try a larger batch."


def step_rate_sentence(session: LiveSession, gpu: LiveGpu, sawtooth: Sawtooth | None) -> str | None:
    """Return the step rate from step marks, else from the sawtooth's period, which is usually one step."""
    if session.step_rate is not None and session.last_ns is not None:
        return session.step_rate.sentence(gpu_name=gpu.name, now_ns=session.last_ns)  # The GPU's name gives the peak for MFU.
    return (
        f"About {duration(sawtooth.period_s)} per step, estimated from the sawtooth."
        if sawtooth is not None and sawtooth.period_s
        else None
    )


def about_session(info: SessionInfo, session: LiveSession | None = None, live: bool = False) -> str:
    """Return the name and host of a session, its length, and the age of its newest sample."""
    parts = [fmt.clean(info.name, 40)] if info.name else []
    parts.append(f"{'pushed by ' if info.pushed else ''}{fmt.clean(info.host, 40) or 'unknown host'}")
    if session is None or session.first_ns is None or session.last_ns is None:
        return " · ".join(parts)
    models = Counter(fmt.clean(gpu.name, 40) for gpu in session.gpus.values())
    parts.append(", ".join(f"{count} × {name}" for name, count in models.items()))
    parts.append(f"{session.samples:,} samples over {fmt.duration_ns(session.last_ns - session.first_ns)}")
    if live:
        parts.append(f"newest {max(time.time() - info.grown_s, 0):.0f} s ago")
    else:
        parts.append(f"ended: {session.ended}" if session.ended else "the sampler stopped sending")
    if session.left_out_bytes:
        parts.append(f"the first {fmt.bytes_(session.left_out_bytes)} of samples are not in the charts")
    return " · ".join(parts)

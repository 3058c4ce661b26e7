"""Telemetry in words: the sawtooth, its troughs, the activity metrics, and free memory."""

from __future__ import annotations

from collections.abc import Mapping

from sawtooth.analysis.findings.sampled.from_telemetry import observed_slug
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time_evidence import source_in_words
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.telemetry.host import HostLoad
from sawtooth.analysis.telemetry.signal.energy import Energy
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.app import format as fmt
from sawtooth.app.words import causes as cause_words
from sawtooth.ingest.quantities.registry import BY_COLUMN

MIN_BUSY_UTILIZATION = 0.95  # Share of the time. From here, utilization shows hardly any waiting.
MIN_KWH_J = 3.6e5  # In joules: 0.1 kWh. Less energy is shown in Wh.
MIN_STEADY_SHARE = 0.8  # Share of the sampled time. The text mentions a shorter steady part.
MIN_MAIN_CAUSE_SHARE = 0.5  # Share of the time lost in low stretches. A cause with at least this share explains them.


def first_line(result: RunResult) -> str:
    """Return the first line for a run with telemetry alone: its first finding, else the utilization."""
    if (finding := first_finding(result)) is not None:
        return f"{fmt.spaced(finding.title)}."
    utilization = busiest(result)
    if utilization is None:
        return f"{step(result)}Neither GPU utilization nor a profile was recorded, so nothing shows what the GPU does."
    remark = next((finding.title for finding in result.findings if finding.observed), None)
    if remark is not None:
        return f"{utilization}. {fmt.spaced(remark)}."
    if (result.metrics["nvml_gpu_util_mean"].value or 0.0) >= MIN_BUSY_UTILIZATION:
        return f"{utilization}, so it hardly waits. Record a profile with `sawtooth run` to see how efficiently it works."
    return f"{utilization}. Telemetry does not show why. Record a profile with `sawtooth run`."


def below(result: RunResult) -> str | None:
    """Return the line below a headline of telemetry alone: what the samples show, and the utilization."""
    finding = first_finding(result)
    if finding is None:
        return None
    utilization = busiest(result)
    return " ".join(filter(None, (fmt.spaced(finding.observed), utilization and f"{utilization}.")))


def shown_below(result: RunResult) -> str:
    """Return what the line below the headline repeats of the first finding; "" without a finding."""
    return first.observed if (first := first_finding(result)) is not None else ""


def first_finding(result: RunResult) -> Finding | None:
    """Return the first warning of telemetry; None for a run with a trace, or without a warning."""
    if result.manifest.traces:
        return None
    return next((finding for finding in result.findings if finding.observed and finding.severity != "info"), None)


def job_slowed(result: RunResult) -> str | None:
    """Return how much the GPU of the first finding slows a job on all GPUs; None if this is not known."""
    finding, gpus = first_finding(result), len(result.telemetry.devices)
    row = finding.evidence[0] if finding is not None else {}
    clock, unlimited_clock = row.get("clock_mhz"), row.get("free_clock_mhz")
    if first_gpu(result) is None or not clock or not unlimited_clock or clock >= unlimited_clock:
        return None
    return f"A job on {'both' if gpus == 2 else f'all {gpus:,}'} GPUs then takes up to {fmt.times(unlimited_clock / clock)} as long."


def first_gpu(result: RunResult) -> tuple[str, int] | None:
    """Return recording and number of the first finding's GPU; None if the finding is about all GPUs."""
    finding = first_finding(result)
    row = finding.evidence[0] if finding is not None else {}
    if not row or len(row["devices"]) == sum(device.recording_id == row["recording"] for device in result.telemetry.devices):
        return None
    return str(row["recording"]), int(row["devices"][0])


def busiest(result: RunResult) -> str | None:
    """Return step time and utilization of the busiest GPU in words; None without utilization."""
    util, gpus = result.metrics["nvml_gpu_util_mean"], len(result.telemetry.devices)
    if util.value is None:
        return None
    subject = "The GPU" if gpus == 1 else f"The busiest of {gpus:,} GPUs"
    return f"{step(result)}{subject} was in use {fmt.reading('nvml_gpu_util_mean', util)} of the time{_steady_part(result)}"


def _steady_part(result: RunResult) -> str:
    """Return which part of the samples the mean covers; "" if it covers most of them."""
    sampled = result.telemetry.busiest
    mean = sampled.at_work.get("util_pct") if sampled is not None else None
    if sampled is None or mean is None or result.manifest.traces:
        return ""
    whole_ns = sampled.last_ns - sampled.first_ns
    if mean.seconds * 1e9 >= MIN_STEADY_SHARE * whole_ns:
        return ""
    covered = (
        "" if sampled.coverage >= MIN_STEADY_SHARE else f"{fmt.duration_ns(sampled.coverage * whole_ns)} of samples within "
    )
    return f" (steady part: {fmt.duration_ns(mean.seconds * 1e9)} of {covered}{fmt.duration_ns(whole_ns)})"


def step(result: RunResult) -> str:
    """Return the step time as a sentence with a space after it; "" if it is not known."""
    best_step = result.metrics["best_step_time_ms"]
    return f"A step takes {fmt.reading('best_step_time_ms', best_step)}. " if best_step.value is not None else ""


def sawtooth(tooth: Sawtooth | None, signal: str | None) -> str | None:
    """Return a sentence that describes the sawtooth, or why there is no sawtooth; None without a search."""
    if tooth is None:
        return None
    if tooth.period_s is None and not tooth.why_none:
        return None
    if tooth.period_s is None:
        limit = ""
        if tooth.shortest_visible_s:
            limit = f" A period below {fmt.duration_ns(tooth.shortest_visible_s * 1e9)} cannot be seen."
        return f"No sawtooth in {signal or 'utilization'}: {tooth.why_none}.{limit}"
    parts = [f"{signal or 'Utilization'} rises and falls every {fmt.duration_ns(tooth.period_s * 1e9)}"]
    if tooth.low is not None and tooth.high is not None:
        parts.append(f"between {tooth.low:.0f} and {tooth.high:.0f}\u00a0%")
    if below := below_middle(tooth):
        parts.append(f"and is {below} of the time")
    confidence = f" ({tooth.confidence} confidence)" if tooth.confidence not in (None, "high") else ""
    alias = "; a shorter period is possible, because the samples are far apart" if tooth.alias_periods_s else ""
    return f"{', '.join(parts)}{alias}{confidence}."


def below_middle(tooth: Sawtooth) -> str | None:
    """Return how long a signal is below the middle of its range, such as "below 50 % for 81 %"."""
    if tooth.duty is None or tooth.middle is None:
        return None
    return f"below {tooth.middle:.0f}\u00a0% for {fmt.share(1 - tooth.duty)}"


def trough_cause(result: RunResult, tooth: Sawtooth, signal: str | None) -> tuple[str, str] | None:
    """Return how long the signal is low, and the main cause; None if the profile shows no main cause."""
    troughs_of_run = result.troughs
    below = below_middle(tooth)
    if troughs_of_run is None or not troughs_of_run.causes or tooth.period_s is None or below is None:
        return None
    cause, ns = troughs_of_run.causes[0]
    if ns < MIN_MAIN_CAUSE_SHARE * troughs_of_run.lost_ns:
        return None
    headline = f"{signal or 'Utilization'} is {below} of every {fmt.duration_ns(tooth.period_s * 1e9)}."
    return headline, f"Mostly {cause_words.loses_to('idle', cause)}."


def periods_seen(tooth: Sawtooth) -> str:
    """Return how many periods were seen, and the confidence; "" without a sawtooth."""
    confidence = f", {tooth.confidence} confidence" if tooth.confidence else ""
    return f"{round(tooth.cycles)} periods seen{confidence}." if tooth.period_s is not None and tooth.cycles is not None else ""


def energy(used: Energy | None) -> str | None:
    """Return the energy with its source; None if the energy is not known or too small to show."""
    if used is None or used.joules < 1:
        return None
    amount = f"{fmt.number(used.joules / 3600)}\u00a0Wh"
    if used.joules >= MIN_KWH_J:
        amount = f"{fmt.number(used.joules / 3.6e6)}\u00a0kWh"
    if used.counted:
        return f"{amount} used, measured by the GPU's energy counter"
    return f"≈\u00a0{amount} used, estimated from power samples"


def host_quantities(host: HostLoad) -> list[tuple[str, str, str]]:
    """Return name, mean and meaning of each quantity of the host."""
    means = [(BY_COLUMN[column], mean) for column, mean in host.means.items()]
    return [(quantity.label, fmt.in_unit(mean, quantity.unit), quantity.about) for quantity, mean in means]


def troughs(result: RunResult) -> str | None:
    """Explain the low stretches of a sawtooth; None if neither the profile nor the period explains them."""
    troughs_of_run, lead = result.troughs, result.lead
    if troughs_of_run is None or lead is None:
        return None
    parts = []
    if troughs_of_run.causes:
        cause, ns = troughs_of_run.causes[0]
        is_one = troughs_of_run.count == 1
        stretches, pronoun = ("the low stretch", "it") if is_one else (f"the {troughs_of_run.count} low stretches", "them")
        share, cause_text = fmt.share(ns / troughs_of_run.lost_ns), cause_words.loses_to("idle", cause)
        parts.append(f"The profile covers {stretches}: {share} of the time lost in {pronoun} is {cause_text}.")
    if troughs_of_run.steps is not None:
        steps = "one step" if troughs_of_run.steps == 1 else f"{troughs_of_run.steps} steps"
        comparison = f"does the work of {steps}" if troughs_of_run.by_work else f"is as long as {steps}"
        parts.append(f"One period {comparison}{_one_wait(result, lead, troughs_of_run.steps)}.")
        parts += period_disagreement(lead, troughs_of_run.steps)
    return " ".join(parts) or None


STATEMENTS = "What the samples show, and whether the profile agrees"
OF_NVML = "This table uses NVML's utilization: whole percent, averaged over up to a second. So dips are shorter and less deep in it than in the GPU activity above."
THROTTLED = "Red bars above the clock mark the time in which the driver limits the clock ({})."
# The charts of these quantities come first if the rule has a finding.
QUANTITIES_OF = {
    observed_slug("thermal-throttling"): ("clock_sm_mhz", "temp_c"),
    "hardware-throttling": ("clock_sm_mhz",),
    "low-clock": ("clock_sm_mhz",),
    "gpu-unlike-peers": ("clock_sm_mhz", "temp_c"),
    "host-memory": ("host_mem_used_bytes",),
    observed_slug("memory-growth"): ("mem_used_bytes",),
}
STATES = {"confirmed": "Confirmed", "corrected": "Corrected", "telemetry alone": "From telemetry only"}


def statements(result: RunResult) -> list[str]:
    """Return each statement of the samples with the profile's judgement."""
    return [
        f"{STATES[statement.state]}: {statement.statement.rstrip('.')}. {statement.because}" for statement in result.statements
    ]


MIN_TIME_DIFFERENCE = 0.005  # Share of the step. Times with a smaller difference have equal texts.


def period_disagreement(lead: RankResult, steps: int) -> list[str]:
    """Return a sentence with both step times if the period and the step time disagree.

    ``steps`` is the number of steps in one period.
    """
    period_s, step_ms = lead.telemetry.sawtooth.period_s if lead.telemetry is not None else None, lead.best.ms
    if period_s is None or not step_ms or abs(1e3 * period_s / steps / step_ms - 1) <= MIN_TIME_DIFFERENCE:
        return []
    by_period, by_source = fmt.duration_ns(period_s * 1e9 / steps), fmt.duration_ms(step_ms)
    source_name = source_in_words(lead.best.source, lead.best.evidence)
    return [f"The step is measured twice: {by_period} by the period, {by_source} by {source_name}."]


def _one_wait(result: RunResult, lead: RankResult, steps: int) -> str:
    """Return that each low stretch is one wait for the data loader, as a clause; "" if this is not known."""
    verdict = judge(lead)
    hidden = any("hidden" in finding.explains.topics and "data_wait" in finding.explains.causes for finding in result.findings)
    if not hidden and (verdict is None or verdict.loss is None or verdict.loss.cause != "data_wait"):
        return ""
    if steps == 1:
        return ": each low stretch is one wait for the data loader's next batch"
    return f": each low stretch is one wait for the data loader's next {steps} batches, as when {steps} workers finish together"


# Share of the time. NVML gives whole percents and counts a window with a moment of work as busy, so it may differ by this.
MAX_NVML_DIFFERENCE = 0.05
MEANINGS = {  # The meaning of each sampled activity metric, by column.
    "util_pct": "Time in which any kernel of any process ran, in whole percent.",
    "gr_active_pct": "Time in which the GPU had any work, by its counters.",
    "sm_active_pct": "Time in which a multiprocessor had work, averaged over all multiprocessors. Small kernels leave most multiprocessors empty.",
    "tensor_active_pct": "Time in which the tensor pipe was active. Kernels that multiply no matrices do not use it.",
}


def activities(
    means: Mapping[str, float], metrics: Mapping[str, Reading], busy_of_run: float | None
) -> list[tuple[str, str, str]]:
    """Return name, value and meaning of every activity metric; empty for a single metric.

    ``means`` has the mean of each sampled column in percent. ``busy_of_run`` is the share of the run's step in which the GPU is
    busy, from the trace.
    """
    rows = [
        (BY_COLUMN[column].label, fmt.in_unit(means[column], "percent"), meaning)
        for column, meaning in MEANINGS.items()
        if column in means
    ]
    profiled, nvml = metrics["gpu_busy_share"].value, means.get("util_pct")
    if busy_of_run is not None:
        meaning = "Kernels and copies of this training, from its trace. The Verdict shows this number."
        rows.append(("GPU busy, the run's step", fmt.share(busy_of_run), meaning))
    if profiled is not None and profiled != busy_of_run:
        meaning = f"The busy share of the profiled steps{_compared_with_nvml(profiled, nvml)}"
        rows.append(("GPU busy, as profiled", fmt.share(profiled), meaning))
    rows = [(f"{name[0].upper()}{name[1:]}", value, meaning) for name, value, meaning in rows]
    return rows if len(rows) > 1 else []


def _compared_with_nvml(profiled: float, nvml_pct: float | None) -> str:
    if nvml_pct is None or abs(profiled - nvml_pct / 100) <= MAX_NVML_DIFFERENCE:
        return "."
    if profiled > nvml_pct / 100:
        return ": more than by NVML, because copies count here, and the profiled steps may have waited less than other steps."
    return ": less than by NVML, because the profiler slows the host, and NVML counts short pauses between kernels as work."


MEMORY_BASIS = "Measured by telemetry. All processes count, and so does memory that the caching allocator only reserves."


def in_use(peak_bytes: float, total_bytes: float | None) -> str:
    """Return the peak memory use, and the free memory if the GPU's memory is known."""
    if not total_bytes:
        return f"At most {fmt.memory(peak_bytes)} of GPU memory is in use."
    free_share = fmt.share(max(total_bytes - peak_bytes, 0.0) / total_bytes)
    return f"At most {fmt.memory(peak_bytes)} of {fmt.memory(total_bytes)} of GPU memory is in use: {free_share} stays free."


def use_over_time(low_bytes: float, high_bytes: float) -> str | None:
    """Return the range of the memory use over the recording; None if it stays the same."""
    low, high = fmt.memory(low_bytes), fmt.memory(high_bytes)
    return None if low == high else f"The use lies between {low} and {high}"

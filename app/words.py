"""Sentences that carry numbers: the verdict of a run, in words that are the same on every screen and in the command line."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.judgement import Judgement, explains, judge
from analysis.metrics import METRICS, Reading
from analysis.run_result import Finding, RankResult, RunResult
from analysis.sawtooth import Sawtooth
from analysis.together import Outlook
from app import cause_words
from app import format as fmt
from app.theme import colour_of

_SOURCE = {
    "user": "your stopwatch",
    "telemetry": "telemetry",
    "estimate": "a replay of the trace without the profiler's cost",
    "profile": "the profile",
}


def step_time(verdict: Judgement) -> str:
    """Return the run's step time for people, with ≈ where it is not measured: ≈ 26.4 ms."""
    text = fmt.reading("step_time_best_ms", verdict.step)
    return f"≈ {text}" if verdict.step_source in ("estimate", "telemetry") else text


def first_line(result: RunResult) -> str:
    """Return the first line about a run, whatever it holds."""
    if result.lead is None:
        return no_verdict(result)
    verdict = judge(result.lead)
    return (
        headline(verdict, explains(verdict, result.findings))
        if verdict
        else "The GPU did nothing that the trace links to a launch."
    )


def headline(verdict: Judgement, finding: Finding | None = None) -> str:
    """Return the verdict's first line: where the time goes and what it waits for, by the name of the ``finding`` that explains it."""
    busy = fmt.share(verdict.busy_share)
    per = f"each {step_time(verdict)} step" if verdict.step.value is not None else "the recorded time"
    named = cause_words.of_finding(finding)
    known = (
        named is not None
        and verdict.kind != "unrepresentative"
        and verdict.loss is not None
        and verdict.loss.cause == named.cause
    )
    if finding is not None and named is not None and not known:
        if verdict.kind == "starved":
            return f"The GPU works {busy} of {per}. {named.waits_for}"
        if verdict.step.value:
            share = f"{fmt.share(finding.gain_ms / verdict.step.value)} ({fmt.duration_ms(finding.gain_ms)})"
            return f"The GPU works {busy} of {per}; {share} goes to {named.loses_to}."
    if verdict.kind == "unrepresentative":
        profiled = fmt.reading("step_time_ms", verdict.profiled)
        return f"The GPU works {busy} of {per}. The profiled steps took {profiled} and do not show what it waits for."
    if verdict.kind == "starved":
        return f"The GPU works {busy} of {per}. {cause_words.waits_for(verdict.loss.cause if verdict.loss else None)}"
    if verdict.kind == "loss" and verdict.loss is not None:
        return (
            f"The GPU works {busy} of {per}; {fmt.share(verdict.loss.share)} ({fmt.duration_ms(verdict.loss.ms)}) "
            f"goes to {cause_words.loses_to(verdict.loss.owner, verdict.loss.cause)}."
        )
    return f"The GPU works {busy} of {per}. {_compute(verdict)}"


def _compute(verdict: Judgement) -> str:
    share = verdict.tensor_share_of_compute
    if share is None:
        return "It copies and computes nothing."
    if share >= 0.5:
        return f"{fmt.share(share)} of its compute time is tensor-core work: what is left to gain is in the kernels."
    if share == 0:
        return "None of its compute time uses tensor cores."
    return f"Only {fmt.share(share)} of its compute time uses tensor cores."


def distortion(verdict: Judgement) -> str | None:
    """Return one plain sentence with both step times where the profiler or an unlucky capture separates them, else None."""
    ratio = verdict.distortion
    if ratio is None or verdict.step.value is None or verdict.profiled.value is None:
        return None
    best, profiled = fmt.duration_ms(verdict.step.value), fmt.duration_ms(verdict.profiled.value)
    source = _SOURCE.get(verdict.step_source, verdict.step_source)
    if verdict.step_source == "telemetry":
        return f"The profiled steps took {profiled}, the run takes about {best} a step by {source}: they do not represent it."
    if ratio > 1:
        return (
            f"Under the profiler a step took {profiled}; without it {best}, by {source}. Profiling slows the host, so the trace shows "
            f"{fmt.factor(ratio)} the step: what follows speaks of the run wherever it can."
        )
    return (
        f"The profiled steps took {profiled}; by {source} a step takes {best}. The capture may have missed what slows the run."
    )


def spread(rank: RankResult) -> str | None:
    """Return the range of the counted steps and their number: 31.2 to 31.9 ms, n 3; said to be profiled where another step time stands above it."""
    steps_ms = rank.device_step_ms
    if not steps_ms:
        return None
    which = "" if rank.best.source == "profile" else "profiled: "
    return f"{which}{fmt.duration_ms(min(steps_ms))} to {fmt.duration_ms(max(steps_ms))}, n {len(steps_ms)}"


NO_STEPS = "The trace has no steps, so times are of the whole recorded time."
NO_STEPS_WHY = (
    "Without steps nothing can be said per step, and compared only roughly: no ProfilerStep, optimizer step or repeated annotation was "
    "found. Call `step()` of the profiler after each training step."
)


def no_verdict(result: RunResult) -> str:
    """Return the first line for a run whose traces hold no GPU work."""
    if result.manifest.traces:
        return "The trace shows the host only: why the GPU waits cannot be told from it."
    util = result.metrics["nvml_gpu_util_mean"]
    if util.value is not None:
        return f"The GPU was in use {fmt.reading('nvml_gpu_util_mean', util)} of the time. Telemetry alone does not tell why."
    return "This run has telemetry only: it shows that the GPU waits, and not why."


def subtitle(result: RunResult) -> str:
    """Return what was recorded on what: NVIDIA H200 · torch 2.11 · 3 of 4 steps counted."""
    rank = result.lead
    parts: list[str] = []
    if rank is not None:
        if rank.device_name:
            parts.append(fmt.clean(rank.device_name, 40) + (f" × {len(result.ranks)}" if len(result.ranks) > 1 else ""))
        version = rank.info.get("torch_version")
        if isinstance(version, str) and version:
            parts.append(f"torch {fmt.clean(version, 24)}")
        if len(rank.steps):
            parts.append(f"{len(rank.counted)} of {len(rank.steps)} steps counted")
    kinds = [f"{n} {word}{'s' if n > 1 and word == 'trace' else ''}" for n, word in _counts(result) if n]
    return " · ".join([*parts, " and ".join(kinds)])


def _counts(result: RunResult) -> list[tuple[int, str]]:
    traces = len(result.manifest.traces)
    return [(traces, "trace"), (len(result.manifest.telemetry), "telemetry")]


def step_bar_title(verdict: Judgement) -> str:
    """Return the finding of the bar that shows where a step goes."""
    first = verdict.parts[0]
    name = colour_of(first.owner, first.cause).label
    of = "each step" if verdict.step.value is not None else "the recorded time"
    if verdict.column == "recorded" and verdict.step_source != "profile":
        of = "each profiled step"
    about = "≈ " if verdict.column == "unprofiled" else ""
    start = f"{about}{fmt.share(first.share)} of {of} is {name}"
    second = next((p for p in verdict.parts[1:] if p.lost != first.lost), None)
    if second is None or second.share < 0.01:
        return start
    return f"{start}, {fmt.share(second.share)} {colour_of(second.owner, second.cause).label}"


def mfu_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return what stands under the MFU: the achieved rate."""
    achieved = metrics["achieved_tflops"]
    return f"{fmt.reading('achieved_tflops', achieved)} achieved" if achieved.value is not None else None


def tensor_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return what stands under the tensor-core share: of what, what is unknown, what was measured."""
    parts = ["of compute time"]
    unknown, measured = metrics["tensor_core_unknown_share"], metrics["tensor_active_measured"]
    if unknown.value:
        parts.append(f"{fmt.share(unknown.value)} unknown")
    if measured.value is not None:
        parts.append(f"pipe measured {fmt.reading('tensor_active_measured', measured)} active")
    return ", ".join(parts)


def busy_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return what stands under GPU busy: the utilization that telemetry saw."""
    nvml = metrics["nvml_gpu_util_mean"]
    return f"as profiled; NVML {fmt.reading('nvml_gpu_util_mean', nvml)}" if nvml.value is not None else "as profiled"


def unit_of(rank: RankResult) -> str:
    """Return the unit of times on a screen: per step where there are steps."""
    return "ms per step" if len(rank.counted) else "ms of the recorded time"


def sawtooth(found: Sawtooth | None, signal: str | None) -> str | None:
    """Return what is known of a sawtooth in one sentence, or why there is none; None where nothing was looked at."""
    if found is None:
        return None
    if found.period_s is None:
        visible = (
            f" A period below {fmt.duration_ns(found.shortest_visible_s * 1e9)} cannot be seen."
            if found.shortest_visible_s
            else ""
        )
        return f"No sawtooth: {found.why_none}.{visible}" if found.why_none else None
    parts = [f"{signal or 'Utilization'} rises and falls every {fmt.duration_ns(found.period_s * 1e9)}"]
    if found.low is not None and found.high is not None:
        parts.append(f"between {found.low:.0f} and {found.high:.0f}\u00a0%")
    if found.duty is not None:
        parts.append(f"high for {fmt.share(found.duty)} of the time")
    sure = f" ({found.confidence} confidence)" if found.confidence else ""
    alias = "; samples cannot rule out a faster one" if found.alias_periods_s else ""
    return f"{', '.join(parts)}{alias}{sure}."


def troughs(result: RunResult) -> str | None:
    """Return what the troughs of the sawtooth are, None where neither the profile nor the period tells."""
    found, lead = result.troughs, result.lead
    if found is None or lead is None:
        return None
    parts = []
    if found.causes:
        cause, ns = found.causes[0]
        of = "the trough" if found.count == 1 else f"the {found.count} troughs"
        parts.append(
            f"Of the time lost in {of} under the profile, {fmt.share(ns / found.lost_ns)} is {cause_words.loses_to('idle', cause)}."
        )
    if found.steps is not None:
        steps = "one step" if found.steps == 1 else f"{found.steps} steps"
        known = f"does the work of {steps}" if found.by_work else f"takes as long as {steps}"
        parts.append(f"By its period a tooth {known}{_one_wait(result, lead, found.steps)}.")
    return " ".join(parts) or None


def _one_wait(result: RunResult, lead: RankResult, steps: int) -> str:
    verdict = judge(lead)
    hidden = any(finding.rule == "prefetch-queue-hid-the-loader" for finding in result.findings)
    if not hidden and (verdict is None or verdict.loss is None or verdict.loss.cause != "data_wait"):
        return ""
    if steps == 1:
        return ": each trough is one wait for the data loader's next batch"
    return f": each trough is one wait for the data loader's next {steps} batches, as when {steps} workers finish together"


APART = 0.05  # of the time: NVML counts whole percent, and windows that a moment's work fills


def activities(metrics: Mapping[str, Reading]) -> str | None:
    """Return why NVML's utilization, the trace's busy share and tensor activity differ, with the numbers at hand; None without the first."""
    nvml, busy, tensor = (metrics[key] for key in ("nvml_gpu_util_mean", "gpu_busy_share", "tensor_active_measured"))
    if nvml.value is None:
        return None
    parts = [
        f"NVML's utilization, {fmt.reading('nvml_gpu_util_mean', nvml)}, is the share of time in which any kernel of any process ran."
    ]
    if busy.value is not None:
        seen = fmt.reading("gpu_busy_share", busy)
        if busy.value - nvml.value > APART:
            why = "more: copies count there too, and the profiled steps may have waited less than the run does"
        elif nvml.value - busy.value > APART:
            why = "less: profiling slows the host, and NVML counts pauses between short kernels, and other processes, as work"
        else:
            why = "nearly the same"
        parts.append(f"The trace's busy share of the profiled steps, {seen}, is {why}.")
    if tensor.value is not None:
        active = fmt.reading("tensor_active_measured", tensor)
        parts.append(
            f"The tensor pipe was active {active} of the time: a kernel counts as work whether or not it multiplies matrices."
        )
    return " ".join(parts)


def cautions(count: int) -> str:
    """Return the heading of findings that claim no gain."""
    return f"{count} more worth knowing, with no gain claimed"


def not_checked(rules: int) -> str:
    """Return how many rules were not checked."""
    return f"{rules} rule{'s' if rules > 1 else ''} not checked"


FACTOR_LOSSES = {  # what a small factor of MFU means
    "mfu_factor_busy": "the GPU works only {} of the time",
    "mfu_factor_flop_kernels": "only {} of the busy time goes to products, convolutions and attention",
    "mfu_factor_clock": "the clock is {} of the one the peak is quoted at",
    "mfu_factor_efficiency": "those kernels reach {} of what the clock allows",
}


def mfu_sentence(metrics: Mapping[str, Reading], lowest: str | None) -> str:
    """Return the MFU with the factor that holds it down most."""
    mfu = fmt.reading("mfu", metrics["mfu"])
    about = "≈ " if metrics["mfu"].trust != "ok" else ""
    if lowest is None:
        return f"The run reaches {about}{mfu} of the GPU's dense 16-bit peak."
    value = fmt.reading(lowest, metrics[lowest])
    return f"The run reaches {about}{mfu} of the GPU's dense 16-bit peak; most is lost because {FACTOR_LOSSES[lowest].format(value)}."


def factor_title(metrics: Mapping[str, Reading], lowest: str) -> str:
    """Return the finding of the chart of MFU's factors."""
    return f"{METRICS[lowest].label} is the smallest factor: {fmt.reading(lowest, metrics[lowest])}"


def outlook(found: Outlook) -> str:
    """Return what changes made together bring: 312 ms → ≈ 27 ms a step (11.6 ×) · MFU 0.5 % → ≈ 6 %."""
    step = f"{fmt.duration_ms(found.before_ms)} → ≈ {fmt.duration_ms(found.after_ms)} a step ({fmt.factor(found.speedup)})"
    if found.mfu is None or found.mfu_before is None:
        return step
    return f"{step} · MFU {fmt.share(found.mfu_before)} → ≈ {fmt.share(found.mfu)}"


def outlook_saves(found: Outlook, price_per_gpu_hour: float | None) -> str:
    """Return what they save of a day of training, and of its cost where a price is given."""
    hours = found.saved_hours_a_day
    time = fmt.duration_ns(abs(hours) * 3600e9)
    if hours <= 0:
        return f"Costs ≈ {time} more for each 24 h spent in such steps." if hours else "Saves nothing."
    saved = f"Saves ≈ {time} of each 24 h spent in such steps"
    if not price_per_gpu_hour:
        return f"{saved}."
    saved_cost, day = found.saved_cost_a_day(price_per_gpu_hour), found.cost_of_a_day(price_per_gpu_hour)
    on = f"{found.gpus} GPUs" if found.gpus > 1 else "one GPU"
    return f"{saved}, and ≈ {saved_cost:,.2f} of the {day:,.2f} that a day on {on} costs."


def _inside(label: str) -> str:
    """Return a label as it stands inside a sentence: FLOP stays, Busy becomes busy."""
    return label if label[:2].isupper() else label[0].lower() + label[1:]

"""Sentences about a run's verdict, the same on every screen and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.analysis.metrics.mfu import BY_DTYPE, LOWER_BOUND
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import ESTIMATED, STEP_SOURCES
from sawtooth.analysis.run.model import Finding, NotChecked, RankResult, RunResult
from sawtooth.analysis.run.preview import FirstLook
from sawtooth.analysis.run.verdict import RunJudgement, explains, judge
from sawtooth.app import format as fmt
from sawtooth.app.theme import colour_of
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words import host, telemetry
from sawtooth.ingest.manifest import Manifest


def first_seen(look: FirstLook) -> str:
    """Return what a trace shows before its analysis, such as "NVIDIA H200, 6 steps, GPU busy 97 % …"."""
    parts = [look.gpu or ""]
    if look.steps:
        parts.append("1 step" if look.steps == 1 else f"{fmt.count(look.steps)} steps")
    parts.append("no GPU work" if look.busy_share is None else f"GPU busy {fmt.share(look.busy_share)} of the recording")
    return ", ".join(filter(None, parts))


def step_time(verdict: RunJudgement) -> str:
    """Return the run's step time as text, with ≈ if it is not measured, such as "≈ 26.4 ms"."""
    text = fmt.reading("best_step_time_ms", verdict.step)
    return f"≈\u00a0{text}" if verdict.step_source in ESTIMATED else text


def step_now(result: RunResult) -> str | None:
    """Return the run's step time as text, with or without a GPU; None if it is not known."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is not None:
        return step_time(verdict) if verdict.step.value is not None else None
    step = result.metrics["best_step_time_ms"]
    if result.lead is not None or step.value is None:
        return None
    text = fmt.reading("best_step_time_ms", step)
    return text if step.trust == "ok" else f"≈\u00a0{text}"


def first_line(result: RunResult) -> str:
    """Return the first line about any run."""
    if (check := result.withdrawn_by) is not None or result.lead is None:
        return check.sentence if check is not None else no_verdict(result)
    verdict = judge(result.lead)
    return (
        headline(verdict, explains(verdict, result.findings)) if verdict else "No GPU work in this trace is linked to a launch."
    )


SEVERAL = "several causes, none of which has most of it"


def headline(verdict: RunJudgement, finding: Finding | None = None) -> str:
    """Return the verdict's first line: where the time goes, named by the ``finding`` that explains it."""
    busy = fmt.share(verdict.busy_share)
    per = f"each {step_time(verdict)} step" if verdict.step.value is not None else "the recorded time"
    named = cause_words.of_finding(finding)
    is_known = (
        named is not None
        and named.cause is not None  # otherwise the finding has its own name, and the loss may have several causes
        and verdict.kind != "unrepresentative"
        and verdict.loss is not None
        and verdict.loss.cause == named.cause
    )
    if finding is not None and named is not None and not is_known:
        if verdict.kind == "starved":
            return f"The GPU is busy {busy} of {per}. {named.waits_for}"
        in_no_profiled_step = finding.gain_ms > (verdict.profiled.value or 0.0)
        if verdict.kind == "unrepresentative" and in_no_profiled_step:
            waits = named.waits_for.removeprefix("It ").rstrip(".")
            return f"The GPU is busy {busy} of {per}. Most likely it {waits}, for longer in the run than in the profiled steps."
        if verdict.step.value:
            share = f"{fmt.share(finding.gain_ms / verdict.step.value)} ({fmt.duration_ms(finding.gain_ms)})"
            if named.cause is not None and verdict.loss is not None and finding.gain_ms > verdict.loss.ms:
                # The change also hides time of other causes, because the host then runs ahead of the GPU.
                return f"The GPU is busy {busy} of {per}. Without {named.loses_to}, it takes {share} less."
            return f"The GPU is busy {busy} of {per}; {share} goes to {named.loses_to}."
    hides = finding is not None and "hidden" in finding.explains.topics
    if verdict.kind == "unrepresentative" and finding is not None and hides and finding.explains.causes:
        waits = cause_words.waits_for(finding.explains.causes[0]).removeprefix("It ").rstrip(".")
        sure = "It" if finding.limits_the_step else "Most likely it"
        return f"The GPU is busy {busy} of {per}. {sure} {waits}, which the profiled steps do not show."
    if verdict.kind == "unrepresentative":
        profiled = fmt.reading("step_time_ms", verdict.profiled)
        return f"The GPU is busy {busy} of {per}. The profiled steps took {profiled} and do not show what it waits for."
    if verdict.kind == "starved":
        return f"The GPU is busy {busy} of {per}. {cause_words.waits_for(verdict.loss.cause if verdict.loss else None)}"
    if verdict.kind == "loss" and verdict.loss is not None:
        loss = verdict.loss
        meanwhile = cause_words.meanwhile(loss.owner, loss.cause, loss.ms, loss.transfer_ms)
        lost = fmt.duration_ms(loss.ms)
        if loss.cause is None and loss.owner == "idle":
            return f"The GPU is busy {busy} of {per}; {fmt.share(loss.share)} ({lost}{meanwhile}) goes to {SEVERAL}."
        to = cause_words.loses_to(loss.owner, loss.cause)
        return f"The GPU is busy {busy} of {per}; {fmt.share(loss.share)} ({lost}) goes to {to}{meanwhile}."
    return f"The GPU is busy {busy} of {per}. {_compute(verdict)}"


MIN_UNKNOWN_SHARE = 0.05  # Share of the compute time. A smaller unknown part does not change the answer.


def _compute(verdict: RunJudgement) -> str:
    share = verdict.tensor_share_of_compute
    if share is None:
        return "It only copies data and computes nothing."
    unknown = verdict.tensor_unknown_share
    if unknown == 1:
        return "The trace does not show how much of its compute time uses tensor cores."
    if share < 0.5 and unknown >= MIN_UNKNOWN_SHARE:
        return f"{fmt.share(share)} of its compute time is known to use tensor cores; for {fmt.share(unknown)} it is unknown."
    if share >= 0.5:
        return f"{fmt.share(share)} of its compute time is tensor-core work: the remaining gains are inside the kernels."
    if share == 0:
        return "None of its compute time uses tensor cores."
    return f"Only {fmt.share(share)} of its compute time uses tensor cores."


def distortion(verdict: RunJudgement) -> str | None:
    """Return a sentence with both step times if the profile does not match the run, else None."""
    ratio = verdict.distortion
    if ratio is None or verdict.step.value is None or verdict.profiled.value is None:
        return None
    best, profiled = fmt.duration_ms(verdict.step.value), fmt.duration_ms(verdict.profiled.value)
    source = STEP_SOURCES[verdict.step_source].name
    if not verdict.represented:
        return f"The profiled steps took {profiled}, but {source} shows about {best} per step: the profile is not representative of the run."
    if ratio > 1:
        return (
            f"Under the profiler, a step took {profiled}; without it, {best}, according to {source}. Profiling slows the host, so the trace shows "
            f"{fmt.factor(ratio)} the step. Numbers below describe the run where possible."
        )
    return f"The profiled steps took {profiled}; according to {source} a step takes {best}. The capture may have missed what slows the run."


def spread(rank: RankResult) -> str | None:
    """Return the range and number of the (profiled) counted steps, such as "31.2 to 31.9 ms, 3 steps"."""
    steps_ms = rank.device_step_ms
    if not steps_ms:
        return None
    which = "" if rank.best.source == "profile" else "profiled: "
    return f"{which}{fmt.span_ms(min(steps_ms), max(steps_ms))}, {fmt.many(len(steps_ms), 'step')}"


def lost_to(result: RunResult) -> str:
    """Return the main cause of a step's lost time, as in the first line; "" if it is compute."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.kind not in ("starved", "loss") or verdict.loss is None:
        return ""
    named = cause_words.of_finding(explains(verdict, result.findings))
    if named is not None:
        return named.loses_to
    if verdict.loss.cause in (None, "unattributed") and verdict.loss.owner == "idle":
        return ""
    return cause_words.loses_to(verdict.loss.owner, verdict.loss.cause)


NO_STEPS = "The trace has no steps, so times cover the whole recording."
NO_STEPS_WHY = (
    "Without steps there are no times per step, and comparisons are rough: no ProfilerStep, optimizer step or repeated annotation was "
    "found, and no loop in the host's work. Mark each training step:"
)


def no_verdict(result: RunResult) -> str:
    """Return the first line for a run whose traces have no GPU work."""
    if result.manifest.traces:
        return host.first_line(result.host) if result.host else "The trace contains neither GPU work nor operators."
    if result.telemetry.devices:
        return telemetry.first_line(result)
    sentence = host.of_marks(result) or (f"{telemetry.step(result)}{result.findings[0].title}." if result.findings else "")
    lacks = "No profile" if result.manifest.telemetry else "Neither a profile nor telemetry"
    return sentence or f"{telemetry.step(result)}{lacks} was recorded, so nothing shows where the time goes."


def subtitle(result: RunResult) -> str:
    """Return what was recorded, such as "NVIDIA H200 · torch 2.11 · 3 of 4 steps counted"."""
    rank = result.lead
    parts: list[str] = []
    if rank is not None:
        if rank.device_name:
            parts.append(fmt.clean(rank.device_name, 40) + (f" × {result.gpus:,}" if result.gpus > 1 else ""))
        if rank.trace.torch_version:
            parts.append(f"torch {fmt.clean(rank.trace.torch_version, 24)}")
        if len(rank.steps):
            parts.append(f"{len(rank.counted)} of {len(rank.steps)} steps counted")
    kinds = [fmt.many(n, word) for n, word in _counts(result) if n]
    return " · ".join([*parts, " and ".join(kinds) or _without_profile(result.manifest)])


def _without_profile(manifest: Manifest) -> str:
    return "memory snapshot only" if any(ref.kind == "memory" for ref in manifest.recordings) else "step marks only"


def _counts(result: RunResult) -> list[tuple[int, str]]:
    traces = len(result.manifest.traces)
    return [(traces, "trace"), (len(result.manifest.telemetry), "telemetry file")]


def step_bar_title(verdict: RunJudgement, names: Mapping[str, str]) -> str:
    """Return the bar's largest two parts; ``names`` are the first change's own names of causes."""
    of = "each step" if verdict.step.value is not None else "the recorded time"
    if verdict.column == "recorded" and verdict.step_source != "profile":
        of = "each profiled step"
    prefix = "≈\u00a0" if verdict.column == "unprofiled" else ""
    first, *others = [
        f"{fmt.share(part.share)}{{}}{names.get(part.cause or '') or colour_of(part.owner, part.cause).label}"
        for part in verdict.parts[:2]
        if part is verdict.parts[0] or part.share >= 0.01
    ]
    return ", ".join([f"{prefix}{first.format(f' of {of} is ')}", *(other.format(" ") for other in others)])


def card_note(key: str, metrics: Mapping[str, Reading], rank: RankResult) -> str | None:
    """Return the note below a metric's card on the Verdict, or None."""
    if key == "best_step_time_ms":
        return spread(rank)
    note = {"mfu": _mfu_note, "tensor_core_time_share": _tensor_note, "gpu_busy_share": _busy_note}.get(key)
    return note(metrics) if note is not None else None


def _mfu_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return the note below the MFU: the achieved rate."""
    if (achieved := metrics["achieved_tflops"]).value is None:
        return None
    least = "a lower bound: " if is_lower_bound(metrics) else ""
    note = f"{least}{fmt.reading('achieved_tflops', achieved)} achieved"
    return f"of the {mfu_peak(metrics)}; {note}" if is_by_dtype(metrics) else note


def mfu_fact(metrics: Mapping[str, Reading]) -> tuple[str, str] | None:
    """Return MFU's label and value; the label names the peak if it is not the 16-bit peak."""
    if (mfu := metrics["mfu"]).value is None:
        return None
    return ("MFU, by each operator's dtype" if is_by_dtype(metrics) else "MFU", fmt.reading("mfu", mfu))


def mfu_peak(metrics: Mapping[str, Reading]) -> str:
    """Return the peak with which the MFU compares, such as "16-bit peak"."""
    return "peak of its operators' dtypes" if is_by_dtype(metrics) else "16-bit peak"


def is_by_dtype(metrics: Mapping[str, Reading]) -> bool:
    """Return whether the MFU's peak is the peak of the operators' dtypes, some below 16 bit."""
    return any(BY_DTYPE in note for note in metrics["mfu"].notes)


def is_lower_bound(metrics: Mapping[str, Reading]) -> bool:
    """Return whether FLOPs are missing, so that the MFU is a lower bound."""
    return any(note.startswith(LOWER_BOUND) for note in metrics["flops_per_step"].notes)


def _tensor_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return the note below the tensor-core share: its basis, the unknown part, the measured value."""
    parts = ["of compute time"]
    unknown, measured = metrics["tensor_core_unknown_share"], metrics["tensor_active_measured"]
    if unknown.value:
        parts.append(f"{fmt.share(unknown.value)} unknown")
    if measured.value is not None:
        parts.append(f"pipe measured {fmt.reading('tensor_active_measured', measured)} active")
    return ", ".join(parts)


def _busy_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return the note below GPU busy: NVML's utilization."""
    nvml = metrics["nvml_gpu_util_mean"]
    return f"as profiled; NVML {fmt.reading('nvml_gpu_util_mean', nvml)}" if nvml.value is not None else "as profiled"


def unit_of(rank: RankResult) -> str:
    """Return the unit of times on a screen: per step if there are steps."""
    return "ms per step" if len(rank.counted) else "ms of the recorded time"


def per_step_or_window(rank: RankResult) -> str:
    """Return "per step" for times per step, or "of the recorded time" if no steps are known."""
    return "per step" if len(rank.counted) else "of the recorded time"


def cautions(count: int) -> str:
    """Return the heading of findings that claim no gain."""
    return f"{fmt.many(count, 'remark')} without a predicted gain"


def not_checked(rules: int) -> str:
    """Return how many rules were not checked."""
    return f"{rules} rule{'s' if rules > 1 else ''} not checked"


def why_unchecked(rules: Sequence[NotChecked]) -> list[str]:
    """Return a sentence per reason why rules were not checked."""
    reasons = dict.fromkeys(rule.because for rule in rules)
    named = {because: ", ".join(fmt.heading(rule.rule) for rule in rules if rule.because == because) for because in reasons}
    return [f"{names}: not checked, because {because}" for because, names in named.items()]

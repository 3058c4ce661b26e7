"""Sentences about a run's verdict, for screens, reports and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.analysis.metrics.mfu import BY_DTYPE, LOWER_BOUND
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_sources import ESTIMATED, STEP_SOURCES
from sawtooth.analysis.metrics.step_time_evidence import source_in_words
from sawtooth.analysis.run.model import Finding, NotChecked, RankResult, RunResult
from sawtooth.analysis.run.preview import TracePreview
from sawtooth.analysis.run.verdict import RunJudgement, explains, judge
from sawtooth.app import format as fmt
from sawtooth.app.theme import colour_of
from sawtooth.app.words import causes as cause_words
from sawtooth.app.words import host, telemetry
from sawtooth.ingest.manifest import Manifest


def preview(trace: TracePreview) -> str:
    """Return what a trace shows before its analysis, such as "NVIDIA H200, 6 steps, GPU busy 97 % …"."""
    parts = [trace.gpu or ""]
    if trace.steps:
        parts.append("1 step" if trace.steps == 1 else f"{fmt.count(trace.steps)} steps")
    parts.append("no GPU work" if trace.busy_share is None else f"GPU busy {fmt.share(trace.busy_share)} of the recording")
    return ", ".join(filter(None, parts))


def step_time(verdict: RunJudgement) -> str:
    """Return the run's step time as text, with ≈ if it is not measured, such as "≈ 26.4 ms"."""
    text = fmt.reading("best_step_time_ms", verdict.step)
    return f"≈\u00a0{text}" if verdict.step_source in ESTIMATED else text


def step_time_text(result: RunResult) -> str | None:
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
    """Return the first line about any run: where the step time goes."""
    if result.withdrawn_by is not None:
        return result.withdrawn_by.sentence
    if result.lead is None:
        return no_verdict(result)
    verdict = judge(result.lead)
    if verdict is None:
        return "No GPU work in this trace is linked to a launch."
    return headline(verdict, explains(verdict, result.findings))


def headline(verdict: RunJudgement, finding: Finding | None = None) -> str:
    """Return the verdict's first line: the GPU's busy share, and where the other time goes.

    ``finding`` is the finding that explains the lost time.
    """
    step = f"each {step_time(verdict)} step" if verdict.step.value is not None else "the recorded time"
    busy = f"The GPU is busy {fmt.share(verdict.busy_share)} of {step}"
    rest = _explained_by(finding, verdict) if finding is not None else None
    if rest is not None:
        return busy + rest
    if verdict.kind == "unrepresentative":
        profiled = fmt.reading("step_time_ms", verdict.profiled)
        return f"{busy}. The profiled steps took {profiled} and do not show what it waits for."
    loss = verdict.loss
    if verdict.kind == "starved":
        return f"{busy}. {cause_words.waits_for(loss.cause if loss else None)}"
    if verdict.kind != "loss" or loss is None:
        return f"{busy}. {_compute(verdict)}"
    share, lost = fmt.share(loss.share), fmt.duration_ms(loss.ms)
    transfer_clause = cause_words.transfer_suffix(loss.owner, loss.cause, loss.ms, loss.transfer_ms)
    if loss.cause is None and loss.owner == "idle":
        return f"{busy}; {share} ({lost}{transfer_clause}) goes to several causes, none of which has most of it."
    return f"{busy}; {share} ({lost}) goes to {cause_words.loses_to(loss.owner, loss.cause)}{transfer_clause}."


def _explained_by(finding: Finding, verdict: RunJudgement) -> str | None:
    """Return how the first line continues in the words of ``finding``.

    It is None if the ledger's cause has the same name.
    """
    name, loss, is_unrepresentative = cause_words.of_finding(finding), verdict.loss, verdict.kind == "unrepresentative"
    # A finding with its own name has no cause here, because its loss may have several causes.
    is_loss = name is not None and name.cause is not None and loss is not None and loss.cause == name.cause
    if name is not None and (is_unrepresentative or not is_loss):
        if verdict.kind == "starved":
            return f". {name.waits_for}"
        if is_unrepresentative and finding.gain_ms > (verdict.profiled.value or 0.0):
            return f". Most likely it {_predicate(name.waits_for)}, for longer in the run than in the profiled steps."
        if verdict.step.value:
            share = f"{fmt.share(finding.gain_ms / verdict.step.value)} ({fmt.duration_ms(finding.gain_ms)})"
            if name.cause is not None and loss is not None and finding.gain_ms > loss.ms:
                # The change also hides time of other causes, because the host then runs ahead of the GPU.
                return f". Without {name.loses_to}, it takes {share} less."
            return f"; {share} goes to {name.loses_to}."
    if is_unrepresentative and "hidden" in finding.explains.topics and finding.explains.causes:
        subject = "It" if finding.limits_the_step else "Most likely it"
        waits = _predicate(cause_words.waits_for(finding.explains.causes[0]))
        return f". {subject} {waits}, which the profiled steps do not show."
    return None


def _predicate(sentence: str) -> str:
    return sentence.removeprefix("It ").rstrip(".")


MIN_UNKNOWN_SHARE = 0.05  # Share of the compute time. A smaller unknown part does not change the answer.


def _compute(verdict: RunJudgement) -> str:
    """Return how much of the compute time uses tensor cores, as a sentence."""
    share = verdict.tensor_share_of_compute
    if share is None:
        return "It only copies data and computes nothing."
    unknown = verdict.tensor_unknown_share
    if unknown == 1:
        return "The trace does not show how much of its compute time uses tensor cores."
    if share < 0.5 and unknown >= MIN_UNKNOWN_SHARE:
        return f"{fmt.share(share)} of its compute time is known to use tensor cores; for {fmt.share(unknown)} it is unknown."
    if share >= 0.5:
        return f"{fmt.share(share)} of its compute time is tensor-core work. The remaining gains are inside the kernels."
    if share == 0:
        return "None of its compute time uses tensor cores."
    return f"Only {fmt.share(share)} of its compute time uses tensor cores."


def distortion(verdict: RunJudgement) -> str | None:
    """Return the run's and the profiled step time in words if they differ, else None."""
    ratio = verdict.distortion
    if ratio is None or verdict.step.value is None or verdict.profiled.value is None:
        return None
    best, profiled = fmt.duration_ms(verdict.step.value), fmt.duration_ms(verdict.profiled.value)
    source = STEP_SOURCES[verdict.step_source].name
    if not verdict.represented:
        return f"The profiled steps took {profiled}, but {source} shows about {best} per step. The profile is not representative of the run."
    if ratio > 1:
        return (
            f"Under the profiler, a step took {profiled}; without it, {best}, according to {source}. Profiling slows the host, so a profiled step is "
            f"{fmt.factor(ratio)} as long. Numbers below describe the run where possible."
        )
    return f"The profiled steps took {profiled}; according to {source} a step takes {best}. The capture may have missed what slows the run."


def step_range(rank: RankResult) -> str | None:
    """Return the step time's source, and the range and number of the profiled steps that count.

    An example is "by the period of GPU activity; profiled: 31.2 to 31.9 ms, 3 steps". The profile is not named as a source.
    """
    steps_ms, best = rank.device_step_ms, rank.best
    if not steps_ms:
        return None
    prefix = "" if best.source == "profile" else f"by {source_in_words(best.source, best.evidence)}; profiled: "
    return f"{prefix}{fmt.span_ms(min(steps_ms), max(steps_ms))}, {fmt.many(len(steps_ms), 'step')}"


def main_cause_of_loss(result: RunResult) -> str:
    """Return the main cause of a step's lost time, as in the first line; "" if hardly any time is lost."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.kind not in ("starved", "loss") or verdict.loss is None:
        return ""
    name = cause_words.of_finding(explains(verdict, result.findings))
    if name is not None:
        return name.loses_to
    if verdict.loss.cause in (None, "unattributed") and verdict.loss.owner == "idle":
        return ""
    return cause_words.loses_to(verdict.loss.owner, verdict.loss.cause)


NO_STEPS = "The trace has no steps, so times cover the whole recording."
NO_STEPS_WHY = (
    "Without steps there are no times per step, and comparisons are rough. The trace has no ProfilerStep, optimizer step or repeated "
    "annotation, and no loop in the host's work. Mark each training step:"
)


def no_verdict(result: RunResult) -> str:
    """Return the first line for a run whose traces have no GPU work."""
    if result.manifest.traces:
        return host.first_line(result.host) if result.host else "The trace contains neither GPU work nor operators."
    if result.telemetry.devices:
        return telemetry.first_line(result)
    if (sentence := host.first_line_of_marks(result)) is not None:
        return sentence
    if result.findings:
        return f"{telemetry.step(result)}{result.findings[0].title}."
    missing = "No profile" if result.manifest.telemetry else "Neither a profile nor telemetry"
    return f"{telemetry.step(result)}{missing} was recorded, so nothing shows where the time goes."


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
    return " · ".join([*parts, _files(result.manifest)])


def _files(manifest: Manifest) -> str:
    """Return the number of traces and telemetry files, or what was recorded instead."""
    counts = ((len(manifest.traces), "trace"), (len(manifest.telemetry), "telemetry file"))
    if any(count for count, _ in counts):
        return " and ".join(fmt.many(count, kind) for count, kind in counts if count)
    return "memory snapshot only" if any(ref.kind == "memory" for ref in manifest.recordings) else "step marks only"


def step_bar_title(verdict: RunJudgement, names: Mapping[str, str]) -> str:
    """Return the largest two parts of the step.

    ``names`` are the names that the first change gives to causes.
    """
    step = "each step" if verdict.step.value is not None else "the recorded time"
    if verdict.column == "recorded" and verdict.step_source != "profile":
        step = "each profiled step"
    prefix = "≈\u00a0" if verdict.column == "unprofiled" else ""
    first, *other_parts = [
        (fmt.share(part.share), names.get(part.cause or "") or colour_of(part.owner, part.cause).label)
        for part in verdict.parts[:2]
        if part is verdict.parts[0] or part.share >= 0.01
    ]
    return ", ".join([f"{prefix}{first[0]} of {step} is {first[1]}", *(f"{share} {label}" for share, label in other_parts)])


def mfu_fact(metrics: Mapping[str, Reading]) -> tuple[str, str] | None:
    """Return the label and the value of the MFU; None if it is not known."""
    if (mfu := metrics["mfu"]).value is None:
        return None
    return ("MFU, by each operator's dtype" if is_by_dtype(metrics) else "MFU", fmt.reading("mfu", mfu))


def mfu_peak(metrics: Mapping[str, Reading]) -> str:
    """Return the name of the peak that the MFU refers to."""
    return "peak of its operators' dtypes" if is_by_dtype(metrics) else "16-bit peak"


def is_by_dtype(metrics: Mapping[str, Reading]) -> bool:
    """Return whether the MFU refers to the peak of the operators' dtypes, because some are below 16 bit."""
    return any(BY_DTYPE in note for note in metrics["mfu"].notes)


def is_lower_bound(metrics: Mapping[str, Reading]) -> bool:
    """Return whether FLOPs are missing, so that the MFU is a lower bound."""
    return any(note.startswith(LOWER_BOUND) for note in metrics["flops_per_step"].notes)


def unit_of(rank: RankResult) -> str:
    """Return the unit of a screen's times."""
    return "ms per step" if len(rank.counted) else "ms of the recorded time"


def per_step_or_window(rank: RankResult) -> str:
    """Return the basis of times in words."""
    return "per step" if len(rank.counted) else "of the recorded time"


def remarks_heading(count: int) -> str:
    """Return the heading of findings that claim no gain."""
    return f"{fmt.many(count, 'remark')} without a predicted gain"


def not_checked(rules: int) -> str:
    """Return how many rules were not checked."""
    return f"{rules} rule{'s' if rules > 1 else ''} not checked"


def why_unchecked(rules: Sequence[NotChecked]) -> list[str]:
    """Return a sentence per reason why rules were not checked."""
    names: dict[str, list[str]] = {}
    for rule in rules:
        names.setdefault(rule.because, []).append(fmt.heading(rule.rule))
    return [f"{', '.join(checks)}: not checked, because {because}" for because, checks in names.items()]

"""The headline of a run: the first change and its gain, else where the step time goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sawtooth.analysis.combined_changes import CombinedPrediction, mfu_of
from sawtooth.analysis.metrics.pauses import Pauses
from sawtooth.analysis.reading_order import best_ms, is_healthy, largest_sure_gain, lead_finding, prepared_by
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import explains, judge
from sawtooth.app import format as fmt
from sawtooth.app.words import causes, telemetry
from sawtooth.app.words.efficiency import throttled
from sawtooth.app.words.run import first_line, is_by_dtype, mfu_peak, step_time, step_time_text
from sawtooth.app.words.savings import with_known_mfu

MIN_PAUSE_SHARE = 0.01  # Share of the step. Pauses of less time per step are not mentioned.
_FIRST_CLAUSE = re.compile(r"[;.]\s")
_CUT_OFF = "truncated"  # The diagnostic of a trace that ends before its profile does.

CUT_OFF_EARLY = (  # What happened, why, and what to do.
    "The trace file is cut off and contains no GPU work.",
    "A trace begins with the host's events, and the file ends within them: the job was stopped, or the copy is incomplete.",
    "Copy it again, or let the job write it to the end.",
)


def headline(result: RunResult) -> str:
    """Return the headline, such as "Pad 774 and 50257 to multiples of 64: 65.7 → ≈ 35.1 ms"."""
    if (withdrawn := result.withdrawn_by) is not None and withdrawn.headline is not None:
        return withdrawn.headline
    change = first_change(result)
    if change is None and _ends_before_the_gpu(result):
        return f"{CUT_OFF_EARLY[0]} {CUT_OFF_EARLY[2]}"
    sentence = change[1] if change else healthy(result) or _without_steps(result) or first_line(result)
    return f"{sentence.rstrip('.')}. The trace file is cut off." if is_cut_off(result) else sentence


def on_poster(result: RunResult) -> str:
    """Return the headline above the poster: the first change without times.

    The poster shows the times.
    """
    if result.withdrawn_by is not None:
        return headline(result)
    change = first_change(result)
    if change is None and (sentence := _without_steps(result)) is not None and not is_cut_off(result):
        return sentence.partition(":")[0]  # The line below has the share.
    if change is None or change[0].claims != "gain" or change[0].ends_the_run:
        return headline(result)
    return _headline_with_limits(_whole_action(change[0], result), change[:1], result)


def _headline_with_limits(sentence: str, changes: Sequence[Finding], result: RunResult) -> str:
    """Return ``sentence`` with the limits of the prediction, and a note if the trace is cut off."""
    cut_off = ". The trace file is cut off." if is_cut_off(result) else ""
    return f"{sentence}{_limits(changes)}{cut_off}"


def _limits(changes: Sequence[Finding]) -> str:
    """Return the limits of a prediction in brackets; "" without limits."""
    limits = ["low confidence"] if any(change.confidence == "low" for change in changes) else []
    if len(changes) == 1 and changes[0].may_gain_nothing:
        limits.append("may gain nothing")
    return f" ({', '.join(limits)})" if limits else ""


def below(result: RunResult, included: Sequence[Finding] = ()) -> str | None:
    """Return the line below the headline, or None.

    The line says where the time goes, unless the headline does. For a healthy run, it says what might help. If the headline
    names ``included`` changes, a finding that memory will run out is in this line. Long pauses between steps are
    mentioned.
    """
    return " ".join(filter(None, (_below(result, included), between_steps(result)))) or None


def between_steps(result: RunResult) -> str | None:
    """Return the times of alternating steps and of pauses between steps, or None.

    An example is "Evaluation takes 1.4 ms of the step on average: 84 ms every 60 steps".
    """
    if result.lead is None:
        return result.host.round.sentence if result.host is not None and result.host.round is not None else None
    best, step_ms = result.lead.best, result.lead.best.ms
    if not step_ms:
        return None
    # Pauses of only some ranks have a finding of their own, because the other ranks wait for them.
    of_all_ranks = [pause for pause in best.pauses if not pause.ranks and pause.ms_per_step >= MIN_PAUSE_SHARE * step_ms]
    pauses = [_pause_in_words(pause, step_ms) for pause in of_all_ranks]
    return " ".join([*([best.round.sentence] if best.round is not None else ()), *pauses]) or None


def _pause_in_words(pauses: Pauses, step_ms: float) -> str:
    if pauses.reason == "unknown":
        share = fmt.share(pauses.share(step_ms))
        return f"Pauses between steps are not included in these times: {pauses.length_text}, {pauses.frequency_text} ({share} of the run)."
    activity = "Evaluation" if pauses.reason == "evaluation" else "Writing checkpoints"
    mean, length = fmt.duration_ms(pauses.ms_per_step), f"{fmt.duration_ms(pauses.mean_ms)} {pauses.frequency_text}"
    if pauses.in_step:
        return f"{activity} takes {mean} of the step on average: {length}."
    return f"{activity} is not included in these times: {length} ({mean} per step on average)."


def _below(result: RunResult, included: Sequence[Finding]) -> str | None:
    if (withdrawn := result.withdrawn_by) is not None:
        return f"{withdrawn.sentence} {withdrawn.advice}".strip()
    change = first_change(result)
    if included:
        if change is not None and change[0].ends_the_run:
            return headline(result)
        return _reason(included[0], result) if len(included) == 1 else first_line(result)
    if change is not None and "late_rank" in change[0].explains.topics:
        return f"{change[0].title}."  # The cause of the lead's time does not explain why the other ranks wait.
    if change is not None:
        return _reason(change[0], result)
    if _ends_before_the_gpu(result) or _without_steps(result) is not None:
        return first_line(result)
    if is_cut_off(result):
        return CUT_OFF_EARLY[2]
    return _might_help(result) if healthy(result) else telemetry.below(result)


def _reason(finding: Finding, result: RunResult) -> str:
    """Return why ``finding`` is advised: the run's first line if it names the cause, else the title."""
    line, verdict = first_line(result), judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.step.value is None or finding.ends_the_run:
        return line
    if "hidden" in finding.explains.topics and verdict.kind == "unrepresentative":  # The line is about the hidden time.
        return line
    cause = verdict.loss.cause if verdict.kind in ("starved", "loss") and verdict.loss is not None else None
    is_named = explains(verdict, result.findings) is finding and causes.of_finding(finding) is not None
    if is_named or (cause is not None and cause in finding.explains.causes):
        return line
    return f"{finding.title}. {_FIRST_CLAUSE.split(line, maxsplit=1)[0].rstrip('.')}."


def _without_steps(result: RunResult) -> str | None:
    """Return what to do about a recording without steps, for which no finding can predict a gain."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.step.value is not None or verdict.kind not in ("starved", "loss"):
        return None
    loss = verdict.loss
    loss_action = causes.action(loss.owner, loss.cause) if loss is not None else None
    if loss is not None and loss_action is not None:
        return f"{loss_action}: {fmt.share(loss.share)} of the recorded time goes to {causes.loses_to(loss.owner, loss.cause)}"
    finding = next((finding for finding in result.findings if "marks_steps" in finding.explains.topics), None)
    if finding is None:
        return None
    return f"{action(finding)}: the GPU is busy {fmt.share(verdict.busy_share)} of the recorded time"


def healthy(result: RunResult) -> str | None:
    """Return a sentence about a healthy run, with the largest certain gain; None for other runs."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or not verdict.step.value or not is_healthy(result):
        return None
    share = largest_sure_gain(result.findings) / verdict.step.value
    gain = f"no change is certain to save more than {fmt.share(share)}" if share else "no change is certain to shorten the step"
    peak = f"the {mfu_peak(result.metrics)}" if is_by_dtype(result.metrics) else "its 16-bit peak"
    mfu = f"reaches {fmt.reading('mfu', result.metrics['mfu'])} of {peak}{throttled(result)}"
    busy = f"the GPU is busy {fmt.share(verdict.busy_share)} of each {step_time(verdict)} step and {mfu}"
    return f"Healthy: {busy}; {gain}."


def _might_help(result: RunResult) -> str:
    """Return an uncertain change that may still help a healthy run, or else the run's first line."""
    step_ms, unsure = best_ms(result), [f for f in result.findings if f.confidence == "low" and f.claims == "gain"]
    if not step_ms or not unsure:
        return first_line(result)
    finding = max(unsure, key=lambda finding: finding.gain_ms)
    times = fmt.step_change(step_ms, finding.predicted_step_ms or step_ms, about=about_now(result))
    return f"What might still help: {action(finding)}, {times} (low confidence)."


def tab_title(result: RunResult, sentence: str = "") -> str:
    """Return the title of the browser's tab: ``sentence`` or else the headline, and the run."""
    return f"{fmt.clean((sentence or headline(result)).rstrip('.'))} · {fmt.clean(result.manifest.name, 40)}"


def action(finding: Finding) -> str:
    """Return the short action of a finding, such as "Use the fused optimizer"."""
    return finding.action.short


def first_change(result: RunResult) -> tuple[Finding, str] | None:
    """Return the headline's change and its sentence; None if no change is certain to gain."""
    lead = lead_finding(result)
    return (lead, _claim_in_words(lead, result)) if lead else None


def _whole_action(finding: Finding, result: RunResult) -> str:
    """Return the action of ``finding``, after the action of the change that must come first."""
    first = prepared_by(finding, result)
    if first is None:
        return action(finding)
    return f"{action(first)}, then {action(finding)[0].lower()}{action(finding)[1:]}"


def _after(finding: Finding, result: RunResult) -> float | None:
    """Return the step time in ms after ``finding``.

    If the plan begins with its prerequisite and then ``finding``, both are made.
    """
    first = prepared_by(finding, result)
    if first is not None and [step.rule for step in result.plan[:2]] == [first.rule, finding.rule]:
        return result.plan[1].predicted_step_ms
    return finding.predicted_step_ms


def forecast(result: RunResult) -> CombinedPrediction | None:
    """Return the prediction for the headline's change; None if no gain is claimed."""
    change, step_ms = first_change(result), best_ms(result)
    if change is None or not step_ms:
        return None
    finding = change[0]
    after_ms = _after(finding, result)
    if finding.claims != "gain" or not after_ms:
        return None
    gpus = max(result.gpus, 1)
    if result.lead is None:
        return CombinedPrediction(step_ms, after_ms, None, gpus)
    metrics = result.lead.metrics
    return with_known_mfu(CombinedPrediction(step_ms, after_ms, mfu_of(result.lead, [finding]), gpus), metrics)


def _ends_before_the_gpu(result: RunResult) -> bool:
    return result.lead is None and is_cut_off(result)


def about_now(result: RunResult) -> str:
    """Return ≈ if the run's step time is estimated, else ""."""
    return fmt.APPROXIMATELY if (step_time_text(result) or "").startswith(fmt.APPROXIMATELY) else ""


def _claim_in_words(finding: Finding, result: RunResult) -> str:
    whole_action, step_ms, after_ms = _whole_action(finding, result), best_ms(result), _after(finding, result)
    if finding.ends_the_run or not step_ms:
        return finding.title
    limits, batch_ms = _limits([finding]), finding.fed_every_ms
    if finding.claims == "gain" and after_ms is not None:
        by_loader = ", limited by the loader" if batch_ms is not None else ""
        return f"{whole_action}: {fmt.step_change(step_ms, after_ms, about=about_now(result))}{by_loader}{limits}"
    by_loader = f", because the loader needs at least {fmt.duration_ms(batch_ms)} per batch" if batch_ms is not None else ""
    now = f"{about_now(result)}{fmt.duration_ms(step_ms)}"
    return f"{whole_action}: up to {fmt.duration_ms(finding.gain_ms)} of each {now} step{by_loader}{limits}"


def is_cut_off(result: RunResult) -> bool:
    """Return whether a trace of the run ends before its profile does."""
    return any(diagnostic.key == _CUT_OFF for diagnostic in result.diagnostics)

"""The waits that a change shortens, in words: those that its cause names, and the others."""

from __future__ import annotations

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.staircase import StairStep
from sawtooth.app.words.answer.step import MAX_NAMED, MIN_EXPLAINED_SHARE, MIN_WAIT_SHARE, answer_of, avoided_ms

MIN_ALSO = 0.1  # Share of the gain. Shorter waits do not help to understand the gain.

Shortened = tuple[float, float, str, str | None]  # Ms now, ms saved, owner, cause.


def _shortened(result: RunResult, now: StairStep, after: StairStep) -> list[Shortened]:
    """Return every wait of the step now, with the time that a change saves of it."""
    verdict = judge(result.lead) if result.lead is not None else None
    lost = {(part.owner, part.cause) for part in verdict.parts if part.lost} if verdict is not None else set()
    after_ms = {(owner, cause): ms for owner, cause, ms in after.parts}
    return [
        (ms, ms - after_ms.get((owner, cause), 0.0), owner, cause) for owner, cause, ms in now.parts if (owner, cause) in lost
    ]


def _named_waits(finding: Finding, result: RunResult, now: StairStep, after: StairStep) -> list[Shortened]:
    """Return the waits that the cause names instead of the finding's title; none if the title is enough."""
    waits = _shortened(result, now, after)
    saved_ms = sum(saved for _, saved, _, _ in waits)
    named = [wait for wait in waits if wait[1] >= MIN_WAIT_SHARE * saved_ms > 0]
    if len(named) < 2 or avoided_ms(now, after) > saved_ms or all(cause in finding.explains.causes for *_, cause in named):
        return []
    return sorted(named, key=lambda wait: -wait[0])


def waits_shortened(finding: Finding, result: RunResult, now: StairStep, after: StairStep) -> str:
    """Return the waits that a change shortens, as a sentence.

    It is "" if its finding names all of them, or if the change avoids more compute than waits.
    """
    named, answer = _named_waits(finding, result, now, after), answer_of(result, result.lead)
    if not named or answer is None:
        return ""
    return f"Of each step, the GPU waits {answer.waits_in_words([(owner, cause, ms) for ms, _, owner, cause in named])}."


def also_removed(finding: Finding, result: RunResult, now: StairStep, after: StairStep) -> str:
    """Return the other waits that a change removes, as a sentence; "" if its cause names all of them.

    It is also "" if the finding is not about waits.
    """
    if not finding.explains.causes or "late_rank" in finding.explains.topics:
        return ""
    named, answer = _named_waits(finding, result, now, after), answer_of(result, result.lead)
    other_waits = [
        wait
        for wait in _shortened(result, now, after)
        if wait not in named and wait[3] not in finding.explains.causes and wait[1] >= MIN_ALSO * (now.ms - after.ms) > 0
    ]
    if not other_waits or answer is None:
        return ""
    longest = sorted(other_waits, key=lambda wait: -wait[1])[:MAX_NAMED]
    return f"The change also removes waits of {answer.waits_in_words([(owner, cause, ms if saved >= MIN_EXPLAINED_SHARE * ms else saved) for ms, saved, owner, cause in longest])}."

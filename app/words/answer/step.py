"""The parts of a step: the times and names that Verdict, Timeline, Idle and Work all show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sawtooth.analysis import reading_order
from sawtooth.analysis.derive.lost.uneven import UnevenWait
from sawtooth.analysis.knowledge.lost_time import is_explained, known_by
from sawtooth.analysis.knowledge.owners import AVOIDABLE, OUTSIDE_PROFILE
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import StepPart, judge
from sawtooth.analysis.staircase import StairStep
from sawtooth.app import format as fmt
from sawtooth.app.theme import colour_of
from sawtooth.app.words import causes
from sawtooth.app.words.run import step_time

MIN_EXPLAINED_SHARE = 0.9  # Share of a wait. A finding that explains at least this much may name the wait.
MAX_WORKING_SHARE = 0.95  # Share of the step in which the GPU works. Above it, no wait needs a sentence.
MIN_MAIN_SHARE = 0.5  # Share of all waits. A wait of at least this share is named next to the sum of all waits.
MIN_WAIT_SHARE = 0.25  # Share of all waits. A shorter wait is not named.
MIN_REST_SHARE = 0.001  # Share of the step. If all other waits are shorter, the text would show one number twice.
MAX_NAMED = 2  # Waits in a sentence.
UNTRUSTED = "GPU times of this recording cannot be trusted."

PHRASES = {  # These texts stand after a time, if the label of the cause does not fit after "for".
    "data_wait": "for the data loader",
    "allocator": "for the allocator",
    "blocking_copy": "for blocking copies",
    "host_sync": "for the host, which waits for a result (sync)",
    "comm_wait": "for another rank or stream",
    "launch_latency": "in gaps between kernels",
}

Wait = tuple[str, str | None, float]  # Owner, cause, ms.


@dataclass(frozen=True)
class StepAnswer:
    """The parts of a device's step (or of the recorded time), which sum to ``step_ms``.

    ``step`` is the step in words. ``names`` are the names that the first change gives to waits, by cause. ``uneven`` are the waits
    that only a few steps have, by cause.
    """

    step_ms: float
    step: str
    parts: tuple[StepPart, ...]
    names: Mapping[str, str]
    uneven: Mapping[str, UnevenWait]

    @property
    def waits_ms(self) -> float:
        """The time in ms in which the GPU computes nothing."""
        return sum(part.ms for part in self.parts if part.lost)

    @property
    def works_ms(self) -> float:
        """The rest of the step in ms."""
        return self.step_ms - self.waits_ms

    @property
    def works(self) -> str:
        """How long the GPU works in a step, as a sentence."""
        return f"The GPU works {fmt.part_ms(self.step_ms, self.works_ms)} of {self.step}."

    @property
    def waits(self) -> str:
        """The longest waits, as a sentence; "" if the GPU hardly waits."""
        if self.works_ms >= MAX_WORKING_SHARE * self.step_ms:
            return ""
        waits = sorted((part for part in self.parts if part.lost), key=lambda part: -part.ms)
        long_waits = [part for part in waits if part.ms >= MIN_WAIT_SHARE * self.waits_ms] or waits
        return f"It waits {self.waits_in_words([(part.owner, part.cause, part.ms) for part in long_waits[:MAX_NAMED]])}."

    @property
    def main_wait(self) -> str:
        """The longest wait and the rest, such as ": data loader 613 ms, others 10.2 ms".

        It is "" if the longest wait is less than half of all waits, or if there is no other wait.
        """
        waits: dict[str, float] = {}
        for part in self.parts:
            if part.lost:
                name = self.label(part.owner, part.cause)
                waits[name] = waits.get(name, 0.0) + part.ms
        name = max(waits, key=lambda name_of_wait: waits[name_of_wait], default="")
        rest_ms = self.waits_ms - waits.get(name, 0.0)
        if not name or waits[name] < MIN_MAIN_SHARE * self.waits_ms or rest_ms < MIN_REST_SHARE * self.step_ms:
            return ""
        return f": {name} {fmt.part_ms(self.step_ms, waits[name])}, others {fmt.part_ms(self.step_ms, rest_ms)}"

    def label(self, owner: str, cause: str | None) -> str:
        """Return the name of the part of ``owner`` and ``cause``."""
        return self.names.get(known_by(owner, cause)) or colour_of(owner, cause).label

    def waits_in_words(self, waits: Sequence[Wait]) -> str:
        """Return waits in words, such as "5.19 ms for kernel launches and 0.3 ms in gaps between kernels"."""
        return " and ".join(self._wait(owner, cause, ms) for owner, cause, ms in waits)

    def _wait(self, owner: str, cause: str | None, ms: float) -> str:
        """Return a wait in words; an uneven wait also has its times in the slow steps and in the other steps."""
        time, wait = fmt.part_ms(self.step_ms, ms), self.uneven.get(cause or "")
        if wait is None or not wait.mean_ms:
            return f"{time} {self._reason(owner, cause)}"
        scale = ms / wait.mean_ms
        slow, other = (fmt.part_ms(self.step_ms, scale * wait_ms) for wait_ms in (wait.slow_ms, wait.other_ms))
        distribution = f"({slow} in {wait.slow} of {wait.steps} steps, {other} in the others)"
        return f"{time} on average {self._reason(owner, cause)} {distribution}"

    def _reason(self, owner: str, cause: str | None) -> str:
        if owner == OUTSIDE_PROFILE:
            return "outside the profiled steps"
        if is_explained(cause):
            return (PHRASES.get(cause or "") if cause not in self.names else "") or f"for {self.label(owner, cause)}"
        return "for a cause that the trace does not show" if owner == "idle" else f"for {causes.loses_to(owner, cause)}"


def answer_of(result: RunResult, rank: RankResult | None) -> StepAnswer | None:
    """Return the parts of a device's step; None if they are not known."""
    verdict = judge(rank) if rank is not None else None
    if rank is None or verdict is None or result.withdrawn_by is not None:
        return None
    total_ms = sum(part.ms for part in verdict.parts)
    step_ms = verdict.step.value or total_ms
    parts = tuple(
        StepPart(part.owner, part.cause, part.ms * step_ms / total_ms, part.share, part.transfer_ms * step_ms / total_ms)
        for part in verdict.parts
    )
    step = f"each {step_time(verdict)} step" if verdict.step.value else f"the recorded {fmt.duration_ms(total_ms)}"
    return StepAnswer(step_ms, step, parts, own_names(result, parts) if rank is result.lead else {}, rank.uneven)


def own_names(result: RunResult, parts: Sequence[StepPart]) -> dict[str, str]:
    """Return the name that the first change gives to the waits that it explains, by cause."""
    lead = reading_order.lead_finding(result)
    name = lead.explains.called if lead is not None else None
    if lead is None or not name:
        return {}
    explained = [part for part in parts if part.cause in lead.explains.causes and lead.gain_ms >= MIN_EXPLAINED_SHARE * part.ms]
    return {part.cause: name for part in explained if part.cause is not None}


def own_names_in_words(result: RunResult, run: str) -> list[str]:
    """Return a sentence for each wait of ``run`` with a name that the first change gives."""
    answer = answer_of(result, result.lead)
    names = answer.names if answer is not None else {}
    labels = {cause: colour_of("idle", cause).label for cause in names}
    return [f"{labels[cause][0].upper()}{labels[cause][1:]} in {run}: {name}." for cause, name in names.items()]


def avoided_ms(now: StairStep, after: StairStep) -> float:
    """Return how much compute in ms a change avoids; 0 if the chart has no separate part for it."""
    before_ms, after_ms = (sum(ms for owner, _, ms in step.parts if owner == AVOIDABLE) for step in (now, after))
    return before_ms - after_ms


def avoided_in_words(now: StairStep, after: StairStep) -> str:
    """Return ``avoided_ms`` as a sentence; "" if it is 0."""
    ms = avoided_ms(now, after)
    return f"The change avoids {fmt.part_ms(now.ms, ms)} of compute." if ms > 0 else ""

"""How sure a change is: one table, from what the two step times leave open. Headline, rows, reports and gates all read what it says.

=====================================================================  ======================  ==========================
the 95 % interval of the change                                        word                    confidence
=====================================================================  ======================  ==========================
both sides are one recording                                           no_difference_shown     high
the sides are of different programs                                    inconclusive            low
a step time is not known                                               inconclusive            low
one command, nothing changed that is known, in fewer than 3 runs       faster or slower        low
excludes 0; its near end is at least 5 %, and twice the floor          faster or slower        high
excludes 0; the change is at least 2 % and the floor                   faster or slower        medium
excludes 0, or the step times are from one source; recorded steps      faster or slower        low
of one side do not reach the other's
a change of 10 % could have been seen                                  no_difference_shown     by what could have been seen
otherwise                                                              inconclusive            low
=====================================================================  ======================  ==========================

Whatever the word, how sure it is has a limit: where the interval leaves open a ratio of the step times that is more than 1.5 times as high at one end as
at the other, it is of medium confidence at most, and above 3 times of low.

The near end is the end of the interval next to 0, as a share of the faster side. The floor is what the sides may differ by with nothing changed:
10 % where their step times come from two sources or from telemetry, all of a step where they are profiled steps alone, since the profiler slows one
program more than another. Of single runs that their hosts limit nothing is surer than with a floor of 10 %: a host's own speed varies; of those that compute on it, with one of 150 %. How many steps are recorded does not count where the step times have intervals of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sawtooth.analysis.compare.significance.change_interval import Interval, holds_zero

Word = Literal["faster", "slower", "no_difference_shown", "inconclusive"]
Confidence = Literal["high", "medium", "low"]

MIN_CHANGE = 0.02  # run-to-run noise of one machine reaches 2 % with nothing changed
SURE_OF_NONE = 0.05  # a pair that would have shown a 5 % change and did not is worth a plain no
CLEAR = 0.05  # the least that the change may be: beyond what a second recording of either program adds
NARROW, WIDE = 1.5, 3.0  # times, from one end of the ratio's interval to the other: more leaves it open how much faster
SURE_OF_SOME = 0.10  # five times the 2 % by which two recordings of one program may differ

OF_ESTIMATES = "The interval is what is known of both step times, widened to 95 %."
ERR_ALIKE = (
    "It includes 0 because it takes the two to err independently; both come from the same source, and so they err alike."
)
NOT_KNOWN = "The step times are not known well enough to tell which side is faster."
UNBOUNDED = "On one side nothing bounds the step time from above."
OTHER_MODEL = "Their matrix products have different shapes, so the step times do not show the effect of a change."
OTHER_PROGRAM = "Hardly a kernel of one side runs in the other: A and B are different programs, so the step times do not show the effect of a change."
ONE_COMMAND = (
    "Nothing that was changed is known: the same command ran twice, no other work of the GPU is seen, and a host's own speed varies from run to run. "
    "Record both sides again to be sure."
)
HOW_MUCH = "That it changed is clear; by how much is not."
TWO_SOURCES = "The two step times come from different sources, which alone may differ by 10 % and more."


@dataclass(frozen=True)
class Verdict:
    """What may be said of B against A, and why. Shares are of the faster side, so that swapping the sides keeps them.

    ``ci95_ms`` is the interval of the change in ms (None only where a side has no step time; an end of it is None where nothing bounds the
    change); ``smallest_visible_share`` is the change that such a pair shows four times out of five (None where nothing can be said);
    ``noise_floor_share`` is by how much the recordings differ from themselves.
    """

    word: Word
    confidence: Confidence
    why: str
    ci95_ms: Interval | None = None
    noise_floor_share: float = 0.0
    smallest_visible_share: float | None = None

    @property
    def shown(self) -> bool:
        """Whether a change is shown."""
        return self.word in ("faster", "slower")

    @property
    def may_be_none(self) -> bool:
        """Whether the step times are known and may be equal."""
        return not self.shown and self.ci95_ms is not None


@dataclass(frozen=True)
class Evidence:
    """What the table is read with. ``change_ms`` is B − A of step times whose smaller is ``faster_ms``; ``alike``: both from one source."""

    change_ms: float
    faster_ms: float
    interval: Interval
    floor: float
    alike: bool

    @property
    def share(self) -> float:
        """The change as a share of the faster side."""
        return abs(self.change_ms) / self.faster_ms

    @property
    def near(self) -> float:
        """The end of the interval next to 0 as a share of the faster side; 0 where it includes 0."""
        if holds_zero(self.interval):
            return 0.0
        return min(abs(end) for end in self.interval if end is not None) / self.faster_ms

    @property
    def half(self) -> float | None:
        """How far the interval reaches from the change at most, as a share of the faster side; None where it is open."""
        low, high = self.interval
        if low is None or high is None:
            return None
        return max(self.change_ms - low, high - self.change_ms) / self.faster_ms


def settled(by_steps: Verdict, evidence: Evidence, source: str) -> Verdict:
    """Return what the table says where the step times' own intervals count; ``source`` says in words where the interval is from.

    ``by_steps`` is what the recorded steps alone say.
    """
    limits = [] if evidence.alike else [TWO_SOURCES]
    limits += [UNBOUNDED] if None in evidence.interval else []
    visible = _visible(by_steps, evidence)
    why = " ".join((by_steps.why, source, *limits))
    stated = replace(by_steps, ci95_ms=evidence.interval, smallest_visible_share=visible, why=why)
    if (sure := sure_of_change(evidence)) is not None:
        way: Word = "faster" if evidence.change_ms < 0 else "slower"
        by = [by_steps.why] if by_steps.word == way else []
        return replace(stated, word=way, confidence=sure, why=" ".join([*by, source, "It excludes 0.", *limits]))
    if by_steps.shown and not holds_zero(evidence.interval):
        return replace(stated, confidence="low")
    if by_steps.shown and evidence.alike and None not in evidence.interval:
        return replace(stated, confidence="low", why=f"{why} {ERR_ALIKE}")
    could = None if visible is None or None in evidence.interval else max(visible, evidence.floor)
    if could is not None and could <= 2 * SURE_OF_NONE:
        return replace(stated, word="no_difference_shown", confidence=sure_of_none(could))
    if by_steps.word == "no_difference_shown":
        return stated
    return replace(stated, word="inconclusive", confidence="low", why=f"{why} {NOT_KNOWN}" if by_steps.shown else why)


def _visible(by_steps: Verdict, evidence: Evidence) -> float | None:
    """Return the smallest change that would have been seen, by the steps and by the interval."""
    known = [share for share in (by_steps.smallest_visible_share, evidence.half) if share is not None]
    return max(MIN_CHANGE, *known) if known else None


def of_other_work(verdict: Verdict, why: str = OTHER_MODEL) -> Verdict:
    """Return what may be said of the step times of two models, or of two programs: nothing."""
    return replace(verdict, word="inconclusive", confidence="low", why=why)


def of_one_command(verdict: Verdict) -> Verdict:
    """Return what may be said of one command that ran twice with nothing changed that is known: no step time tells the host's part from that of a change."""
    return replace(verdict, confidence="low", why=f"{verdict.why} {ONE_COMMAND}") if verdict.shown else verdict


def limited(verdict: Verdict, ratio: Interval | None) -> Verdict:
    """Return the verdict on a change no surer than the interval of the ratio of the step times, ``ratio``, is narrow; as it is where that is not known."""
    if not verdict.shown or verdict.confidence == "low" or ratio is None:
        return verdict
    low, high = ratio
    width = high / low if low is not None and high is not None and low > 0 else None
    if width is not None and width <= NARROW:
        return verdict
    if width is not None and width <= WIDE:
        return replace(verdict, confidence="medium")
    return replace(verdict, confidence="low", why=f"{verdict.why} {HOW_MUCH}")


def sure_of_change(evidence: Evidence) -> Confidence | None:
    """Return how sure a change is; None where its interval includes 0, or two runs of one program differ by as much."""
    if holds_zero(evidence.interval):
        return None
    if evidence.near >= max(CLEAR, 2 * evidence.floor):
        return "high"
    if evidence.share < max(MIN_CHANGE, evidence.floor):
        return None
    return "medium"


def sure_of_none(smallest: float | None) -> Confidence:
    """Return how sure it is that nothing changed, by the smallest change that would have been seen (a share)."""
    if smallest is None:
        return "low"
    return "high" if smallest <= SURE_OF_NONE else "medium" if smallest <= 2 * SURE_OF_NONE else "low"

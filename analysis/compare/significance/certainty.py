"""Confidence of a verdict: one table for the headline, the rows, the reports and the gates.

=====================================================================  ======================  ==========================
the 95 % interval of the change                                        word                    confidence
=====================================================================  ======================  ==========================
both sides are one recording                                           no_difference_shown     high
the sides are of different programs                                    inconclusive            low
only one side has GPU work                                             inconclusive            low
a step time is not known                                               inconclusive            low
one command in fewer than 3 runs, and no change is known               faster or slower        low
excludes 0; its near end is at least 5 %, and twice the floor          faster or slower        high
excludes 0; the change is at least 2 % and the floor                   faster or slower        medium
excludes 0; the change is smaller than the floor, but the recorded     faster or slower        low
steps of the two sides do not overlap
includes 0, but the profiled steps or the kernels show the direction   faster or slower        low
(module ``direction``)
includes 0, but the marked steps differ and a host's speed changes     faster or slower        low
has an open end                                                        inconclusive            low
the pair would have shown a change of 10 %                             no_difference_shown     by that smallest change
its ratio allows no change above 10 %                                  no_difference_shown     by the largest change
otherwise                                                              inconclusive            low
=====================================================================  ======================  ==========================

The page and the report's JSON state one of six answers (``Answer``). They add to the word whether the size of the
change is known.

The confidence also has a limit for every word. The limit depends on the interval of the ratio of the step times. If the
high end is more than 1.5 times the low end, the confidence is medium at most. If it is more than 3 times the low end,
the confidence is low.

The near end is the end of the interval next to 0, as a share of the faster side. The floor is how much the sides may
differ if nothing changed. It is 10 % if their step times come from two sources or from telemetry. It is 100 % of a step
if a side has only a few profiled steps and no interval, because the profiler slows one program more than another.

The floor is at least 50 % for single runs that their hosts limit, because a host's own speed varies. It is 100 % if
the runs were on different machines, and 150 % for runs that compute on the host. The number of recorded steps does not count if the step times have intervals of their
own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sawtooth.analysis.compare.significance.change_interval import Interval, includes_zero

Word = Literal["faster", "slower", "no_difference_shown", "inconclusive"]
Confidence = Literal["high", "medium", "low"]
Answer = Literal["faster", "slower", "faster_size_unknown", "slower_size_unknown", "no_change", "cannot_tell"]

MIN_CHANGE = 0.02  # If nothing changed, runs on one machine differ by up to 2 %.
MAX_UNCHANGED = 0.05  # If a pair could have shown a change of 5 % and shows none, "no change" has high confidence.
MIN_CLEAR_CHANGE = 0.05  # The smallest change with high confidence. Two recordings of one program differ by less than this.
NARROW_RATIO, WIDE_INTERVAL_RATIO = 1.5, 3.0  # Ratio of the interval's ends. Above it, the size of the change is uncertain.
LARGEST_NO_CHANGE = 0.20  # Share of the faster side. An interval that allows a larger change cannot show that nothing changed.
MIN_SURE_CHANGE = 0.10  # Five times the 2 % by which two recordings of one program may differ.

OF_ESTIMATES = "The interval combines the intervals of both step times, widened to 95 %."
NOT_KNOWN = "The step times are not known well enough to tell which side is faster."
UNBOUNDED = "One side's step time has no upper limit."
OTHER_MODEL = "Their matrix products have different shapes, so the step times do not show the effect of a change."
OTHER_PROGRAM = (
    "A and B share almost no kernels: they are different programs, so the step times do not show the effect of a change."
)
ONE_COMMAND = (
    "No change is known: the same command ran twice, the GPU did the same work, and a host's own speed varies from run to run. "
    "Record both sides again to be sure."
)
NO_LARGER = "The interval leaves no larger change open."
HOW_MUCH = "The change is certain, but its size is not."
TWO_SOURCES = "The two step times come from different sources, which alone may differ by 10 % and more."
# High confidence needs a change of at least twice the floor.
TWO_SOURCES_OF_LARGE_CHANGE = (
    "The two step times come from different sources, which may differ by about 10 %. The change is at least twice as large."
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on B against A, and the reason for it.

    Shares are of the faster side, so swapping the sides does not change them. ``ci95_ms`` is the interval of the change
    in ms. It is None only if a side has no step time. One end is None if nothing bounds the change there.
    ``smallest_visible_share`` is the change that such a pair shows four times out of five, None if it is not known.
    ``noise_floor_share`` is how much the recordings differ from themselves. ``ratio`` is the 95 % interval of A's step
    time ÷ B's, with an open end like ``ci95_ms``.
    """

    word: Word
    confidence: Confidence
    why: str
    ci95_ms: Interval | None = None
    noise_floor_share: float = 0.0
    smallest_visible_share: float | None = None
    ratio: Interval | None = None

    @property
    def answer(self) -> Answer:
        """The verdict of the page and of the report.

        It combines the word with whether the size of the change is known.
        """
        if self.word == "faster":
            return "faster" if self.size_known else "faster_size_unknown"
        if self.word == "slower":
            return "slower" if self.size_known else "slower_size_unknown"
        return "no_change" if self.word == "no_difference_shown" and self.largest_change is not None else "cannot_tell"

    @property
    def size_known(self) -> bool:
        """Whether the ratio's interval agrees with the word and is narrow enough to state a size."""
        low, high = self.ratio or (None, None)
        if low is None or high is None or low <= 0:
            return False
        return (low > 1 if self.word == "faster" else high < 1) and high / low <= WIDE_INTERVAL_RATIO

    @property
    def largest_change(self) -> float | None:
        """The largest change inside the interval, as a share of the faster side.

        None if it is above 20 %, or if nothing bounds it.
        """
        low, high = self.ratio or (None, None)
        if low is None or high is None or low <= 0:
            return None
        largest = max(high, 1 / low) - 1
        return largest if largest <= LARGEST_NO_CHANGE else None

    @property
    def shown(self) -> bool:
        """Whether a change is shown."""
        return self.word in ("faster", "slower")

    @property
    def may_be_none(self) -> bool:
        """Whether the step times are known and may be equal."""
        return not self.shown and self.ci95_ms is not None


@dataclass(frozen=True)
class ComparisonEvidence:
    """The inputs of the table.

    ``change_ms`` is B − A, and ``faster_ms`` is the smaller step time. ``same_source`` says that both step times come from
    one source.
    """

    change_ms: float
    faster_ms: float
    interval: Interval
    floor: float
    same_source: bool

    @property
    def share(self) -> float:
        """The change as a share of the faster side."""
        return abs(self.change_ms) / self.faster_ms

    @property
    def near(self) -> float:
        """The end of the interval next to 0, as a share of the faster side; 0 if the interval includes 0."""
        if includes_zero(self.interval):
            return 0.0
        return min(abs(end) for end in self.interval if end is not None) / self.faster_ms

    @property
    def half(self) -> float | None:
        """The largest distance from the change to an end of the interval, as a share of the faster side.

        None if an end of the interval is open.
        """
        low, high = self.interval
        if low is None or high is None:
            return None
        return max(self.change_ms - low, high - self.change_ms) / self.faster_ms


def verdict_by_intervals(by_steps: Verdict, evidence: ComparisonEvidence, source: str) -> Verdict:
    """Return the verdict of the table if the step times' own intervals count.

    ``by_steps`` is the verdict of the recorded steps alone. ``source`` is a sentence about where the interval comes
    from.
    """
    limits = [] if evidence.same_source else [TWO_SOURCES]
    limits += [UNBOUNDED] if None in evidence.interval else []
    visible = _visible(by_steps, evidence)
    reason = " ".join((by_steps.why, source, *limits))
    stated = replace(by_steps, ci95_ms=evidence.interval, smallest_visible_share=visible, why=reason)
    if (sure := change_confidence(evidence)) is not None:
        direction: Word = "faster" if evidence.change_ms < 0 else "slower"
        by = [by_steps.why] if by_steps.word == direction else []
        limits = [TWO_SOURCES_OF_LARGE_CHANGE if sure == "high" and limit == TWO_SOURCES else limit for limit in limits]
        return replace(stated, word=direction, confidence=sure, why=" ".join([*by, source, "It excludes 0.", *limits]))
    if by_steps.shown and not includes_zero(evidence.interval):
        return replace(stated, confidence="low")
    could = None if visible is None or None in evidence.interval else max(visible, evidence.floor)
    if could is not None and could <= 2 * MAX_UNCHANGED:
        return replace(stated, word="no_difference_shown", confidence=no_change_confidence(could))
    if by_steps.word == "no_difference_shown" and None not in evidence.interval:
        return stated
    return replace(stated, word="inconclusive", confidence="low", why=f"{reason} {NOT_KNOWN}" if by_steps.shown else reason)


def _visible(by_steps: Verdict, evidence: ComparisonEvidence) -> float | None:
    """Return the smallest change that the steps and the interval could have shown."""
    shares = [share for share in (by_steps.smallest_visible_share, evidence.half) if share is not None]
    return max(MIN_CHANGE, *shares) if shares else None


def of_other_work(verdict: Verdict, why: str = OTHER_MODEL) -> Verdict:
    """Return the verdict for sides whose step times show nothing about a change, such as two models."""
    return replace(verdict, word="inconclusive", confidence="low", why=why)


def of_one_command(verdict: Verdict) -> Verdict:
    """Return the verdict with low confidence for one command that ran twice with no known change.

    Step times alone cannot separate the host's variation from the effect of a change.
    """
    return replace(verdict, confidence="low", why=f"{verdict.why} {ONE_COMMAND}") if verdict.shown else verdict


def with_ratio_limit(verdict: Verdict, ratio: Interval | None, *, bounded: bool = True) -> Verdict:
    """Return the verdict with ``ratio`` as its ratio interval, and the confidence limited by its width.

    If an interval allows only small changes, nothing large changed, even if few steps are recorded. This holds only if the
    step times are ``bounded``, that is, have intervals that include the profiler's cost.
    """
    verdict = replace(verdict, ratio=ratio)
    largest = verdict.largest_change if bounded and verdict.word == "inconclusive" else None
    if largest is not None and largest <= 2 * MAX_UNCHANGED:
        return replace(
            verdict, word="no_difference_shown", confidence=no_change_confidence(largest), why=f"{verdict.why} {NO_LARGER}"
        )
    if not verdict.shown or verdict.confidence == "low" or ratio is None:
        return verdict
    low, high = ratio
    width = high / low if low is not None and high is not None and low > 0 else None
    if width is not None and width <= NARROW_RATIO:
        return verdict
    if width is not None and width <= WIDE_INTERVAL_RATIO:
        return replace(verdict, confidence="medium")
    return replace(verdict, confidence="low", why=f"{verdict.why} {HOW_MUCH}")


def change_confidence(evidence: ComparisonEvidence) -> Confidence | None:
    """Return the confidence that there is a change.

    None if the interval includes 0, or if two runs of one program differ by as much.
    """
    if includes_zero(evidence.interval):
        return None
    if evidence.near >= max(MIN_CLEAR_CHANGE, 2 * evidence.floor):
        return "high"
    if evidence.share < max(MIN_CHANGE, evidence.floor):
        return None
    return "medium"


def no_change_confidence(smallest: float | None) -> Confidence:
    """Return the confidence that nothing changed, from the smallest visible change (a share)."""
    if smallest is None:
        return "low"
    return "high" if smallest <= MAX_UNCHANGED else "medium" if smallest <= 2 * MAX_UNCHANGED else "low"

"""The title of the Compare page: what was changed, both step times, and the factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis.compare.changed.differences import Effect, SetupDifference
from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import format as fmt
from sawtooth.app.words.answer.headline_length import MAX_WORDS, shortened, words
from sawtooth.app.words.comparisons import comparison as comparison_words
from sawtooth.app.words.comparisons import intervals, profiles_of_one_run

MIN_MAIN_SHARE = 0.5  # Share of the step's change. A difference that explains less does not name the change.
MAX_VALUE_CHARACTERS = 30  # A longer value is cut to this many characters.


@dataclass(frozen=True)
class ComparisonTitle:
    """What was changed, such as "Loader workers 1 → 14", both step times, and their ratio."""

    cause: str
    before: str
    after: str
    factor: str
    is_slower: bool = False

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The pieces of the headline, each with its kind."""
        times = f"{self.before} → "
        per_step = " per step" if words(f"{self.cause} {times} {self.after} per step") < MAX_WORDS else ""
        room = MAX_WORDS - words(f"{times} {self.after}{per_step}") - 1  # The factor is one word.
        return [
            ("text", f"{shortened(self.cause, room)}: {times}"),
            ("worse" if self.is_slower else "then", self.after),
            ("text", f"{per_step} "),
            ("slower" if self.is_slower else "badge", self.factor),
        ]

    @property
    def text(self) -> str:
        """The title as one text."""
        return f"{self.cause}: {self.before} → {self.after} per step, {self.factor}"


def title(comparison: Comparison) -> ComparisonTitle | None:
    """Return the title; None if the size of the change or what changed is not known."""
    factor, best = intervals.stated_ratio(comparison), comparison.best
    of_one_run = profiles_of_one_run.step_names(comparison) is not None
    if not factor or best.a is None or best.b is None or of_one_run:
        return None
    cause = _setting(comparison) or _part(comparison)
    if not cause:
        return None
    unsure_a, unsure_b = comparison_words.both_about(comparison)
    before, _, after = fmt.step_change(best.a, best.b, about=unsure_a, after_about=unsure_b).partition(" → ")
    return ComparisonTitle(cause, before, after, factor, comparison.verdict.answer == "slower")


def explains(comparison: Comparison) -> bool:
    """Return whether a recorded difference explains a part of the change."""
    return any(effect.share for effect in comparison.effects)


def names_setting(comparison: Comparison) -> bool:
    """Return whether the title contains the changed setting with both values."""
    return bool(_setting(comparison))


def _setting(comparison: Comparison) -> str:
    """Return the setting that was changed, with both values; "" if it is not known."""
    made = [(effect, difference) for effect in comparison.effects if (difference := _made(effect)) is not None]
    main = max(made, key=lambda each: each[0].share or 0.0, default=None)
    if main is None or not ((main[0].share or 0.0) >= MIN_MAIN_SHARE or len(made) == 1):
        return ""
    others = len([each for each in made if each is not main and not each[1].argument])
    more = f" and {others} more" if others else ""
    a, b = (fmt.clean(value or "", MAX_VALUE_CHARACTERS) for value in (main[1].a, main[1].b))
    return f"{fmt.clean(main[1].what, MAX_VALUE_CHARACTERS)} {a} → {b}{more}"


def _made(effect: Effect) -> SetupDifference | None:
    """Return the setting of an effect; None if only findings differ, which do not show what was changed."""
    made: Sequence[SetupDifference] = [difference for difference in effect.differences if difference.finding is None]
    return made[0] if made else None


def _part(comparison: Comparison) -> str:
    """Return the part of the step that changed most, with both times; "" if the steps cannot be divided."""
    largest = comparison_words.largest_change(comparison)
    if largest is None:
        return ""
    whole = max(comparison.best.a or 0.0, comparison.best.b or 0.0)
    a, b = (fmt.part_ms(whole, ms) if ms else "none" for ms in (largest.ms_a, largest.ms_b))
    label = largest.label_in_sentence
    return f"{label[0].upper()}{label[1:]} {a} → {b}"

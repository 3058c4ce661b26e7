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
    other_settings: str = ""  # The number of other settings that differ, such as "and 1 more".
    subject: str = ""  # The cause without its values, for a headline without room for them.

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The pieces of the headline, each with its kind."""
        cause, per_step = self._fitted()
        return [
            ("text", f"{cause}: {self.before} → ".replace(" → ", "\u00a0→ ")),  # No line begins with an arrow.
            ("worse" if self.is_slower else "then", self.after),
            ("text", f"{per_step} "),
            ("slower" if self.is_slower else "badge", self.factor),
        ]

    @property
    def has_values(self) -> bool:
        """Whether the headline has room for the values of the cause."""
        return self._fitted()[0].startswith(self.cause)

    def _fitted(self) -> tuple[str, str]:
        """Return the cause and the unit " per step", as far as the headline has room for them."""
        times, named = f"{self.before} → {self.after}", f"{self.cause} {self.other_settings}".strip()
        per_step = " per step" if words(f"{named} {times} per step") < MAX_WORDS else ""
        room = MAX_WORDS - words(f"{times}{per_step}") - 1  # The factor is one word.
        fitting = (cause for cause in (named, self.cause) if words(cause) <= room)
        return next(fitting, shortened(self.subject or self.cause, room)), per_step

    @property
    def text(self) -> str:
        """The title as one text."""
        cause = f"{self.cause} {self.other_settings}".strip()
        return f"{cause}: {self.before} → {self.after} per step, {self.factor}"


def title(comparison: Comparison) -> ComparisonTitle | None:
    """Return the title; None if the size of the change or what changed is not known."""
    factor, best = intervals.stated_ratio(comparison), comparison.best
    of_one_run = profiles_of_one_run.step_names(comparison) is not None
    if not factor or best.a is None or best.b is None or of_one_run:
        return None
    setting = main_setting(comparison)
    subject, values = _in_words(setting) if setting is not None else _part(comparison)
    if not subject:
        return None
    unsure_a, unsure_b = comparison_words.both_about(comparison)
    before, _, after = fmt.step_change(best.a, best.b, about=unsure_a, after_about=unsure_b).partition(" → ")
    differing = [difference for _, difference in _settings(comparison) if difference is not setting and not difference.argument]
    other_settings = f"and {len(differing)} more" if differing and setting is not None else ""
    is_slower = comparison.verdict.answer == "slower"
    return ComparisonTitle(f"{subject} {values}", before, after, factor, is_slower, other_settings, subject)


def explains(comparison: Comparison) -> bool:
    """Return whether a recorded difference explains a part of the change."""
    return any(effect.share for effect in comparison.effects)


def named_setting(comparison: Comparison) -> SetupDifference | None:
    """Return the setting whose two values the title contains; None if it contains none."""
    setting, shown = main_setting(comparison), title(comparison)
    return setting if shown is not None and shown.has_values else None


def main_setting(comparison: Comparison) -> SetupDifference | None:
    """Return the setting that explains most of the change; None if none explains enough."""
    made = _settings(comparison)
    main = max(made, key=lambda effect_and_setting: effect_and_setting[0].share or 0.0, default=None)
    if main is None or not ((main[0].share or 0.0) >= MIN_MAIN_SHARE or len(made) == 1):
        return None
    return main[1]


def _settings(comparison: Comparison) -> list[tuple[Effect, SetupDifference]]:
    return [(effect, difference) for effect in comparison.effects if (difference := _made(effect)) is not None]


def _in_words(setting: SetupDifference) -> tuple[str, str]:
    """Return a setting's name and its two values."""
    a, b = (fmt.clean(value or "", MAX_VALUE_CHARACTERS) for value in (setting.a, setting.b))
    return fmt.clean(setting.what, MAX_VALUE_CHARACTERS), f"{a} → {b}"


def _made(effect: Effect) -> SetupDifference | None:
    """Return the setting of an effect; None if only findings differ, which do not show what was changed."""
    made: Sequence[SetupDifference] = [difference for difference in effect.differences if difference.finding is None]
    return made[0] if made else None


def _part(comparison: Comparison) -> tuple[str, str]:
    """Return the part of the step that changed most, and both times; two "" if they are not known."""
    largest = comparison_words.largest_change(comparison)
    if largest is None:
        return "", ""
    longest_ms = max(comparison.best.a or 0.0, comparison.best.b or 0.0)
    a, b = (fmt.part_ms(longest_ms, ms) if ms else "none" for ms in (largest.ms_a, largest.ms_b))
    label = largest.label_in_sentence
    return f"{label[0].upper()}{label[1:]}", f"{a} → {b}"

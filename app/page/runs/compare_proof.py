"""The proof of a comparison: the ratio with its interval, the change by cause, and what was changed."""

from __future__ import annotations

import streamlit as st

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import templates
from sawtooth.app.charts import step_pair
from sawtooth.app.charts.cause_changes import cause_changes
from sawtooth.app.page import cards, frame
from sawtooth.app.theme import ACCENT, ALARM, PAGE
from sawtooth.app.words.answer.headline_length import split
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import intervals, limits, setup_changes, step_parts
from sawtooth.app.words.comparisons import title as title_words
from sawtooth.app.words.comparisons.row import ComparisonRow

_HTML, _CARDS = templates.pieces("poster.html"), templates.pieces("cards.html")
MAX_SHOWN_CHANGES = 3  # Changes in the page's first lines; the others are in a popover.


def head(comparison: Comparison, about: str) -> None:
    """Show what was changed and by how much, then a line ``about`` the runs, and each changed setting."""
    shown = title_words.title(comparison)
    st.set_page_config(page_title=words.tab_title(comparison, shown.text if shown is not None else None))
    below = words.below(comparison, interval=not intervals.ratios(comparison), reason=not title_words.explains(comparison))
    lines = [about] if about else []
    if shown is not None:
        named = title_words.named_setting(comparison)
        once = setup_changes.explanation(named, comparison) if named is not None else ""
        cards.answer(shown.pieces, " ".join(filter(None, (once, "" if words.only_confidence(below) else below))))
    else:
        head, details = split(words.headline(comparison))
        cards.headline(head, f"{details} {below}".strip())
        lines = [*filter(None, [words.called(comparison)]), *lines]
    for line in lines:
        cards.small(line)
    if not words.is_one_run(comparison) and not comparison.other_model:
        changed(comparison)


def ratio(comparison: Comparison) -> None:
    """Show the ratio of the step times on an axis, with a hollow mark for the earlier prediction.

    A slower step is drawn in the colour of trouble, unless the steps do different work.
    """
    if ratios := intervals.ratios(comparison):
        longer = comparison.verdict.answer == "slower"
        slower = comparison.throughput is None and (longer or ratios[-1].high < 1)
        with st.container(gap="xxsmall"):
            fast = f"How many times as {'long' if longer else 'fast'}"
            alone = fast if comparison.throughput is None else f"Step time alone: {fast[0].lower()}{fast[1:]}"
            cards.title(f"{alone} ({intervals.level(ratios)})")
            mark = ALARM if slower else ACCENT
            st.html(_HTML.ratios(step_pair.ratio_axis(ratios), mark.on(frame.is_dark()), PAGE.on(frame.is_dark())))
            if tested := setup_changes.tested_prediction(comparison):
                cards.small(tested)


def causes(comparison: Comparison) -> None:
    """Show the step's change as one signed bar per cause, if both steps can be divided."""
    if not (steps := step_parts.steps_divided(comparison)):
        return
    changes = cause_changes(step_parts.bars(comparison, steps[0]), dark=frame.is_dark())
    if changes is not None:
        with st.container(gap="xxsmall"):
            cards.title("Change of the step, by cause")
            st.html(_HTML.causes(changes))


def changed(comparison: Comparison) -> None:
    """Show each change that the title does not show: old, new, and its share of the difference."""
    named = title_words.named_setting(comparison)
    rows = setup_changes.rows(comparison, named)
    lines = [line for line in (setup_changes.why_none(comparison),) if line]
    if not intervals.ratios(comparison):  # Otherwise the prediction is below the axis.
        lines += [line for line in (setup_changes.tested_prediction(comparison),) if line]
    with st.container(gap="xxsmall"):
        if rows:
            caption = setup_changes.TITLE if named is None else setup_changes.ALSO_CHANGED
            st.html(_CARDS.changes([_line(row) for row in rows[:MAX_SHOWN_CHANGES]], caption))
        if further_changes := setup_changes.sentences(comparison, named)[MAX_SHOWN_CHANGES:]:
            with st.popover(f"{len(further_changes)} more", type="tertiary"):
                for sentence in further_changes:
                    cards.text(sentence)
        for line in lines:
            cards.text(line)


def _line(row: ComparisonRow) -> tuple[str, str, str, str]:
    """Return a change, its values if a setting has them, and what it explains."""
    what, a, b, explains = row
    if a in (setup_changes.ADVISED, setup_changes.NOT_NEEDED):
        return what, "", "", "; ".join(filter(None, (f"{a} for A, {b} for B", explains)))
    return what, a, b, explains


def next_change(comparison: Comparison) -> None:
    """Show what to change next in B, if that is known."""
    if (line := setup_changes.next_change(comparison)) is not None:
        with st.container(gap="xxsmall"):
            cards.title("Next change in B")
            cards.text(line)
            frame.link("verdict", "How to make it", run=comparison.b.first.manifest.id, icon=":material/arrow_forward:")


def limited_by(comparison: Comparison) -> None:
    """Show the limits of the comparison, if there are any."""
    if lines := limits.sentences(comparison, profiles=False):
        with st.container(gap="xxsmall"):
            cards.title("Limits of this comparison")
            for line in lines:
                cards.caution(line)

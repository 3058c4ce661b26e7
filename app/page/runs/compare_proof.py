"""The proof of a comparison: the ratio with its interval, the change by cause, and what was changed."""

from __future__ import annotations

import streamlit as st

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import templates
from sawtooth.app.charts import step_pair
from sawtooth.app.charts.cause_changes import cause_changes
from sawtooth.app.page import cards, frame
from sawtooth.app.theme import ACCENT, ALARM, PAGE
from sawtooth.app.words.comparisons import intervals, limits, setup_changes, step_parts

_HTML = templates.pieces("poster.html")


def ratio(comparison: Comparison) -> None:
    """Show the ratio of the step times on an axis, with a hollow mark for the earlier prediction.

    A slower step is drawn in the colour of trouble, unless the steps do different work.
    """
    if ratios := intervals.ratios(comparison):
        longer = comparison.verdict.answer == "slower"
        slower = comparison.throughput is None and (longer or ratios[-1].high < 1)
        with st.container(gap="xxsmall"):
            fast = f"How many times as {'long' if longer else 'fast'}"
            cards.title(fast if comparison.throughput is None else f"Step time alone: {fast[0].lower()}{fast[1:]}")
            mark = ALARM if slower else ACCENT
            st.html(_HTML.ratios(step_pair.ratio_axis(ratios), mark.on(frame.dark()), PAGE.on(frame.dark())))


def causes(comparison: Comparison) -> None:
    """Show the step's change as one signed bar per cause, if both steps can be divided."""
    if not (steps := step_parts.steps_divided(comparison)):
        return
    changes = cause_changes(step_parts.bars(comparison, steps[0]), dark=frame.dark())
    if changes is not None:
        with st.container(gap="xxsmall"):
            cards.title("Change of the step, by cause")
            st.html(_HTML.causes(changes))


def changed(comparison: Comparison) -> None:
    """Show each change of the setup with its share of the difference, and the prediction that it tests."""
    with st.container(gap="xxsmall"):
        if rows := setup_changes.rows(comparison):
            cards.title(setup_changes.TITLE)
            for what, a, b, explains in rows:
                advised = a in (setup_changes.ADVISED, setup_changes.NOT_NEEDED)
                if advised:
                    cards.strong(what)
                else:
                    cards.change(what, a, b)
                below = (f"{a} for A, {b} for B" if advised else "", explains)
                if sentence := ". ".join(f"{part[0].upper()}{part[1:]}" for part in below if part):
                    cards.small(sentence)
        for line in filter(None, (setup_changes.why_none(comparison), setup_changes.tested_prediction(comparison))):
            cards.text(line)


def remains(comparison: Comparison) -> None:
    """Show what to change next and the limits of the comparison, each if there is any."""
    blocks = (
        ("What remains", [line for line in (setup_changes.next_change(comparison),) if line], cards.text),
        ("Limits of this comparison", limits.sentences(comparison, profiles=False), cards.caution),
    )
    for title, lines, show in blocks:
        if lines:
            with st.container(gap="xxsmall"):
                cards.title(title)
                for line in lines:
                    show(line)

"""The proof of a comparison: the ratio of both steps with its interval, and the change by cause."""

from __future__ import annotations

import streamlit as st

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import templates
from sawtooth.app.charts import step_pair
from sawtooth.app.charts.cause_changes import cause_changes
from sawtooth.app.page import cards, frame
from sawtooth.app.theme import ACCENT, ALARM, PAGE
from sawtooth.app.words.comparisons import intervals, step_parts

_HTML = templates.pieces("poster.html")


def ratio(comparison: Comparison) -> None:
    """Show A's step time ÷ B's on an axis, with a hollow mark for the earlier prediction.

    A slower step is drawn in the colour of trouble, unless the steps do different work.
    """
    if ratios := intervals.ratios(comparison):
        slower = comparison.throughput is None and ratios[-1].high < 1
        with st.container(gap="xxsmall"):
            fast = "How many times as fast"
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

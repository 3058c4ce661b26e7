"""A sweep on a page: a curve, and the table of its points."""

from __future__ import annotations

from sawtooth.analysis.compare.sweep import Sweep
from sawtooth.app import format as fmt
from sawtooth.app.charts import sweep as charts
from sawtooth.app.page import cards, frame, panel
from sawtooth.app.words.comparisons import sweep as words


def show(sweep: Sweep) -> None:
    """Show the curve, with the recommended value as its title, and the table."""
    rows = words.rows(sweep)
    title, _, details = fmt.clean(words.sentence(sweep)).partition(". ")
    panel.show(charts.curve(rows, sweep.setting, sweep.unit, title.rstrip("."), dark=frame.is_dark()), "sweep")
    if details:
        cards.small(details)
    panel.table(rows, words.columns(sweep), "sweep")

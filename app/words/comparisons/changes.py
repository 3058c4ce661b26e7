"""The differences between two sides as rows: kernels and operators by change, and marked metrics."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from sawtooth.analysis.compare.better_or_worse import OF_THE_PROFILE, STEP, RowWord
from sawtooth.analysis.compare.comparison import Comparison, MetricChange
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import format as fmt
from sawtooth.app.charts.rankings import middle, short_name
from sawtooth.app.charts.waterfall import change_with_arrow
from sawtooth.app.words.comparisons.row import ComparisonRow, reasons_once

MARKS: dict[RowWord, str] = {"better": " ✓ better", "worse": " ✗ worse", "profiles_alone": ", of the profiles alone"}
NOT_MEASURABLE = "no measurable change"
CANNOT_TELL = "cannot tell"
NOT_COMPARABLE = "not comparable: the operations of one side are only partly counted"
UNMARKED: dict[RowWord, str] = {  # Rows without an amount.
    "not_measurable": NOT_MEASURABLE,
    "cannot_tell": CANNOT_TELL,
    "not_comparable": NOT_COMPARABLE,
}
NAME_LENGTH = 70  # Characters of a kernel's or operator's name. The full name is in another column.
MATCHED_BY = {
    "name": "same name",
    "operator_and_shape": "same operator and shapes",
    "operator": "same operator, other shapes",
    "category": "same category",
    "only_a": "only in A",
    "only_b": "only in B",
}
COLUMNS = {
    "what": "What",
    "ms_a": "A, ms per step",
    "ms_b": "B, ms per step",
    "change_ms": "Change, ms per step",
    "count_a": "A, per step",
    "count_b": "B, per step",
    "matched_by": "Matched by",
    "names_a": "Names in A",
    "names_b": "Names in B",
}

# On a screen, the change comes first, because a phone shows only two columns.
SCREEN_COLUMNS = ("change_ms", "what", "ms_a", "ms_b", "count_a", "count_b", "matched_by")
# Smaller changes of a row may come from variations of the clock. They are shares of the step, and of the row's own time.
MIN_CHANGE_OF_STEP, MIN_CHANGE_OF_ROW = 0.001, 0.01
HEADING_LENGTH = 24  # Characters of a run's name in a heading.
SCREEN_NAME_LENGTH = 46  # Characters of a name on a screen. The CSV has the full names.


def shown_rows(rows: pd.DataFrame, names: tuple[str, str]) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return ``rows`` in the form for a screen, and the headings with the sides' ``names``.

    ``rows`` come from ``match_rows``.
    """
    a, b = (fmt.clean(name, HEADING_LENGTH) for name in names)
    headings = {
        **COLUMNS,
        "ms_a": f"{a}, ms per step",
        "ms_b": f"{b}, ms per step",
        "count_a": f"{a}, per step",
        "count_b": f"{b}, per step",
    }
    shown = rows.assign(what=[middle(name, SCREEN_NAME_LENGTH) for name in rows["what"]])
    return shown, {column: headings[column] for column in SCREEN_COLUMNS}


def moved(rows: tuple[Match, ...], comparison: Comparison) -> tuple[Match, ...]:
    """Return the rows whose time changed by more than the clock varies."""
    min_of_step_ns = MIN_CHANGE_OF_STEP * 1e6 * max(comparison.profile.a or 0.0, comparison.profile.b or 0.0)

    def has_changed(row: Match) -> bool:
        min_change_ns = max(min_of_step_ns, MIN_CHANGE_OF_ROW * max(row.ns_a, row.ns_b))
        return bool(row.change_ns) and abs(row.change_ns) >= min_change_ns

    return tuple(filter(has_changed, rows))


def match_rows(rows: tuple[Match, ...]) -> pd.DataFrame:
    """Return matched kernels or operators as a table, largest change first."""
    return pd.DataFrame(
        [
            (
                _shorten(row.label),
                float(row.ns_a) / 1e6,
                float(row.ns_b) / 1e6,
                float(row.change_ns) / 1e6,
                float(row.count_a),
                float(row.count_b),
                MATCHED_BY[row.how],
                fmt.clean("; ".join(row.names_a)),
                fmt.clean("; ".join(row.names_b)),
            )
            for row in rows
        ],
        columns=list(COLUMNS),
    )


def _shorten(label: str) -> str:
    """Return a kernel's C++ name shortened as on the Kernels screen; other labels are only cleaned."""
    return short_name(label, NAME_LENGTH) if "<" in label else fmt.clean(label, NAME_LENGTH)


def match_title(rows: tuple[Match, ...], kind: str) -> str:
    """Return the title of a table of ``moved`` rows: the largest change."""
    if not rows:
        return f"No {kind}'s time changed by as much as {fmt.share(MIN_CHANGE_OF_STEP)} of the step"
    first = rows[0]
    change = float(first.change_ns) / 1e6
    return f"The {kind} time that changed most: {_shorten(first.label)}, {fmt.signed(fmt.duration_ms(change), change)} per step"


def host_operators(comparison: Comparison) -> list[ComparisonRow]:
    """Return the longest host operators that both sides have, largest change first.

    This is for runs without GPU work.
    """
    works = [side.runs[0].host for side in (comparison.a, comparison.b)]
    a, b = ({operator.name: operator.ms for operator in work.operators} if work is not None else {} for work in works)
    shared = sorted((name for name in a if name in b), key=lambda name: -abs(b[name] - a[name]))
    return [
        ComparisonRow(
            fmt.clean(name, 60), fmt.duration_ms(a[name]), fmt.duration_ms(b[name]), change_with_arrow(b[name] - a[name])
        )
        for name in shared
    ]


def metric_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return label, A, B and marked change of every metric that at least one side has.

    If a GPU worked on only one side, both sides must have the metric.
    """
    return reasons_once([_metric_row(c, comparison) for c in _known_changes(comparison)])


def _metric_row(change: MetricChange, comparison: Comparison) -> ComparisonRow:
    key = change.key
    return ComparisonRow(label(key), fmt.reading(key, change.a), fmt.reading(key, change.b), marked_change(change, comparison))


def _known_changes(comparison: Comparison) -> list[MetricChange]:
    is_enough = any if comparison.a.gpu_worked and comparison.b.gpu_worked else all
    return [change for change in comparison.metrics if is_enough(side.value is not None for side in (change.a, change.b))]


def changed_rows(comparison: Comparison, without: Collection[str] = ()) -> tuple[list[ComparisonRow], int]:
    """Return the rows of the step time and of changed metrics, and the number of unchanged metrics.

    After the step time, the largest relative change comes first. ``without`` are metrics that the page shows elsewhere.
    """
    known_changes = _known_changes(comparison)
    changed = [c for c in known_changes if comparison.metric_word(c) not in ("none", *UNMARKED) or c.key == STEP]
    changed = sorted(changed, key=lambda c: (c.key == STEP, _effect(c)), reverse=True)
    shown = [c for c in changed if c.key not in without]
    return reasons_once([_metric_row(c, comparison) for c in shown]), len(known_changes) - len(changed)


def _effect(change: MetricChange) -> float:
    """Return the size of a change relative to A; -1 if a side is missing."""
    if change.change is None or not change.a.value:
        return -1.0
    return abs(change.change / change.a.value)


def marked_change(change: MetricChange, comparison: Comparison) -> str:
    """Return a metric's change with a mark: ✓ better or ✗ worse.

    There is no mark if neither direction of the metric is better, if the metric changes by less than 1 %, or if the profiled steps
    change in another direction than the runs. There is no amount if two runs of one program may differ by as much. The result is a
    dash for runs of different programs or models.
    """
    if comparison.unrelated and change.change is not None:
        return fmt.MISSING
    word = comparison.metric_word(change)
    return UNMARKED.get(word) or f"{change_text(change)}{MARKS.get(word, '')}"


def label(key: str) -> str:
    """Return a metric's name; metrics of the profiled steps say so."""
    name = METRICS[key].label
    return f"{name}, profiled" if key in OF_THE_PROFILE and "profiled" not in name else name


def change_text(change: MetricChange) -> str:
    """Return a metric's change: points for shares, else amount and percent, or why it is missing."""
    amount, unit = change.change, METRICS[change.key].unit
    if amount is None:
        return change.a.why_missing or change.b.why_missing or fmt.MISSING
    if amount == 0:
        return "none"
    if unit == "share":
        return fmt.points(amount)
    text = fmt.signed(fmt.in_unit(amount, unit), amount)
    return f"{text} ({fmt.signed(fmt.share(amount / change.a.value), amount)})" if change.a.value else text


def matching(rows: pd.DataFrame, search: str | None) -> pd.DataFrame:
    """Return the rows with ``search`` in any of their names."""
    if not search or rows.empty:
        return rows
    text = rows["what"] + " " + rows["names_a"] + " " + rows["names_b"]
    return rows[text.str.contains(search, case=False, regex=False)]

"""A chart on the page with its title, the explanation of its method, its table and the table's CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import pandas as pd
import streamlit as st

from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import templates
from sawtooth.app.charts.base import CONFIG, Chart
from sawtooth.app.charts.poster_bars import BarChart
from sawtooth.app.page import cards, frame

_HTML = templates.pieces("poster.html")
TALL_TABLE_PX = 560  # Pixels of a screen's main table. It fills a laptop's page below the headline.
# A column with texts of more than LONG_TEXT characters is LONG_TEXT_WIDTH pixels wide, so that numbers fit on a narrow page.
LONG_TEXT, LONG_TEXT_WIDTH = 40, 300
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # Beginnings of cells that a spreadsheet reads as formulas.
PERCENT = "%.1f\u00a0%%"  # For a share that is multiplied by 100.
TABLE_HEIGHT = 320  # Pixels, ten rows. Enough to check a chart, and the page stays short.


def show(
    chart: Chart,
    key: str,
    *,
    select: Literal["box", "points"] | None = None,
    name: str | None = None,
    second: Any = None,
) -> Any:
    """Show a chart and return the viewer's selection in it.

    ``select`` makes the chart selectable; without it, the result is None. ``name`` is the file name of the CSV, by default
    ``key``. ``second`` is another figure, shown next to the chart, or below it on a narrow page.
    """
    if chart.title:  # Without a title, the page's headline is the title.
        cards.title(chart.title)
    cards.legend(chart.legend)
    state: Any = None
    if select:
        state = st.plotly_chart(chart.figure, key=key, config=CONFIG, alt=chart.alt, on_select="rerun", selection_mode=select)
    elif second is not None:
        for place, figure, part in zip(two_columns(), (chart.figure, second), ("", "-2"), strict=True):
            place.plotly_chart(figure, key=f"{key}{part}", config=CONFIG, alt=chart.alt)
    else:
        st.plotly_chart(chart.figure, key=key, config=CONFIG, alt=chart.alt)
    _under(chart, key, name)
    return state.selection if state is not None else None


def show_bars(chart: BarChart, key: str) -> None:
    """Show steps as bars, one below the other, with a legend for their parts."""
    cards.title(chart.title)
    cards.legend(chart.legend)
    st.html(_HTML.several(chart.bars, chart.unit, chart.alt))
    _under(chart, key)


def _under(chart: Chart | BarChart, key: str, name: str | None = None) -> None:
    """Offer the chart's method and its table."""
    with st.container(horizontal=True, gap="small"):
        explain(chart.metrics, chart.method, key)
        if not chart.table.empty:
            with st.popover("Table", type="tertiary", icon=":material/table_rows:", key=f"{key}-rows"):
                table(chart.table, dict(chart.columns), key, name or key)


def two_columns() -> tuple[Any, Any]:
    """Return two places next to each other; on a narrow page one is below the other."""
    with st.grid(min_column_width=440, gap="medium"):
        return st.container(), st.container()


def table(
    frame_: pd.DataFrame,
    columns: dict[str, str],
    key: str,
    name: str | None = None,
    *,
    on_row: Callable[[int], None] | None = None,
    csv: bool = True,
) -> None:
    """Show a table with headings for its columns; the CSV (``name``.csv) has the full precision.

    ``on_row`` is called with the position of the selected row. Without ``csv``, the caller offers the CSV.
    """
    shown = frame_[list(columns)] if columns else frame_
    st.dataframe(
        in_percent(shown),
        hide_index=True,
        key=f"{key}-table",
        column_config={column: heading_of(frame_[column], heading) for column, heading in columns.items()},
        height="auto" if len(shown) <= 8 else TABLE_HEIGHT,
        placeholder="",  # Otherwise Streamlit writes "None" into empty cells.
        alt="The same numbers as a table.",
        on_select="ignore" if on_row is None else partial(_selected, f"{key}-table", on_row),
        selection_mode="single-row",
    )
    if csv:
        csv_button(frame_, name or key, key)


def _selected(table_key: str, on_row: Callable[[int], None]) -> None:
    rows = st.session_state[table_key].selection.rows
    if rows:
        on_row(int(rows[0]))


def heading_of(values: pd.Series, heading: str) -> Any:
    """Return the configuration of a table's column: numbers by ``number_column``, everything else as text."""
    if not pd.api.types.is_float_dtype(values):
        long = values.astype(str).str.len().max() > LONG_TEXT if len(values) else False
        return st.column_config.Column(heading, width=LONG_TEXT_WIDTH if long else None)
    return number_column(heading, values)


def number_column(heading: str, values: pd.Series | None, *, help_: str | None = None) -> Any:
    """Return the configuration of a number column, with the decimals that the largest value needs.

    Values of a share must have been converted by ``in_percent``. The result is None if ``values`` is None, because the table
    then has no such column.
    """
    if values is None:
        return None
    if str(values.name).endswith("share"):
        return st.column_config.NumberColumn(heading, format=PERCENT, help=help_)
    known_values = values.dropna()
    largest = float(known_values.abs().max()) if len(known_values) else 0.0
    are_integers = bool((known_values == known_values.round()).all())
    # Enough decimals for small times: 9.98 µs must not become 0.0100 ms.
    small = 3 if largest >= 0.1 or not largest else max(5, 2 - math.floor(math.log10(largest)))
    decimals = 0 if are_integers else small if largest < 1 else 3 if largest < 10 else 2 if largest < 100 else 1
    return st.column_config.NumberColumn(heading, format=f"%.{decimals}f", help=help_)


def share_bar(heading: str, values: pd.Series | None = None, about: str | None = None) -> Any:
    """Return a column of shares as bars, for a table converted by ``in_percent``.

    The bar of the largest of ``values`` has the full length. Without ``values``, the full length is 100 %.
    ``about`` explains the heading.
    """
    largest = float(values.max()) if values is not None and len(values) else 1.0
    full = 100.0 * largest if largest > 0 else 100.0
    return st.column_config.ProgressColumn(heading, help=about, format=PERCENT, min_value=0.0, max_value=full, width=105)


def in_percent(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table with its shares multiplied by 100.

    Streamlit's own format for shares writes 15.79%, which differs from the rest of the app.
    """
    return rows.assign(
        **{c: 100 * rows[c] for c in rows if str(c).endswith("share") and pd.api.types.is_numeric_dtype(rows[c])}
    )


def csv_button(frame_: pd.DataFrame, name: str, key: str | None = None) -> None:
    """Offer a table as CSV in full precision."""
    st.download_button(
        "CSV",
        data=lambda: _csv(frame_).encode(),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=f"{key or name}-csv",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )


def _csv(frame_: pd.DataFrame) -> str:
    """Return the table as CSV in which no name from an untrusted trace is a formula for a spreadsheet."""
    texts = frame_.select_dtypes(exclude=["number", "bool"])
    safe = {
        column: texts[column].map(lambda value: f"'{value}" if str(value).startswith(FORMULA) else value) for column in texts
    }
    return frame_.assign(**safe).to_csv(index=False)


def downloads(name: str, formats: Iterable[tuple[str, str, str, Callable[[], str]]], key: str) -> None:
    """Offer files called ``name``: a label, a suffix, a MIME type, and a function that returns the text.

    The function is called only when the viewer asks for the file.
    """
    for label, suffix, mime, text in formats:
        st.download_button(
            label,
            data=partial(_encoded, text),
            file_name=f"{name}.{suffix}",
            mime=mime,
            on_click="ignore",
            key=f"{key}-{suffix}",
        )


def _encoded(text: Callable[[], str]) -> bytes:
    return text().encode()


def explain(metrics: tuple[str, ...], method: str, key: str) -> None:
    """Offer the explanation of a chart: its method and the definitions of its metrics."""
    if not metrics and not method:
        return
    with st.popover("How is this computed?", type="tertiary", icon=":material/help:", key=f"{key}-how"):
        if method:
            cards.paragraph(method)
        for name in metrics:
            metric = METRICS[name]
            cards.definition(metric.label, metric.definition)
            cards.small(f"Source: {metric.source}")
        frame.link("reference", "All definitions", icon=":material/menu_book:")

"""Small page elements that all screens share: headlines, metrics with their trust, and empty states.

Texts may contain names from untrusted traces. The templates escape all of them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts.base import LegendEntry
from sawtooth.app.charts.cause_bars import LostBar

_ASSETS = Path(__file__).resolve().parents[1] / "assets"
ICON = str(_ASSETS / "icon.svg")
LOGO = str(_ASSETS / "logo.svg")

SPARK_PX = 240, 44  # Width and height.

_HTML = templates.pieces("cards.html")


@dataclass(frozen=True)
class NarrowRow:
    """A row of two lines: a name, and below it a value, a bar and a short text."""

    name: str
    address: str
    chosen: bool
    value: str
    bar: str  # The bar's length relative to the longest bar, such as "62.5%".
    colour: str
    kind: str


@dataclass(frozen=True)
class Definition:
    """A definition: name, short text and detail are its line; ``paragraphs`` are headings and texts."""

    name: str
    detail: str
    short: str
    paragraphs: Sequence[tuple[str, str]]


def style() -> None:
    """Add the logo and the colours of the dark theme to the page; its other rules are in the index page."""
    # Streamlit writes white text on the accent colour, which is light in this theme: the contrast is only 2.8:1
    if st.context.theme.type == "dark":
        st.html(
            "<style>button[kind^=primary]:not(:disabled), [data-testid=stMultiSelect] [data-tag], [data-testid=stMultiSelect] [data-tag] :is(span, button) { color: #0B1A26 !important; } "
            ":root { --tex: rgb(0 0 0 / 38%); } :root .st-caution span { color: #F2C14E; } :root .st-then { color: #4AA3DF; } :root .st-worse { color: #F47C74; } :root .st-slower { background: #F47C74; color: #0B1A26; } :root .st-badge { background: #4AA3DF; color: #0B1A26; } :is([data-testid=stMain], [data-testid=stPopoverBody]) [data-testid=stPageLink] a { --st-link: #6DB8EA; }</style>"
        )
    st.logo(LOGO, size="large")


def headline(sentence: str, under: str | None = None) -> None:
    """Show the answer of a screen as its first line; ``under`` is a second line in smaller type."""
    st.html(_HTML.headline([("text", fmt.as_title(sentence))], under))


def answer(pieces: Sequence[tuple[str, str]], under: str | None = None) -> None:
    """Show a headline in pieces, each with its kind: text, then (the new step) or badge (the factor)."""
    st.html(_HTML.headline(pieces, under))


def ready() -> None:
    """Mark the head of a page as complete, which shows the controls below it (``first_paint.css``)."""
    st.html(_HTML.ready())


def title(finding: str) -> None:
    """Show the title of a part of the page: a sentence that states its main result."""
    st.html(_HTML.title(fmt.as_title(finding)))


def numbered(number: int, finding: str) -> None:
    """Show the title of a numbered part.

    The number is in a badge, so that it cannot be read as a part of a number in the title.
    """
    st.html(_HTML.numbered(number, fmt.as_title(finding)))


def small(text: str) -> None:
    """Show a line of small print."""
    st.html(_HTML.line(text, "small"))


def text(sentence: str) -> None:
    """Show a sentence."""
    st.html(_HTML.line(sentence, "text"))


def show_bold(sentence: str) -> None:
    """Show a sentence in bold type."""
    st.html(_HTML.line(sentence, "strong"))


def caution(sentence: str) -> None:
    """Show a sentence in amber that says why a number cannot be fully trusted."""
    st.html(_HTML.caution(sentence))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, figures: bool = False) -> None:
    """Show a short table whose cells wrap.

    With ``figures``, every column except the first contains numbers. ``caption`` names the table for screen readers.
    """
    st.html(_HTML.table(headers, rows, caption, figures))


def entries(rows: Sequence[Definition], *, is_open: bool) -> None:
    """Show definitions in one line each. An opened one (``is_open``: all of them) shows its complete text."""
    st.html(_HTML.entries(rows, is_open))


def tables(listed: Sequence[tuple[str, Sequence[tuple[str, str, str]], bool]]) -> None:
    """Show tables by name; an opened one shows name, type and meaning of its columns."""
    st.html(_HTML.tables(listed))


def show_ranked_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    bars: Sequence[LostBar],
    caption: str,
    *,
    ends_in_number: bool = False,
) -> None:
    """Show a table whose rows are sorted by the second column, with a bar for each value of that column.

    On a narrow page, the last cell is below the others. With ``ends_in_number``, it is a short number next to the bar there.
    """
    with st.container(key=f"ranked_of_{len(rows)}_"):  # The container reserves the table's approximate height.
        st.html(_HTML.ranked(headers, rows, bars, caption, ends_in_number))


def narrow_rows(rows: Sequence[NarrowRow], caption: str) -> None:
    """Show rows of two lines, which replace a wide table on a phone and are hidden elsewhere."""
    st.html(_HTML.narrow_rows(rows, caption))


def paragraph(sentence: str) -> None:
    """Show a paragraph."""
    st.html(_HTML.paragraph(sentence))


def definition(term: str, sentence: str) -> None:
    """Show a term and its meaning."""
    st.html(_HTML.definition(term, sentence))


def legend(entries: Sequence[LegendEntry]) -> None:
    """Show the meaning of a chart's colours; the entries wrap on a narrow page."""
    if entries:
        st.html(_HTML.legend(entries))


def section_label(text: str) -> None:
    """Show a small heading above a group of elements."""
    st.html(_HTML.line(text, "section"))


def about(text: str, tags: Sequence[str]) -> None:
    """Show a line of small print, and short labels after it."""
    st.html(_HTML.about(text, tags))


def numbers(pairs: Sequence[tuple[str, str]]) -> None:
    """Show a few labelled numbers in a row that wraps."""
    if pairs:
        st.html(_HTML.numbers(pairs))


def metric_card(key: str, value: Reading, *, note: str | None = None, good: float | None = None) -> None:
    """Show metric ``key`` with its definition on hover, its trust, and the reason if it is missing.

    ``good`` is a share that good runs reach. A bar shows the metric and marks this share.
    """
    metric = METRICS[key]
    help_text = f"{metric.definition} Source: {metric.source}"
    if value.notes:
        help_text += " — " + " ".join(value.notes)
    with st.container(border=True, height="stretch"):
        st.metric(metric.label, fmt.reading(key, value), help=fmt.markdown(help_text, None))
        if value.value is not None and good is not None:
            _share_bar(value.value, good)
        if value.why_missing:
            small(value.why_missing)
        elif note:
            small(note)
        trust_badge(value)


def _share_bar(share: float, good: float) -> None:
    words = f"{fmt.share(share)}; good runs reach {fmt.share(good)}"
    st.html(_HTML.share_bar(words, f"{min(max(share, 0.0), 1.0):.1%}", f"{good:.1%}"))


def trust_badge(value: Reading) -> None:
    """Show an amber badge with the reason if a number exists and is not fully trusted."""
    if value.value is not None and value.trust != "ok":
        reason = " ".join(value.notes) or "Some input of this number is incomplete."
        label = "caution" if value.trust == "caution" else "not usable"
        st.badge(label, icon=":material/warning:", color="orange", help=fmt.markdown(reason, None))


def empty_state(what: str, why: str, code: str | None = None, language: str | None = None) -> None:
    """Say what is missing and why, and show the code or command that provides it."""
    with st.container(border=True):
        title(what)
        paragraph(why)
        if code:
            st.code(code, language=language, wrap_lines=True)


def problem(what: str, sentence: str) -> None:
    """Say in one sentence what went wrong and what to do."""
    with st.container(border=True):
        st.html(_HTML.problem(fmt.as_title(what), sentence))


def sparkline(values: Sequence[float | None], caption: str, colour: str) -> None:
    """Show a line of shares (0 to 1) without axes above its caption; None leaves a gap in the line."""
    known_values = [value for value in values if value is not None]
    alt = f"{caption}: {fmt.share(sum(known_values) / max(len(known_values), 1))} on average"
    st.html(_HTML.picture(_spark_address(values, colour), *SPARK_PX, alt, caption))


def _spark_address(values: Sequence[float | None], colour: str) -> str:
    """Return the line as a picture in a ``data:`` address."""
    width, height = SPARK_PX
    step = width / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{i * step:.1f},{(height - 3) - min(max(value, 0.0), 1.0) * (height - 6):.1f}")
    svg = templates.render(
        "sparkline.svg",
        lines=[" ".join(points) for points in lines if len(points) > 1],
        width=width,
        height=height,
        colour=colour,
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
